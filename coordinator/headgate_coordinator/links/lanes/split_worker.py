"""A split worker reads at one slice of a link's source, with a lane for each slice of the target."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace

from headgate._util.tasks import stop
from headgate.core.links.calls import Committed, Fetch, Opened, Read
from headgate.core.links.trouble import Trouble
from headgate.core.names import slice_name
from headgate.errors import AccessDenied, CoordinatorUnavailable
from headgate.redis.backend import AGAIN
from headgate.redis.keys import Address, link_at
from headgate.redis.stores.links import LinkStore
from headgate_coordinator.links.forwarder import BATCH, LONGEST_LOOK, LOOK_AGAIN
from headgate_coordinator.links.lanes.lane_store import LaneStore
from headgate_coordinator.links.lanes.splitter import Splitter
from headgate_coordinator.links.lanes.target_spread import TargetSpread
from headgate_coordinator.links.rules import Forwarding
from headgate_coordinator.links.worker import BARRIER_MS, LinkSide, LinkWorker

Make = Callable[[LinkSide, LinkSide, Forwarding], LinkWorker]


class SplitWorker:
    """A split worker works on one slice of a link's source while its target is spread in one way.

    Args:
        link: its id.
        source: where it reads.
        target: the whole of where it writes.
        parts: all slices that the target ever had.
        spread: how the target is spread.
        how: window, hops, replicas, filter.
        fence: number of the lease.
        ttl: seconds for which the target keeps its credit without hearing of it.
        part: the slice of its source.
        make: returns the worker of a lane between two ends.
        lacks: called when a slice has no room for what comes next.

    Attributes:
        missing: ``source`` while that is not there.
    """

    def __init__(
        self, link: str, source: LinkSide, target: LinkSide, parts: Sequence[Address], spread: TargetSpread,
        how: Forwarding, *, fence: int, ttl: float, part: int, make: Make,
        lacks: Callable[[Address], Awaitable[None]],
    ) -> None:  # fmt: skip
        assert spread.now is not None  # noqa: S101 -- else there is one lane, which is the link's worker
        self.link, self.source, self.target, self.there = link, source, target, link_at(link, part)
        self.missing: set[str] = set()
        self.splitter = Splitter(spread.now, source.address.key, how)
        self._parts, self._spread, self._how = parts, spread, how
        self._fence, self._ttl_ms = fence, int(ttl * 1000)
        self._make, self._lacks = make, lacks
        self._lanes: dict[int, LinkWorker] = {}
        self._tasks: dict[int, asyncio.Task[int]] = {}
        self._trouble: Trouble | None = None
        self._event = asyncio.Event()
        self._is_hinted = False
        self._carried = (0, 0)
        self._channels = source.address.channels(link)

    def __iter__(self) -> Iterator[LinkWorker]:
        return iter(tuple(self._lanes.values()))

    @property
    def trouble(self) -> Trouble | None:
        """Why nothing moves at the source, or at one of the slices of the target; None while all move."""
        found = (lane.trouble for lane in self)
        return self._trouble or next((trouble for trouble in found if trouble is not None), None)

    @property
    def carried(self) -> tuple[int, int]:
        """Messages and bytes that the target took."""
        messages, size = self._carried
        every = [lane.carried for lane in self]
        return messages + sum(one for one, _ in every), size + sum(one for _, one in every)

    async def leave(self) -> None:
        """Give the credit at all slices of the target back."""
        for lane in self:
            await lane.leave()

    async def run(self) -> int:
        """Work until a later lease is in force, and return its number.

        Raises:
            HeadgateError: a call failed otherwise than for want of an answer; what had begun is done anew.
        """
        hints = self.source.wake_ups
        if hints is not None:
            await hints.subscribe(self._channels, self._hear)
        try:
            while True:
                if later := await self._answered(self._begin) or await self._work():
                    return later
                await self._end_lanes()
        finally:
            await self._end_lanes(keep=True)
            if hints is not None:
                await hints.unsubscribe(self._channels, self._hear)

    async def _answered(self, step: Callable[[], Awaitable[int | None]]) -> int:
        """Repeat a step until it comes to something; returns the number of a later lease, or 0."""
        while True:
            try:
                if (later := await step()) is not None:
                    self._trouble = None
                    return later
            except (CoordinatorUnavailable, AccessDenied) as error:
                self._trouble = Trouble.of("error", error)
            self._event.clear()
            await self._rest(LOOK_AGAIN)

    # How far it got.

    async def _begin(self) -> int | None:
        """Open the source, and ask all slices of the target what they have; None where that is to be tried again."""
        source, how = self.source, self._how
        window = f"{how.messages}/{how.window}"
        opened = await source.store.open(source.address, self.link, fence=self._fence, window=window, copies=how.copies)
        self.missing = {"source"} if opened.code == "UNKNOWN" else set()
        if opened.code != "OK":
            full = opened.code == "FULL"
            self._trouble = Trouble.of("subscriptions") if full else Trouble.of("source", opened.code)
            return opened.fence or None
        found = await asyncio.gather(*(self._ask(part, opened) for part in self._parts))
        if later := max(one.fence for one in found):
            return later
        if refused := next((one.code for one in found if one.code in ("KIND", "STALE", "FULL")), None):
            self._trouble = Trouble.of("target", refused)
            return None
        self.splitter.begin(opened.born, opened.released, found)
        for number in self.splitter.lanes:
            self._begin_lane(number)
        return 0

    async def _ask(self, part: Address, opened: Opened) -> Committed:
        """Return what a slice has of this link, which nobody with an earlier lease adds to from now on."""
        how, store, number = self._how, LinkStore(self.target.store.server), self.splitter.spreading[0]
        answer = await store.commit(
            part,
            self.there,
            fence=self._fence,
            born=opened.born,
            prev=0,
            ttl_ms=self._ttl_ms,
            spread=(number, 0),
        )
        if answer.beyond and how.durability:
            _, held = await store.barrier(
                part, self.there, fence=self._fence, born=opened.born, prev=0, ttl_ms=self._ttl_ms,
                durability=how.durability, timeout_ms=BARRIER_MS, spread=(number, 0),
            )  # fmt: skip
            if not how.durability.is_met(held):
                raise CoordinatorUnavailable(
                    f"{part.shown!r} has messages, but not yet as safely as is asked ({how.durability.text})",
                    answered=True,
                )
        return answer

    def _begin_lane(self, number: int) -> None:
        how, lanes, target = self._how, len(self.splitter.lanes), self.target
        at = Address.of(target.address.namespace, slice_name(target.address.name, number))
        store = LaneStore(target.store, at, number, self.splitter, self._spread, self._event.set, self._lacks)
        share = replace(how, window=max(1, how.window // lanes), messages=max(1, how.messages // lanes))
        source = LinkSide(store, self.source.address, tells=True)
        there = LinkSide(store, at, target.wake_ups, rates=target.rates)
        lane = self._make(source, there, share)
        self._lanes[number] = lane
        self._tasks[number] = asyncio.create_task(lane.run(), name=f"headgate {self.link} to {at.name}")
        self._tasks[number].add_done_callback(lambda _: self._event.set())

    async def _end_lanes(self, *, keep: bool = False) -> None:
        """Stop the lanes; they give their credit back later where they are kept."""
        await asyncio.gather(*(stop(task) for task in self._tasks.values()))
        self._tasks.clear()
        if not keep:
            with contextlib.suppress(CoordinatorUnavailable):
                await self.leave()
            self._carried = self.carried
            self._lanes.clear()

    # The source.

    async def _work(self) -> int:
        """Read and let go until a later lease is in force; returns 0 where the source is to be opened anew."""
        pause, look_at = LOOK_AGAIN, 0.0
        loop, splitter, hints = asyncio.get_running_loop(), self.splitter, self.source.wake_ups
        while True:
            self._event.clear()
            for task in self._tasks.values():
                if task.done():
                    return task.result()
            if self._is_hinted:
                self._is_hinted, look_at, pause = False, 0.0, LOOK_AGAIN
            lanes = ((number, lane.forwarder) for number, lane in self._lanes.items())
            messages, size = splitter.room((number, one.held, one.held_m) for number, one in lanes)
            reads = messages > 0 and loop.time() >= look_at
            if not reads and splitter.done <= splitter.released:
                await self._rest(look_at - loop.time() if messages > 0 else LOOK_AGAIN)
                continue
            read = await self._read(messages if reads else 0, size)
            if read is None:
                continue
            if read.code in ("CLOSED", "BORN", "UNKNOWN", "FENCED"):
                return read.fence
            for number in splitter.add(read.entries):
                self._lanes[number].hear_source()
            if reads and read.entries:
                pause = LOOK_AGAIN
            elif reads and read.code == "OK":
                look_at = loop.time() + min(pause if read.again_ms is None else read.again_ms / 1000, LONGEST_LOOK)
                is_sure = hints is not None and hints.sure(self._channels)
                pause = min(2 * pause, LONGEST_LOOK) if is_sure else LOOK_AGAIN

    async def _read(self, messages: int, size: int) -> Read | None:
        """Let go of what is safe, and read further; returns None without an answer, after a while."""
        splitter, source = self.splitter, self.source
        try:
            call = Fetch(splitter.born, splitter.done, splitter.after, min(messages, BATCH), max(size, 1))
            read = await source.read(self.link, self._fence, call)
        except (CoordinatorUnavailable, AccessDenied) as error:
            self._trouble = Trouble.of("error", error)
            self._event.clear()
            await self._rest(LOOK_AGAIN)
            return None
        self._trouble = None
        splitter.released = max(splitter.released, read.released)
        return read

    async def _rest(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, 0.0)):
                await self._event.wait()

    def _hear(self, words: list[str]) -> None:
        if words[0] in ("ready", "settings", "removed", AGAIN):
            self._is_hinted = True
            self._event.set()
