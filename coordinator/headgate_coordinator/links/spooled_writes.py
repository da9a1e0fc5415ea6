"""A link writes into a target that spools: messages that find no room in memory go to a store of the target.

The link takes room at the store, writes one segment, and commits references in the messages' place, with the same
fence and mark as ever: so what is there is there once, and in order. The name of a segment has the number of the lease:
one that no reference leads to belongs to nobody once the target has heard of a later lease, and not before.
"""

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.context import Context
from headgate.core.links.calls import Put, Skip
from headgate.core.names import decode_name
from headgate.core.segment import pack
from headgate.core.when_full import WhenFull
from headgate.credit.spool_quota import SpoolQuota
from headgate.errors import CoordinatorUnavailable, HeadgateError, MessageTooLarge
from headgate.message import is_durable
from headgate.redis.keys import Address
from headgate.spool.stores import Spool, folder
from headgate_coordinator.links.forwarder import NO_REFERENCES

_log = logging.getLogger("headgate.node")
SHARE: Final = 4
"""By how much fewer bytes are tried where the store has no room for all."""
MOST: Final = 256
"""Messages of a segment: no call commits more."""
OF_A_HOST: Final = ("file", "local", "memory")
"""Schemes of URLs that may be another storage at each host."""


class NoRoomError(Exception):
    """A store takes nothing now; without a text, it never takes a message of that size."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment holds messages that are in a store, and the references to them.

    Attributes:
        spool: the store.
        name: of the segment.
        entries: the first of those that were to be written, with references for bodies.
        size: bytes of the payloads.
    """

    spool: Spool
    name: str
    entries: tuple[Put | Skip, ...]
    size: int

    @property
    def batch(self) -> str:
        """As the target's script takes it: name, bytes, messages."""
        messages = sum(isinstance(entry, Put) for entry in self.entries)
        return f"{self.spool.encoded}/{self.name} {self.size} {messages}"

    def stored(self, mark: int) -> int:
        """Return how many of its messages the target has, by its mark."""
        return sum(isinstance(entry, Put) and entry.seq <= mark for entry in self.entries)

    @property
    def last(self) -> int:
        """Number of its last message at the source."""
        return self.entries[-1].seq


