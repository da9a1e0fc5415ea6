"""Messages without room in memory are written to a store as a segment, and sent as references to it.

One segment is written while the one before is published, never more: so order holds, and a producer has at most two
segments on their way. A segment is entered at its store, then written and flushed, then published.

A segment ends where the next message goes to the destination's other store: the first in line says which is written to.
"""

import asyncio
import contextlib
import itertools
import secrets
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from headgate._util.tasks import StepCallbacks, stop
from headgate.core.account.calls import NoStore
from headgate.core.outbox import Outbox, Outgoing
from headgate.core.segment import MOST_MESSAGES, pack
from headgate.errors import HeadgateError, MessageTooLarge
from headgate.redis.keys import Address
from headgate.spool.overflow import OverflowWriter
from headgate.spool.store_access import StoreAccess, StoreQuota
from headgate.spool.stores import Spool, Spools, folder
from headgate.spool.sweep import Sweeper

LOOK_EVERY: Final = 1.0
"""Seconds between looks whether anybody still waits for room at a store, where nothing is heard of it."""


@dataclass(frozen=True, slots=True)
class WrittenSegment:
    """A written segment holds the payloads of messages, and has a reference for each.

    Attributes:
        spool: its store.
        name: of the segment, among those of its destination.
        references: one for each message.
        size: bytes.
    """

    spool: Spool
    name: str
    references: list[bytes]
    size: int

    @property
    def segment(self) -> str:
        """As its destination's state takes it: name and bytes."""
        return f"{self.spool.encoded}/{self.name} {self.size}"


