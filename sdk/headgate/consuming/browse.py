"""A browser reads the messages of a destination without taking them. No credit, no window, nothing is changed."""

from collections.abc import AsyncIterator
from typing import Final

from headgate.core.names import read_id, shown_id, slice_name
from headgate.core.segment import Reference, is_reference
from headgate.errors import InvalidValue, SpoolUnavailable
from headgate.message import Stored
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.spool import Spooling
from headgate.spool.reader import UnreadablePayload

PAGE: Final = 100
"""Messages that one call reads where the destination does not say (``browser_window``)."""


class Browsed(Stored):
    """A browsed message is stored, delivered or not; one of a topic has some subscription that has not settled it.

    Attributes:
        expires_ms: ms of Redis' clock at which it expires; None when it does not.
        due_ms: ms of Redis' clock before which it is not delivered, where it was sent for later; None else.
    """

    __slots__ = ("_id", "due_ms", "expires_ms")

    def __init__(self, id: str, stored: bytes, expires_ms: int | None, due_ms: int | None = None) -> None:  # noqa: A002 - as the attribute
        super().__init__(stored)
        self._id = id
        self.expires_ms, self.due_ms = expires_ms, due_ms

    @property
    def id(self) -> str:
        """The message's id at its destination."""
        return self._id

    def __repr__(self) -> str:
        return f"Browsed({self.id}, {self.size} bytes)"


async def browse(
    store: Store, spooling: Spooling, address: Address, *, after: str | None = None, limit: int | None = None
) -> AsyncIterator[Browsed]:
    """Yield stored messages, oldest first, a page at a time; see :meth:`Client.browse`."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise InvalidValue(f"limit: {limit!r}; use a number from 1, or None for all")
    begin, last = (0, None) if after is None else read_id(after) or (-1, None)
    if begin < 0:
        raise InvalidValue(f"after: {after!r}; use the id of a message")
    snapshot = await store.snapshot(address, waiters=0, consumers=1)
    fields = snapshot.fields if snapshot else {}
    page = int(fields.get("browser_window") or PAGE)
    for number in range(begin, int(fields.get("sliced", begin + 1))):
        part = Address.of(address.namespace, slice_name(address.name, number)) if number else address
        async for message in _slice(store, spooling, part, last if number == begin else None, limit, page):
            yield message
            limit = None if limit is None else limit - 1
        if limit == 0:
            return


async def _slice(
    store: Store, spooling: Spooling, address: Address, last: str | None, left: int | None, page: int
) -> AsyncIterator[Browsed]:
    """Yield the messages of one slice."""
    while left is None or left > 0:
        count = page if left is None else min(page, left)
        entries = await store.browse(address, after=last, count=count)
        look = _PageReader(store, spooling, address)
        for id_, stored, expires_ms, due_ms in entries:
            last = id_.decode()
            shown = await look.at(last, stored) if is_reference(stored) else stored
            if shown is not None:
                yield Browsed(shown_id(address.name, last), shown, expires_ms, due_ms)
        if len(entries) < count:
            return
        left = None if left is None else left - count


class _PageReader:
    """A page's payloads are read here. A store that failed once is not asked again, so that a page costs one wait."""

    def __init__(self, store: Store, spooling: Spooling, address: Address) -> None:
        self._store, self._spooling, self._address = store, spooling, address
        self._silent: SpoolUnavailable | None = None

    async def at(self, id_: str, stored: bytes) -> bytes | None:
        """Return what to show for a reference; None where the message is gone meanwhile."""
        if not self._spooling.reaches and not Reference.parse(stored).lost:
            found = await self._store.stored(self._address, id_)  # alone, the node reads it, however large it is
            if found is None or not is_reference(found):
                return found
            stored = found
        payload = await self._read(stored)
        if not isinstance(payload, UnreadablePayload):
            return payload
        return payload.stub if await self._store.stored(self._address, id_) is not None else None

    async def _read(self, stored: bytes) -> bytes | UnreadablePayload:
        try:
            if self._silent is None:
                return await self._spooling.reader.read(self._address, stored)
        except SpoolUnavailable as error:
            self._silent = error
        return UnreadablePayload(Reference.parse(stored).segment, f"for now: {self._silent}")
