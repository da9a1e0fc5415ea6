"""One worker of a link makes the calls that its :class:`~headgate_coordinator.links.forwarder.Forwarder` asks for."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.core.limits.fairness import keys_over_a_link
from headgate.core.links.calls import (
    Call,
    Commit,
    Committed,
    Copy,
    Entry,
    Fetch,
    NoStore,
    Open,
    Opened,
    Put,
    RateTaken,
    Read,
    Secure,
    TakeRate,
)
from headgate.core.links.trouble import Trouble
from headgate.errors import AccessDenied, CoordinatorUnavailable, SpoolUnavailable
from headgate.namespace.shared_rates import SharedRates
from headgate.redis.backend import AGAIN, WakeUps
from headgate.redis.keys import Address, link_at
from headgate.redis.replies import Account
from headgate.redis.store import Store
from headgate.redis.stores.links import LinkStore
from headgate.redis.stores.rates import Sender
from headgate.spans import Tracing
from headgate_coordinator.links.forwarder import Forwarder
from headgate_coordinator.links.rules import Forwarding, Phase
from headgate_coordinator.links.spooled_writes import NoRoomError, SpooledWrites

Whole = Callable[[Address, Sequence[Entry], int], Awaitable[tuple[Entry, ...]]]
IDLE: Final = 2.0
"""Seconds without anything to forward after which credit goes back."""
BARRIER_MS: Final = 1000
NOT_SAFE: Final = -1
"""In place of a number of replicas: they are too few, or the disk does not have it."""
SOON: Final = 0.01


@dataclass(frozen=True, slots=True)
class LinkSide:
    """A link side is one end of a link.

    Attributes:
        store: of the server where it lies.
        address: the destination.
        wake_ups: hints from that server; where they do not come for certain, the worker looks by itself, once a second.
        whole: returns what was read there with the payloads that are in spool stores, up to that many bytes; None where
            there are no such stores.
        rates: lends it a rate that slices share.
        tells: whether whoever puts messages there tells its worker at once, without wake-ups.
    """

    store: LinkStore
    address: Address
    wake_ups: WakeUps | None = None
    whole: Whole | None = None
    rates: SharedRates | None = None
    tells: bool = False

    async def read(self, link: str, fence: int, call: Fetch) -> Read:
        """Return what is there for the link, and have a slice lent what it lacks of the rate of deliveries."""
        read = await self.store.read(
            self.address, link, fence=fence, born=call.born, mark=call.mark, after=call.after, messages=call.messages,
            size=call.size,
        )  # fmt: skip
        if read.lacks and not read.entries and self.rates is not None:
            need, want = read.lacks
            sender, most = Sender(link), self.rates.at_once(self.address, "delivery")
            lent = await self.rates.lend(self.address, "delivery", need, want, sender, max(need, most))
            return replace(read, again_ms=max(1, lent.again_ms))
        if self.whole is not None and read.entries:
            return replace(read, entries=await self.whole(self.address, read.entries, call.size))
        return read


async def _with_rate(end: LinkSide, sizes: Sequence[int], answer: Committed, sender: Sender) -> Committed:
    """Fetch the rate for what is left of a call, where slices share it; returns the answer with when that may go."""
    again_ms = await end.rates.fetch(end.address, sizes, sender) if end.rates is not None else None
    return answer if again_ms is None else replace(answer, again_ms=max(1, again_ms))


class LinkWorker:
    """Works on one link while the lease on it has the number ``fence``.

    Args:
        link: its id, see :func:`headgate.redis.keys.link_id`.
        source: where it reads.
        target: where it writes.
        how: window, hops, replicas, filter.
        fence: number of the lease.
        dead: where copies go of what can never be delivered.
        ttl: seconds for which the target keeps its credit without hearing of it.
        weight: share among the producers of the target.
        pace: returns once the rate of the link allows that many messages and bytes; of a link that has one.
        on_wait: called when the link begins or ceases to wait in line at the target.
        tracing: of the node; None where nothing is traced.
        part: the slice of its source that this worker reads; others read the others.

    Attributes:
        there: its id at the target, where each slice has a mark of its own.
        spool: writes what finds no room in the memory of a target that spools; None where no store is to be used.
        copying: brings a copy to the dead letters, if several slices may have it; else its answer is None.
    """

    def __init__(
        self,
        link: str,
        source: LinkSide,
        target: LinkSide,
        how: Forwarding,
        *,
        fence: int,
        dead: LinkSide | None = None,
        ttl: float = 10.0,
        weight: int = 1,
        pace: Callable[[int, int], Awaitable[None]] | None = None,
        on_wait: Callable[[], None] | None = None,
        tracing: Tracing | None = None,
        part: int = 0,
    ) -> None:
        self._pace, self._on_wait, self._waits = pace, on_wait, ""
        self._tracing = tracing
        self.link, self.source, self.target, self.dead = link, source, target, dead
        self.there = link_at(link, part)
        self.fence, self.ttl_ms, self.weight = fence, int(ttl * 1000), weight
        self.forwarder = Forwarder(how)
        self._source_channels = source.address.channels(link)
        self._window = f"{how.messages}/{how.window}"
        self._event = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._busy_at = 0.0
        self._fair_by: str | None = None
        """By what keys take turns at the target, as its settings say; None while that is to be read."""
        self._recalled = False
        self._failure: BaseException | None = None
        """The error of a call that is not to be repeated: the work begins anew."""
        self.spool: SpooledWrites | None = None
        self.copying: Callable[[Copy], Awaitable[Committed | None]] | None = None

    def __iter__(self) -> Iterator["LinkWorker"]:
        return iter((self,))

    @property
    def trouble(self) -> Trouble | None:
        """Why nothing moves, None while it does."""
        return self.forwarder.trouble

    @property
    def missing(self) -> set[str]:
        """Ends that are not there."""
        return self.forwarder.missing

    @property
    def carried(self) -> tuple[int, int]:
        """Messages and bytes that the target took."""
        return self.forwarder.committed, self.forwarder.committed_bytes

    async def perform(self, call: Call) -> tuple[Opened | Read | Committed | NoStore | RateTaken, int]:
        """Make one call; returns its answer, and how many replicas have what the target has.

        Raises:
            CoordinatorUnavailable: no answer; it may have been done, and may be repeated.
            SpoolUnavailable: the same of a spool store.
        """
        source, target, fence = self.source, self.target, self.fence
        match call:
            case Open():
                copies, window = self.forwarder.how.copies, self._window
                opened = source.store.open(source.address, self.link, fence=fence, window=window, copies=copies)
                return await opened, 0
            case Fetch():
                return await source.read(self.link, fence, call), 0
            case Commit():
                return await self._commit(call), 0
            case Secure(born=born):
                durability = self.forwarder.how.durability
                answer, held = await target.store.barrier(
                    target.address, self.there, fence=fence, born=born, prev=0, ttl_ms=self.ttl_ms,
                    durability=durability, timeout_ms=BARRIER_MS, weight=self.weight,
                )  # fmt: skip
                return answer, held.replicas if durability.is_met(held) else NOT_SAFE
            case Copy():
                return await self._copy(call), 0
            case TakeRate(messages, size):
                if self._pace is not None:
                    await self._pace(messages, size)
                return RateTaken(), 0

    async def _commit(self, call: Commit) -> Committed | NoStore:
        target, spool = self.target, self.spool
        began = time.time_ns()
        if self._fair_by is None:
            self._fair_by = await target.store.fair_by(target.address)
            if spool is not None:
                await spool.refresh()
        entries, need, written = call.entries, call.need, None
        if call.spools and spool is not None:
            try:
                written = await spool.write(entries)
            except NoRoomError as error:
                return NoStore(str(error))
            entries = written.entries
            behind = (entry for entry in call.entries[len(entries) :] if isinstance(entry, Put))
            need = next((len(entry.body) for entry in behind), need)
        answer = await target.store.commit(
            target.address, self.there, entries, fence=self.fence, born=call.born, prev=call.prev, ttl_ms=self.ttl_ms,
            lost=call.lost, need=need, want=call.want, weight=self.weight,
            segment=written.batch if written else "-",
            keys=keys_over_a_link(call.entries[: len(entries)], self._fair_by),
        )  # fmt: skip
        if answer.code == "RATE":
            left = [len(put.body) for put in call.entries if isinstance(put, Put) and put.seq > answer.mark]
            answer = await _with_rate(target, left, answer, Sender(self.there, self.weight))
        if self._tracing is not None:
            self._trace(call, answer.mark, began)
        if spool is not None and written is not None:
            spool.answered(written, answer.mark)
        if spool is not None and answer.mark:
            await spool.heard(answer.mark)
        return answer

    def _trace(self, call: Commit, mark: int, began: int) -> None:
        """Note the hop of each message that the target has now, in its trace."""
        for entry in call.entries:
            if self._tracing is None or not isinstance(entry, Put) or entry.seq > mark:
                continue
            if span := self._tracing.hop("forward", self.source.address.shown, entry.body, began):
                span.set("headgate.target", self.target.address.shown)
                span.end()

    async def _copy(self, call: Copy) -> Committed:
        """Put a copy among the dead letters: a second target of the same link, with a mark of its own."""
        if self.dead is None:
            return Committed("UNKNOWN")
        if self.copying is not None and (answer := await self.copying(call)) is not None:
            return answer
        entry, dead = call.entry, self.dead
        put = Put(entry.seq, entry.body, entry.ttl_ms, (*entry.path, self.forwarder.how.source))
        size = len(entry.body)
        answer = Committed("NOCREDIT")
        for entries, need in (((), size), ((put,), 0)):
            answer = await dead.store.commit(
                dead.address, self.there, entries, fence=self.fence, born=call.born, prev=0, ttl_ms=self.ttl_ms,
                need=need, weight=self.weight,
            )  # fmt: skip
            if answer.code != "OK" or answer.mark >= entry.seq:
                break
        sender = Sender(self.there, self.weight)
        return await _with_rate(dead, [size], answer, sender) if answer.code == "RATE" else answer

    async def leave(self) -> None:
        """Give the credit at the target back."""
        if self.spool is not None:
            self.spool.leave()
        account = Account(self.there, self.fence, 0, weight=0)
        await Store(self.target.store.server).acquire(self.target.address, account, ttl_ms=self.ttl_ms, leave=True)
        self.forwarder.left()

    async def run(self) -> int:
        """Work until a later lease is in force, and return its number. Calls under way are then given up.

        Raises:
            HeadgateError: a call failed otherwise than for want of an answer; what had begun is done anew.
        """
        await self._listen()
        try:
            while self.forwarder.fence is None:
                await self._turn()
                if self._failure is not None:
                    raise self._failure
            return self.forwarder.fence
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self.spool is not None:
                self.spool.leave()
            await self._listen(stop=True)

    def hear_source(self) -> None:
        """Take the hint that its source has something."""
        self.forwarder.woken(source=True)
        self._event.set()

    def hear_store(self) -> None:
        """Take the hint that a store of the target has room again."""
        self.forwarder.stores.woken()
        self._event.set()

    async def _turn(self) -> None:
        loop = asyncio.get_running_loop()
        self._event.clear()
        now, hints = loop.time(), self.source.wake_ups
        self.forwarder.hinted = self.source.tells or (hints is not None and hints.sure(self._source_channels))
        self.forwarder.stores.spools = self.spool is not None and self.spool.spools
        for call in self.forwarder.calls(now):
            task = asyncio.create_task(self._make(call), name=f"headgate {self.link} {type(call).__name__}")
            self._tasks.add(task)
            task.add_done_callback(self._ended)
        if self.forwarder.phase != Phase.RESERVED:
            self._busy_at = now
        elif not self._tasks and (self._recalled or now - self._busy_at >= IDLE):
            self._recalled = False
            with contextlib.suppress(CoordinatorUnavailable):
                await self.leave()
            self.forwarder.left()  # where it could not be given back, it ends with its lease
            return
        wake_at = self.forwarder.wake_at
        if self.forwarder.phase == Phase.RESERVED:
            wake_at = min(wake_at, self._busy_at + IDLE)
        until = None if self._tasks else max(wake_at - now, SOON)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until):
                await self._event.wait()

    async def _make(self, call: Call) -> None:
        loop = asyncio.get_running_loop()
        try:
            answer, replicas = await self.perform(call)
        except (CoordinatorUnavailable, AccessDenied, SpoolUnavailable) as error:
            self.forwarder.missed(call, loop.time())
            self.forwarder.trouble = Trouble.of("error", error)
        else:
            self.forwarder.hear(call, answer, loop.time(), replicas=replicas)
        if self._waits != self.forwarder.waits:
            self._waits = self.forwarder.waits
            if self._on_wait is not None:
                self._on_wait()

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = error
        self._event.set()

    async def _listen(self, *, stop: bool = False) -> None:
        for end, name, hear in (
            (self.source, self.link, self._hear_source), (self.target, self.there, self._hear_target)
        ):  # fmt: skip
            if end.wake_ups is None:
                continue
            if stop:
                await end.wake_ups.unsubscribe(end.address.channels(name), hear)
            else:
                await end.wake_ups.subscribe(end.address.channels(name), hear)

    def _hear_source(self, words: list[str]) -> None:
        if words[0] in ("ready", "settings", "removed", AGAIN):
            self.hear_source()

    def _hear_target(self, words: list[str]) -> None:
        self._recalled = self._recalled or words[0] == "recall"
        if words[0] in ("settings", AGAIN):
            self._fair_by = None
        if words[0] in ("references", AGAIN):
            self.hear_store()  # a slice was lent messages, or segments are gone
        if words[0] in ("credit", "settings", "recall", AGAIN):
            self.forwarder.woken(target=words[0] != "recall")
            self._event.set()