class SpooledWrites:
    """`SpooledWrites` writes for one link, one segment at a time.

    Args:
        parts: of the client of the target's site.
        address: the target.
        link: id of the link.
        fence: number of its lease.
        room_at: returns the link's room at a store.
        woken: called when a store has room that had none.
        sent: segments of which it is not known that their messages are there, also of earlier work under this lease.
        elsewhere: whether the target is at another site: a path there may be another disk here.
    """

    def __init__(
        self,
        parts: Context,
        address: Address,
        link: str,
        fence: int,
        room_at: Callable[[Spool], Awaitable[SpoolQuota]],
        woken: Callable[[], None],
        sent: list[Segment],
        *,
        elsewhere: bool = False,
    ) -> None:
        self._parts, self._spooling = parts, parts.registry.spooling
        self._address, self._link = address, link
        self._room_at, self._woken, self._elsewhere = room_at, woken, elsewhere
        self._names = (f"{secrets.token_hex(5)}-{fence:x}-{n:x}" for n in itertools.count(1))
        self._sent = sent
        self._most = MOST
        self._crowded = False
        """Whether nothing of what was written last was taken."""
        self._stirred = asyncio.Event()
        self._asked: tuple[SpoolQuota, int, asyncio.Future[None]] | None = None

    @property
    def spools(self) -> bool:
        """Whether messages without room in memory go to a store, as the settings were last read."""
        fields = self._parts.registry.fields(self._address)
        return bool(fields.get("store")) and WhenFull.parse(fields.get("when_full", "")).spools

    async def refresh(self) -> None:
        """Read the settings of the target."""
        await self._parts.registry.refresh(self._address)

    async def write(self, entries: Sequence[Put | Skip]) -> Segment:
        """Write as many of these messages, from the first, as go in one segment and find room.

        Raises:
            NoRoomError: nothing is written.
            SpoolUnavailable: the storage does not answer.
            CoordinatorUnavailable: Redis does not.
        """
        if self._crowded and not await self._spooling.spools.calls.room(self._address, self._link):
            self._spooling.sweeper.watch(self._address)
            raise NoRoomError(NO_REFERENCES)
        try:
            spool = await self._store(entries)
            quota = await self._room_at(spool)
        except CoordinatorUnavailable:
            raise
        except HeadgateError as error:
            raise NoRoomError(f"its store cannot be used: {error}") from None
        settings = spool.settings
        taken, size = await self._fitting(quota, entries, min(settings.segment, settings.limit or settings.segment))
        name = next(self._names)
        data, references = pack([entry.body for entry in taken if isinstance(entry, Put)], spool.encoded, name)
        try:
            await quota.hold(f"{folder(self._address)}/{name}", size, self._link)
            await spool.storage.write(spool.path(self._address, name), data)
        except BaseException:
            self._spooling.sweeper.discard(spool, self._address, name)
            raise
        left = iter(references)
        put = (replace(entry, body=next(left)) if isinstance(entry, Put) else entry for entry in taken)
        segment = Segment(spool, name, tuple(put), size)
        self._sent.append(segment)
        return segment

    def answered(self, segment: Segment, mark: int) -> None:
        """Take in the answer to the call that committed a segment, of which the target took what its mark says.

        A segment of which it took nothing is deleted at once: the call is over, and no other names it. Where the target
        has no room for references, or its rate lets few go, as many are written as it took.
        """
        messages, stored = segment.stored(segment.last), segment.stored(mark)
        self._crowded = not stored
        self._most = max(1, stored) if stored < messages else min(2 * self._most, MOST)
        if not stored:
            self._sent.remove(segment)
            self._spooling.sweeper.discard(segment.spool, self._address, segment.name)

    async def heard(self, mark: int) -> None:
        """Delete the segments of messages that got to the target otherwise, as its mark says."""
        over = [segment for segment in self._sent if segment.last <= mark]
        for segment in over:
            if await self._spooling.spools.calls.is_known(self._address, f"{segment.spool.encoded}/{segment.name}"):
                self._spooling.sweeper.watch(self._address)
            else:
                self._spooling.sweeper.discard(segment.spool, self._address, segment.name)
            self._sent.remove(segment)

    def leave(self) -> None:
        """Leave the line of a store, or give the room there back."""
        asked, self._asked = self._asked, None
        if asked is None:
            return
        quota, size, future = asked
        if future.done() and not future.cancelled() and not future.exception():
            quota.put_back(size)
        future.cancel()

    async def _store(self, entries: Sequence[Put | Skip]) -> Spool:
        fields = self._parts.registry.fields(self._address)
        lasting = "store"
        if fields.get("store_nonpersistent") and not self._lasting(entries):
            lasting = "store_nonpersistent"
        if not fields.get("store"):
            raise NoRoomError("it does not spool")
        name = decode_name(fields[lasting])
        if self._elsewhere:
            url = (await self._spooling.spools.fields(name)).get("url", "")
            if url.partition("://")[0] in OF_A_HOST:
                raise NoRoomError(f"its store {name!r} is in files of that site's own hosts")
        return await self._spooling.spools.get(name)

    @staticmethod
    def _lasting(entries: Sequence[Put | Skip]) -> bool:
        """Return whether the first message is durable."""
        return next((is_durable(entry.body) for entry in entries if isinstance(entry, Put)), True)

    def _first(self, entries: Sequence[Put | Skip], most: int) -> tuple[list[Put | Skip], int, int]:
        """Return the first of the entries, with at least one message and at most that many bytes, and both numbers."""
        by_mode = bool(self._parts.registry.fields(self._address).get("store_nonpersistent"))
        lasting = not by_mode or self._lasting(entries)
        taken: list[Put | Skip] = []
        size = messages = 0
        for entry in entries:
            if isinstance(entry, Put):
                other = by_mode and is_durable(entry.body) is not lasting
                if messages and (other or messages >= self._most or size + len(entry.body) > most):
                    break
                size, messages = size + len(entry.body), messages + 1
            taken.append(entry)
        return taken, size, messages

    async def _fitting(
        self, quota: SpoolQuota, entries: Sequence[Put | Skip], most: int
    ) -> tuple[list[Put | Skip], int]:
        """Take room for as many of the entries as the store has it for; for the first alone, stand in its line."""
        self._reclaim()
        while True:
            taken, size, messages = self._first(entries, most)
            asked = quota.ask(size, self._stirred.set)
            asked.add_done_callback(lambda _: self._stirred.set())
            try:
                while not asked.done() and not quota.refused(asked):
                    await self._stirred.wait()
                    self._stirred.clear()
            except asyncio.CancelledError:
                self._asked = quota, size, asked
                self.leave()
                raise
            if asked.done():
                try:
                    asked.result()
                except MessageTooLarge:
                    raise NoRoomError from None
                return taken, size
            if messages == 1:
                self._asked = quota, size, asked
                asked.add_done_callback(lambda given: None if given.cancelled() else self._woken())
                self._spooling.sweeper.hurry()
                raise NoRoomError(f"its store {quota.spool.name!r} has no room either: {quota.reason}")
            asked.cancel()
            most = size // SHARE

    def _reclaim(self) -> None:
        """Take back what was asked for before.

        Raises:
            NoRoomError: the link is still in the store's line for it.
        """
        if self._asked is not None and not self._asked[2].done():
            quota = self._asked[0]
            raise NoRoomError(f"its store {quota.spool.name!r} has no room either: {quota.reason}")
        self.leave()