class Writer(OverflowWriter):
    """A writer puts the messages of one account into segments.

    Args:
        spools: the stores.
        sweeper: what deletes segments.
        quota: returns the session's room at a store.
        address: the destination.
        outbox: the account's line.
        wake: tells the account that something is ready for it.
        seek: has the account look for room in memory, as nothing is ready for it.
        steps: called when the account's line may have changed.
        session: that sends.
    """

    def __init__(
        self,
        spools: Spools,
        sweeper: Sweeper,
        quota: Callable[[Spool], Awaitable[StoreQuota]],
        address: Address,
        outbox: Outbox,
        wake: Callable[[], None],
        seek: Callable[[], None],
        steps: StepCallbacks,
        session: str = "-",
    ) -> None:
        super().__init__(outbox)
        self.prepared: WrittenSegment | None = None
        self._spools = spools
        self._sweeper = sweeper
        self._quota_at = quota
        self._address, self._session = address, session
        self._wake, self._seek = wake, seek
        self._steps = steps
        self._writes: StoreAccess = self._ways[0]
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._most = MOST_MESSAGES
        self._names = (f"{secrets.token_hex(5)}-{n:x}" for n in itertools.count(1))

    def seek(self) -> None:
        """Begin to write those that wait, unless that is under way."""
        if (self._task is None or self._task.done()) and not self._outbox.spooling and self.prepared is None:
            self._task = asyncio.create_task(self._write(), name=f"headgate spool {self._address.shown}")
            self._task.add_done_callback(self._done)

    def take(self) -> WrittenSegment:
        """Take over what is prepared, in order to publish it."""
        prepared, self.prepared = self.prepared, None
        if prepared is None:
            raise AssertionError("nothing is prepared")
        self._sweeper.watch(self._address)
        self._most = min(2 * self._most, MOST_MESSAGES)
        return prepared

    def refuse(self, segment: str, room: int, _: NoStore | None = None) -> None:
        """Delete the segment of a batch that was not taken, for memory has room for only that many references."""
        self._most = max(1, room)
        if room < 1:
            way = next((way for way in self._ways if way.encoded == segment.partition("/")[0]), self._way)
            way.crowd(self._loop.time())
            self._sweeper.watch(self._address)
            self._sweeper.hurry()
        self.drop(segment)

    def drop(self, segment: str) -> None:
        """Delete the segment of a batch of which nothing was stored, nor will be."""
        name = segment.partition(" ")[0].partition("/")[2]
        for spool in self._spools.known():
            if spool.encoded == segment.partition("/")[0]:
                self._sweeper.discard(spool, self._address, name)

    def discard(self, prepared: WrittenSegment) -> None:
        """Delete a segment that no reference leads to, nor will."""
        self._sweeper.discard(prepared.spool, self._address, prepared.name)

    async def close(self) -> None:
        """Stop; what was being written goes back in line."""
        await stop(self._task)
        self._abandon()

    def _abandon(self) -> None:
        if self.prepared is not None:
            self.discard(self.prepared)
            self.prepared = None
        self._outbox.unspool()

    def _done(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):
            why = str(error) if isinstance(error, HeadgateError) else repr(error)
            self._writes.postpone(self._loop.time(), why)
            self._abandon()
        (self._wake if self.prepared is not None else self._seek)()

    async def _write(self) -> None:
        way = self._writes = self._way
        if way.crowded and not await self._spools.calls.room(self._address, self._session):
            way.crowd(self._loop.time())
            return
        spool = await self._spools.get(way.store)
        way.when_full = spool.settings.when_full
        way.quota = quota = await self._quota_at(spool)
        settings = spool.settings
        most_bytes = int(min(settings.segment, settings.limit or settings.segment, self._most_bytes))
        if not (items := await self._with_room(way, quota, most_bytes)):
            return
        way.opens()
        name, size = next(self._names), _bytes_of(items)
        entered = quota.hold(f"{folder(self._address)}/{name}", size)
        try:
            # The one is made while Redis has the other.
            _, (data, references) = await asyncio.gather(entered, _packed(items, spool, name))
            await spool.storage.write(spool.path(self._address, name), data)
        except BaseException:
            self._sweeper.discard(spool, self._address, name)
            raise
        way.written()
        prepared = WrittenSegment(spool, name, references, size)
        if self._outbox.spooling is items:
            self.prepared = prepared
        else:  # the account was lost meanwhile, and they are in line again
            self.discard(prepared)

    async def _with_room(self, way: StoreAccess, quota: StoreQuota, most_bytes: int) -> list[Outgoing]:
        """Take the first that wait out of the line, with room at the store for them; none where nobody waits."""
        items = self._outbox.spool(self._most, most_bytes, self._only(way))
        if not items or quota.take(_bytes_of(items)):
            return items
        self._outbox.unspool()  # while there is no room at the store, memory may serve them
        if not (size := await self._fitting(way, quota, most_bytes)):
            return []
        items = self._outbox.spool(self._most, size, self._only(way))
        if _bytes_of(items) != size:
            quota.put_back(size)  # some of them were paid from memory, or gave up
            if items and not await self._room(way, quota, _bytes_of(items)):
                self._outbox.unspool()
                return []
        return items

    def _first_bytes(self, way: StoreAccess, most_bytes: int) -> int:
        """Return the bytes of those that would go in one segment now; 0 where the first goes another way."""
        size = count = 0
        ttl_ms, fits = None, self._only(way)
        for item in self._outbox.waiting:
            if item.done.done():
                continue
            if fits is not None and not fits(item):
                break
            if count and (size + item.size > most_bytes or item.ttl_ms != ttl_ms or count >= self._most):
                break
            size, count, ttl_ms = size + item.size, count + 1, item.ttl_ms
        return size

    async def _fitting(self, way: StoreAccess, quota: StoreQuota, most_bytes: int) -> int:
        """Take room at the store for as many waiting messages as fit, at least for the first.

        Returns the bytes; 0 where nobody waits any more.
        """
        while size := self._first_bytes(way, most_bytes):
            last = size == self._first_bytes(way, 1)
            if await self._room(way, quota, size, patient=last):
                return size
            if last:
                break
            most_bytes = size // 4
        return 0

    def _leads(self, way: StoreAccess) -> bool:
        """Return whether the first message that has no credit goes that way."""
        front = self._outbox.front()
        return front is not None and self._way_of(front) is way

    async def _room(self, way: StoreAccess, quota: StoreQuota, size: int, *, patient: bool = True) -> bool:
        """Wait for room at the store, for as long as anybody waits for it; not ``patient``: until it has none."""
        asked = quota.ask(size, self._stirred.set)
        asked.add_done_callback(lambda _: self._stirred.set())
        self._steps[self._stirred.set] = None
        try:
            while not asked.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await self._stirred.wait()
                self._stirred.clear()
                if quota.refused(asked):
                    if not patient:
                        return False
                    if not way.waits:
                        way.waits = True
                        self._seek()
                        self._sweeper.hurry()
                if not asked.done() and not self._leads(way):
                    asked.cancel()
                    way.waits = False
                    return False
            asked.result()
        except MessageTooLarge as error:
            head = self._outbox.head()
            if head is not None and head.size == size:
                head.done.set_exception(MessageTooLarge(self._address.shown, head.size, error.limit))
                head.done.exception()
                return False
            raise
        finally:
            self._steps.pop(self._stirred.set, None)
            if not asked.done():
                asked.cancel()
        return True


async def _packed(items: Sequence[Outgoing], spool: Spool, name: str) -> tuple[bytes, list[bytes]]:
    return pack([item.payload for item in items], spool.encoded, name)


def _bytes_of(items: Sequence[Outgoing]) -> int:
    return sum([item.size for item in items])
