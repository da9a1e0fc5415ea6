"""A node works on one link for as long as it has the lease."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from headgate._util.reconnect import until_answered
from headgate._util.tasks import stop
from headgate.client import Client
from headgate.core.links.link import STORES, Link
from headgate.core.links.trouble import Trouble
from headgate.core.names import encode_name, slice_name
from headgate.core.selector.parser import Selector
from headgate.credit.spool_quota import SpoolQuota
from headgate.errors import HeadgateError, PolicyError
from headgate.namespace.defaults import durability_of
from headgate.redis.keys import Address, forwarder_id
from headgate.redis.stores.links import LinkStore
from headgate.session.session import Session
from headgate.spool.stores import Spool
from headgate_coordinator.links.job import Job, LinkTotals
from headgate_coordinator.links.lanes.copies import Copies
from headgate_coordinator.links.lanes.split_worker import SplitWorker
from headgate_coordinator.links.lanes.target_spread import TargetSpread
from headgate_coordinator.links.rates import LinkRate, quantum
from headgate_coordinator.links.rules import MAX_HOPS, Forwarding, judge_by
from headgate_coordinator.links.sites import Sites
from headgate_coordinator.links.slice_workers import AnyWorker, SliceWorkers
from headgate_coordinator.links.spooled_reads import SpooledReads
from headgate_coordinator.links.spooled_writes import Segment, SpooledWrites
from headgate_coordinator.links.worker import LinkSide, LinkWorker

STOPPED: Final = Trouble.of("target", "STOPPED")


class LinkJob(Job[Link]):
    """A link job works on one link between two destinations.

    Its ends are made as the policy says, as any producer does.

    Args:
        client: connected.
        sites: clients of other sites.
        link: what the policy says.
        fence: number of the lease.
        ttl: seconds for which the target keeps its credit without hearing of it.
        on_wait: called when it begins or ceases to wait in line at the target.
        beginning: by site, of those that begin there: a node may have thousands, and answers to all of them at once
            would be one turn of its loop.
    """

    def __init__(
        self, client: Client, sites: Sites, link: Link, fence: int, *, ttl: float, on_wait: Callable[[], None],
        beginning: Mapping[str, asyncio.Semaphore],
    ) -> None:  # fmt: skip
        super().__init__(link, fence)
        self._client, self._sites, self._ttl, self._on_wait = client, sites, ttl, on_wait
        self._beginning = beginning
        self._workers: SliceWorkers | None = None
        self._spread: TargetSpread | None = None
        self._before = LinkTotals()
        self._there = client
        self._kinds: tuple[str, ...] = STORES
        self._mending: asyncio.Task[None] | None = None
        self._sent: dict[int, list[Segment]] = {}

    @property
    def trouble(self) -> Trouble | None:
        """Why nothing moves, None while it does."""
        return self._trouble if self._trouble or self._workers is None else self._workers.trouble

    @property
    def carried(self) -> LinkTotals:
        """Messages and bytes forwarded so far; nothing until both ends are there."""
        return self._workers.carried.after(self._before) if self._workers else self._before

    @property
    def waits(self) -> str:
        """Name of its wait in line at the target, of one at this site: who looks for deadlocks sees no other."""
        workers = self._workers if self.link.site is None and not self._trouble else None
        return workers.waits if workers else ""

    def look_after(self) -> None:
        """Begin to make ends that are gone again, and to fetch what a target without room lacks from its pools."""
        if self._workers is None:
            return
        is_missing = any(worker.missing for worker in self._workers.workers.values())
        is_stopped = self._trouble is None and self.trouble == STOPPED
        if (is_missing or is_stopped) and (self._mending is None or self._mending.done()):
            self._mending = asyncio.create_task(self._mend(), name=f"headgate ends of {self.link.link}")
        for lane in self._workers if self.trouble is not None else ():
            if lane.trouble is not None:
                self._refill(lane.target.address)

    def _refill(self, target: Address) -> None:
        parts = self._there.parts
        if names := parts.registry.pools(target):
            parts.pools.refill(target, names, lambda _name, _limit: None)

    async def stop(self, *, lost: bool = False) -> None:
        """Stop at once, as any job; its credit goes back."""
        await super().stop(lost=lost)
        await stop(self._mending)

    async def _work(self) -> int:
        link, here = self.link, self._client
        there = await self._sites.client(link.site) if link.site else here
        async with self._beginning[""]:
            source, kind = await _end(here, link.source)
            dead = (await _end(here, link.dead_letters))[0] if link.dead_letters else None
        self._kinds = link.kinds_there(kind)
        async with self._beginning[link.site.name if link.site else ""]:
            target, _ = await _end(there, link.target, self._kinds)
            await there.parts.registry.refresh(target.address)
        durability = link.durability | durability_of(there.parts.registry.fields(target.address))
        there.store.server.promise(durability)
        how = Forwarding(
            link.place(here.namespace, encode_name(link.source)),
            link.place_there(there.namespace, encode_name(link.target)),
            max_hops=link.max_hops or MAX_HOPS,
            replicas=durability.replicas,
            fsync=durability.fsync,
            copies=link.copies,
            has_dead_letters=dead is not None,
            zone=link.zone,
            pace=quantum(link),
            judge=judge_by(Selector.parse(link.selector)) if link.selector else None,
        )
        async with contextlib.AsyncExitStack() as stack:
            rate = None
            if how.pace:
                session = await stack.enter_async_context(here.session(f"rate of {link.name}"))
                rate = await LinkRate.open(session, link)
            room = _room(stack, there, link.name)
            self._there, self._spread = there, TargetSpread(there, target.address)
            ends = Ends(here, there, kind, source, target, dead, how, self._spread, rate, room)
            try:
                while True:
                    await self._spread.settle(self._waits_for_spread)
                    await self._make_slices(ends)
                    self._workers = SliceWorkers(source.address, here.parts.registry, partial(self._begin, ends))
                    self._trouble = None
                    if later := await self._spread.run(self._workers.run):
                        return later
                    await until_answered(lambda _: None)(self._leave)  # nobody may have credit until it has changed
                    self._before, self._workers = self.carried, None
                    await there.parts.registry.refresh(target.address)
            finally:
                await stop(self._mending)

    def _waits_for_spread(self) -> None:
        self._trouble = Trouble.of("spreads")

    async def _make_slices(self, ends: "Ends") -> None:
        """Have all slices at hand to which values lead."""
        now = ends.spread.now
        names = [slice_name(self.link.target, number) for number in range(1, now.slices)] if now else []
        await asyncio.gather(*(_end(ends.there, name, self._kinds) for name in names))

    async def _begin(self, ends: "Ends", part: Address, number: int) -> AnyWorker:
        """Return the worker at a slice of the source."""
        end = (await _end(ends.here, part.name, (ends.kind,)))[0] if number else ends.source
        link = forwarder_id(ends.here.namespace, self.link.link)
        if ends.spread.now is None:
            worker = self._lane(ends, link, end, ends.target, ends.how, number)
            worker.copying = self._copies(ends, worker, lambda: worker.forwarder.released, in_order=True)
            worker.spool = SpooledWrites(
                ends.there.parts, ends.target.address, worker.there, self.fence, ends.room, worker.hear_store,
                self._sent.setdefault(number, []), elsewhere=self.link.site is not None,
            )  # fmt: skip
            return worker

        def lane(source: LinkSide, target: LinkSide, how: Forwarding) -> LinkWorker:
            worker = self._lane(ends, link, source, target, how, number)
            worker.copying = self._copies(ends, worker, lambda: split.splitter.done, in_order=False)
            return worker

        async def lacks(at: Address) -> None:
            if not ends.there.parts.registry.pools(at):
                await ends.there.parts.registry.refresh(at)
            self._refill(at)

        slices = ends.there.parts.registry.slices(ends.target.address)
        split = SplitWorker(
            link, end, ends.target, slices, ends.spread, ends.how, fence=self.fence, ttl=self._ttl, part=number,
            make=lane, lacks=lacks,
        )  # fmt: skip
        return split

    def _lane(
        self, ends: "Ends", link: str, source: LinkSide, target: LinkSide, how: Forwarding, part: int
    ) -> LinkWorker:
        return LinkWorker(
            link, source, target, how, fence=self.fence, dead=ends.dead, ttl=self._ttl,
            pace=ends.rate.allow if ends.rate else None, on_wait=self._on_wait, tracing=ends.here.parts.tracing,
            part=part,
        )  # fmt: skip

    def _copies(self, ends: "Ends", worker: LinkWorker, done: Callable[[], int], *, in_order: bool) -> Copies | None:
        if ends.dead is None:
            return None
        return Copies(
            ends.here, ends.how.source, worker.source.address.key, ends.dead.address, worker.there, fence=self.fence,
            ttl_ms=worker.ttl_ms, done=done, in_order=in_order,
        )  # fmt: skip

    async def _leave(self) -> None:
        for worker in self._workers or ():
            await worker.leave()

    async def _mend(self) -> None:
        link, here, workers = self.link, self._client, self._workers
        every = workers.workers.values() if workers is not None else ()
        with contextlib.suppress(HeadgateError):  # the worker's trouble tells it; it is tried again
            if self._spread is not None and self.trouble == STOPPED:
                await self._spread.is_in_force()
            for worker in every:
                if "source" in worker.missing:
                    await _end(here, worker.source.address.name, recover=True)
                for lane in worker:
                    if "target" in lane.missing:
                        await _end(self._there, lane.target.address.name, self._kinds, recover=True)
            if link.dead_letters and any("dead letters" in lane.missing for worker in every for lane in worker):
                await _end(here, link.dead_letters, recover=True)


@dataclass(frozen=True, slots=True)
class Ends:
    """Ends are what the workers of a link are made of.

    Attributes:
        here: the client of the source's site.
        there: of the target's.
        kind: of the source.
        source: its first slice.
        target: the whole of the target.
        dead: where copies go of what can never be delivered.
        how: window, hops, replicas, filter.
        spread: how the target is spread over its slices.
        rate: that the link shares with others of its table.
        room: returns the way to room at a store.
    """

    here: Client
    there: Client
    kind: str
    source: LinkSide
    target: LinkSide
    dead: LinkSide | None
    how: Forwarding
    spread: TargetSpread
    rate: LinkRate | None
    room: Callable[[Spool], Awaitable[SpoolQuota]]


def _room(stack: contextlib.AsyncExitStack, client: Client, name: str) -> Callable[[Spool], Awaitable[SpoolQuota]]:
    """Return the way of a link to room at stores: a session of its own, from when it first spools."""
    session: Session | None = None

    async def room_at(spool: Spool) -> SpoolQuota:
        nonlocal session
        if session is None:
            session = await stack.enter_async_context(client.session(f"segments of {name}"))
        return await session.room_at(spool)

    return room_at


async def _end(
    client: Client, name: str, kinds: tuple[str, ...] = STORES, *, recover: bool = False
) -> tuple[LinkSide, str]:
    """Return an end of a link, made if it is not there, and its kind: one of ``kinds``, else the first."""
    parts = client.parts
    address = Address.of(client.namespace, name)
    try:
        kind = await parts.registry.ensure(address, kinds, recover=recover)
    except PolicyError as error:
        raise PolicyError(f"{name!r} cannot be an end of a link: {error}") from None
    return LinkSide(
        LinkStore(parts.store.server), address, parts.wake_ups, SpooledReads(parts.registry.spooling).whole, parts.rates
    ), kind
