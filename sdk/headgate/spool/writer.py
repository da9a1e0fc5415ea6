"""Messages without room in memory are written to a store as a segment, and sent as references to it.

One segment is written while the one before is published, never more: so order holds, and a producer has at most two
segments on their way. A segment is entered at its store, then written and flushed, then published.
"""

import asyncio
import contextlib
import itertools
import math
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Protocol

from headgate._util.tasks import stop
from headgate.core.full import BLOCK, WhenFull
from headgate.core.names import decode_name
from headgate.core.outbox import Outbox
from headgate.core.segment import MOST_MESSAGES, pack
from headgate.errors import HeadgateError, MessageTooLarge
from headgate.redis.keys import Address
from headgate.spool.stores import SEGMENT, Spool, Spools, folder
from headgate.spool.sweep import Sweeper

REFERENCE_BYTES: Final = 64
"""More than a reference takes."""
LOOK_EVERY: Final = 1.0
"""Seconds between looks whether anybody still waits for room at a store, where nothing is heard of it."""
PAUSE: Final = (0.2, 5.0)
"""Seconds until a store is tried again that failed: at first, and at the most."""


class Quota(Protocol):
    """A session's room at a store: credit, as at any destination."""

    @property
    def spool(self) -> Spool:
        """The store."""
        ...

    @property
    def reason(self) -> str:
        """Why there is no room."""
        ...

    def ask(self, size: int, stir: Callable[[], None]) -> "asyncio.Future[None]":
        """Return a future that is done once there is room for ``size`` bytes; cancel it to give up.

        Until it is done, ``stir`` is called whenever the store may have answered.
        """
        ...

    def refused(self, asked: "asyncio.Future[None]") -> bool:
        """Return whether the store had no room when it was asked."""
        ...

    def put_back(self, size: int) -> None:
        """Give back room that is not needed after all."""

    async def hold(self, segment: str, size: int) -> None:
        """Spend room that was asked for on a segment."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A segment that is written.

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


class Writer:
    """Writes the segments of one account.

    Args:
        spools: the stores.
        sweeper: what deletes segments.
        quota: returns the session's room at a store.
        address: the destination.
        outbox: the account's line.
        wake: tells the account that something is ready for it.
        steps: called when the account's line may have changed.
    """

    def __init__(
        self,
        spools: Spools,
        sweeper: Sweeper,
        quota: Callable[[Spool], Awaitable[Quota]],
        address: Address,
        outbox: Outbox,
        wake: Callable[[], None],
        steps: set[Callable[[], None]],
    ) -> None:
        self.store = ""
        """Name of the store to use; empty for none."""
        self.prepared: Prepared | None = None
        """Messages that are written and wait to be published."""
        self.waits = False
        """Whether the store has no room, or does not take anything: then memory is waited for as well."""
        self.crowded = False
        """Whether memory, or a pool of it, has no room for references: the destination's state says which."""
        self.when_full: WhenFull = BLOCK
        """The store's account of messages that find no room in it either."""
        self._spools = spools
        self._sweeper = sweeper
        self._quota_at = quota
        self._address = address
        self._outbox = outbox
        self._wake = wake
        self._steps = steps
        self._quota: Quota | None = None
        self._trouble = ""
        self._resume_at = 0.0
        self._pause = PAUSE[0]
        self._loop = asyncio.get_running_loop()
        self._stirred = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._most = MOST_MESSAGES
        self._most_bytes = math.inf
        self._names = (f"{secrets.token_hex(5)}-{n:x}" for n in itertools.count(1))

    def adopt(self, store: str, most_bytes: float) -> None:
        """Use another store from now on, none where that is empty, and write at most so many bytes in one segment."""
        self.store = decode_name(store)
        self._most_bytes = most_bytes

    @property
    def ready(self) -> bool:
        """Whether there is a store that may be tried now."""
        return bool(self.store) and self._loop.time() >= self._resume_at

    @property
    def resumes_at(self) -> float:
        """When a store that failed may be tried again, on the loop's clock; infinite where there is none."""
        return self._resume_at if self.store else math.inf

    @property
    def ahead(self) -> int:
        """Bytes that may wait in line for nothing but the storage: two segments."""
        return 2 * (self._quota.spool.settings.segment if self._quota else SEGMENT)

    @property
    def reason(self) -> str:
        """Why nothing goes to the store, empty where that is not known."""
        if self._trouble:
            return self._trouble
        if self.waits and self._quota:
            return f"spool store {self.store!r} has no room either: {self._quota.reason}"
        return ""

    def seek(self) -> None:
        """Begin to write those that wait, unless that is under way."""
        if (self._task is None or self._task.done()) and not self._outbox.spooling and self.prepared is None:
            self._task = asyncio.create_task(self._write(), name=f"headgate spool {self._address.name}")
            self._task.add_done_callback(self._done)

    def take(self) -> Prepared:
        """Take over what is prepared, in order to publish it."""
        prepared, self.prepared = self.prepared, None
        if prepared is None:
            raise AssertionError("nothing is prepared")
        self._sweeper.watch(self._address)
        self._most = min(2 * self._most, MOST_MESSAGES)
        return prepared

    def refuse(self, segment: str, room: int) -> None:
        """Delete the segment of a batch that was not taken, for memory has only ``room`` bytes for references."""
        self._most = max(1, room // REFERENCE_BYTES)
        if room < REFERENCE_BYTES:
            self.postpone("memory has no room for references to spooled messages")
            self.crowded = True
        self.drop(segment)

    def drop(self, segment: str) -> None:
        """Delete the segment of a batch of which nothing was stored, nor will be."""
        name = segment.partition(" ")[0].partition("/")[2]
        for spool in self._spools.known():
            if spool.encoded == segment.partition("/")[0]:
                self._sweeper.discard(spool, self._address, name)

    def discard(self, prepared: Prepared) -> None:
        """Delete a segment that no reference leads to, nor will."""
        self._sweeper.discard(prepared.spool, self._address, prepared.name)

    def postpone(self, why: str) -> None:
        """Let nothing go to the store for a while, and wait for memory."""
        self._resume_at = self._loop.time() + self._pause
        self._pause = min(2 * self._pause, PAUSE[1])
        self._trouble, self.waits, self.crowded = why, True, False

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
            self.postpone(str(error) if isinstance(error, HeadgateError) else repr(error))
            self._abandon()
        self._wake()

    async def _write(self) -> None:
        spool = await self._spools.get(self.store)
        self.when_full = spool.settings.when_full
        self._quota = quota = await self._quota_at(spool)
        settings = spool.settings
        most_bytes = int(min(settings.segment, settings.limit or settings.segment, self._most_bytes))
        size = await self._fitting(quota, most_bytes)
        if not size:
            return
        self.waits, self._trouble, self.crowded = False, "", False
        items = self._outbox.spool(self._most, size)
        payloads = [item.payload for item in items]
        name = next(self._names)
        data, references = pack(payloads, spool.encoded, name)
        if len(data) < size:
            quota.put_back(size)  # some of them were paid from memory, or gave up
            size = len(data)
            if not items or not await self._room(quota, size):
                self._outbox.unspool()
                return
        prepared = Prepared(spool, name, references, size)
        try:
            await quota.hold(f"{folder(self._address)}/{name}", size)
            await spool.storage.write(spool.path(self._address, name), data)
        except BaseException:
            self.discard(prepared)
            raise
        self._pause = PAUSE[0]
        if self._outbox.spooling is items:
            self.prepared = prepared
        else:  # the account was lost meanwhile, and they are in line again
            self.discard(prepared)

    def _first_bytes(self, most_bytes: int) -> int:
        """Return the bytes of those that would go in one segment now."""
        size = count = 0
        ttl_ms = None
        for item in self._outbox.waiting:
            if item.done.done():
                continue
            if count and (size + item.size > most_bytes or item.ttl_ms != ttl_ms or count >= self._most):
                break
            size, count, ttl_ms = size + item.size, count + 1, item.ttl_ms
        return size

    async def _fitting(self, quota: Quota, most_bytes: int) -> int:
        """Take room at the store for as many of those that wait as it has room for, if need be for the first alone.

        Returns the bytes; 0 where nobody waits any more.
        """
        while size := self._first_bytes(most_bytes):
            last = size == self._first_bytes(1)
            if await self._room(quota, size, patient=last):
                return size
            if last:
                break
            most_bytes = size // 4
        return 0

    async def _room(self, quota: Quota, size: int, *, patient: bool = True) -> bool:
        """Wait for room at the store, for as long as anybody waits for it; not ``patient``: until it has none."""
        asked = quota.ask(size, self._stirred.set)
        asked.add_done_callback(lambda _: self._stirred.set())
        self._steps.add(self._stirred.set)
        try:
            while not asked.done():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_EVERY):
                        await self._stirred.wait()
                self._stirred.clear()
                if quota.refused(asked):
                    if not patient:
                        return False
                    if not self.waits:
                        self.waits = True
                        self._wake()
                        self._sweeper.hurry()
                if not asked.done() and self._outbox.head() is None and not self._outbox.spooling:
                    asked.cancel()
                    self.waits = False
                    return False
            asked.result()
        except MessageTooLarge as error:
            head = self._outbox.head()
            if head is not None and head.size == size:
                head.done.set_exception(MessageTooLarge(self._address.name, head.size, error.limit))
                head.done.exception()
                return False
            raise
        finally:
            self._steps.discard(self._stirred.set)
            if not asked.done():
                asked.cancel()
        return True
