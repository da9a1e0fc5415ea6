"""Payloads of spooled messages are read back: a piece of a segment at a time, a few of which are kept."""

import asyncio
import logging
import zlib
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import Final

from headgate._util.reconnect import AWAY
from headgate.core.names import decode_name
from headgate.core.segment import MARK, Reference
from headgate.errors import InvalidValue, PolicyError, SpoolUnavailable
from headgate.message import encode
from headgate.redis.keys import Address
from headgate.spool.stores import Spool, Spools

_log = logging.getLogger("headgate")
PIECE: Final = 1 << 20
"""Bytes that are read at once, unless one message takes more."""
KEPT: Final = 16 << 20
"""Bytes of pieces that are kept for the next messages."""
AGAIN: Final = (0.1, 5.0)
"""Seconds until a storage that failed is asked again: at first, and at the most."""


@dataclass(frozen=True, slots=True)
class UnreadablePayload:
    """A payload is not there any more, or not as it was written.

    Attributes:
        segment: where it was, in its storage.
        problem: what is wrong with it.
        for_now: whether it may be there when it is read again.
    """

    segment: str
    problem: str
    for_now: bool = False

    @property
    def trouble(self) -> str:
        """Both, in a sentence."""
        return f"its payload is lost: {self.problem} ({self.segment})"

    @property
    def stub(self) -> bytes:
        """A message that says so, in the place of the one that was lost."""
        return encode(self.trouble, {"headgate-lost-segment": self.segment})

    def noted_in(self, reference: Reference) -> bytes:
        """Return the reference with what is wrong, for who cannot look."""
        return replace(reference, lost=f"{self.problem}\n{self.segment}").encode()


_Segment = tuple[str, bytes]
"""The key of a destination, and what its references to a segment begin with."""


@dataclass(slots=True)
class _Piece:
    start: int
    data: bytes


class PayloadReader:
    """A payload reader reads payloads for one client. A call for the next message of a segment finds it here already.

    Args:
        spools: the stores.
        reaches: whether their storage can be reached from here; else nodes read payloads.
        kept: bytes of pieces to keep.
    """

    def __init__(self, spools: Spools, *, reaches: bool = True, kept: int = KEPT) -> None:
        self._spools = spools
        self._reaches = reaches
        self._most = kept
        self._kept = 0
        self._pieces: OrderedDict[_Segment, _Piece] = OrderedDict()
        self._under_way: dict[_Segment, asyncio.Lock] = {}

    def at_hand(self, address: Address, stored: bytes) -> bytes | None:
        """Return the payload of one reference where the piece that has it is kept; :meth:`payload` reads all others."""
        try:
            name, start, size, crc = stored.split(b" ")
            first = int(start)
            last, checksum = first + int(size), int(crc, 16)
        except ValueError:
            return None
        piece = self._pieces.get((address.key, name))
        if piece is None or first < piece.start or last > piece.start + len(piece.data):
            return None
        found = piece.data[first - piece.start : last - piece.start]
        return found if zlib.crc32(found) == checksum else None

    async def payload(self, address: Address, stored: bytes) -> bytes | UnreadablePayload:
        """Return the payload of one reference; a storage that does not answer is asked until it does.

        Args:
            address: the destination that has the reference.
            stored: as the destination has it.
        """
        pause = AGAIN[0]
        while True:
            try:
                return await self.read(address, stored)
            except (SpoolUnavailable, *AWAY) as error:
                _log.warning("a message of %r waits for its payload: %s", address.name, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, AGAIN[1])

    async def read(self, address: Address, stored: bytes) -> bytes | UnreadablePayload:
        """Return the payload of one reference, asked for once.

        Raises:
            SpoolUnavailable: the storage does not answer.
        """
        try:
            reference = Reference.parse(stored)
        except InvalidValue as error:
            return UnreadablePayload("", str(error))
        if reference.lost:
            problem, _, segment = reference.lost.partition("\n")
            return UnreadablePayload(segment, problem)
        if not self._reaches:
            raise SpoolUnavailable(reference.store, "read", reference.segment, "only nodes reach it from here")
        return await self._read(address, reference)

    async def _read(self, address: Address, reference: Reference) -> bytes | UnreadablePayload:
        try:
            spool = await self._spools.get(decode_name(reference.store))
        except (PolicyError, InvalidValue) as error:
            raise SpoolUnavailable(reference.store, "read", reference.segment, str(error)) from None
        where = f"{spool.storage.url}/{spool.path(address, reference.name)}"
        key = (address.key, MARK + reference.segment.encode())
        async with self._under_way.setdefault(key, asyncio.Lock()):
            try:
                found = await self._part(spool, address, key, reference)
            except FileNotFoundError:
                return UnreadablePayload(where, "there is no such segment")
            finally:
                self._under_way.pop(key, None)
        if reference.check(found):
            return found
        self._forget(key)
        if len(found) < reference.size:
            return UnreadablePayload(where, f"it ends {reference.size - len(found)} bytes before the message does")
        return UnreadablePayload(where, f"the checksum of {reference.size} bytes at {reference.offset} is wrong")

    async def _part(self, spool: Spool, address: Address, key: _Segment, reference: Reference) -> bytes:
        start, end = reference.offset, reference.offset + reference.size
        piece = self._pieces.get(key)
        if piece is None or start < piece.start or end > piece.start + len(piece.data):
            data = await spool.read(address, reference.name, start, max(end, start + PIECE))
            self._forget(key)
            piece = self._pieces[key] = _Piece(start, data)
            self._kept += len(data)
            while self._kept > self._most and len(self._pieces) > 1:
                self._forget(next(iter(self._pieces)))
        else:
            self._pieces.move_to_end(key)
        return piece.data[start - piece.start : end - piece.start]

    def _forget(self, key: _Segment) -> None:
        piece = self._pieces.pop(key, None)
        if piece is not None:
            self._kept -= len(piece.data)
