"""A node works on one link for as long as it has the lease."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence

from headgate._util.tasks import stop
from headgate.client import Client
from headgate.core.links.link import STORES, Link
from headgate.core.links.trouble import Trouble
from headgate.core.names import encode_name
from headgate.core.selector.parser import Selector
from headgate.credit.spool_quota import SpoolQuota
from headgate.errors import HeadgateError, PolicyError
from headgate.namespace.defaults import durability_of
from headgate.redis.keys import Address, forwarder_id
from headgate.redis.stores.links import LinkStore
from headgate.session.session import Session
from headgate.spool.stores import Spool
from headgate_coordinator.links.job import Job, LinkTotals
from headgate_coordinator.links.rates import LinkRate, quantum
from headgate_coordinator.links.rules import MAX_HOPS, Forwarding, judge_by
from headgate_coordinator.links.sites import Sites
from headgate_coordinator.links.slice_workers import SliceWorkers
from headgate_coordinator.links.spooled_reads import SpooledReads
from headgate_coordinator.links.spooled_writes import Segment, SpooledWrites
from headgate_coordinator.links.worker import LinkSide, LinkWorker


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
        return self._workers.carried if self._workers else LinkTotals()

    @property
    def waits(self) -> str:
        """Name of its wait in line at the target, of one at this site: who looks for deadlocks sees no other."""
        workers = self._workers if self.link.site is None and not self._trouble else None
        return workers.waits if workers else ""

    def look_after(self) -> None:
        """Begin to make ends that are gone again, and to fetch what a target without room lacks from its pools."""
        workers = tuple(self._workers or ())
        missing = [worker for worker in workers if worker.forwarder.missing]
        if missing and (self._mending is None or self._mending.done()):
            self._mending = asyncio.create_task(self._mend(missing), name=f"headgate ends of {self.link.link}")
        if workers and self.trouble is not None:
            target, parts = workers[0].target.address, self._there.parts
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

            async def begin(part: Address, number: int) -> LinkWorker:
                end = (await _end(here, part.name, (kind,)))[0] if number else source
                worker = LinkWorker(
                    forwarder_id(here.namespace, link.link), end, target, how, fence=self.fence, dead=dead,
                    ttl=self._ttl, pace=rate.allow if rate else None, on_wait=self._on_wait,
                    tracing=here.parts.tracing, part=number,
                )  # fmt: skip
                worker.rates, worker.source_rates = there.parts.rates, here.parts.rates
                sent = self._sent.setdefault(number, [])
                worker.spool = SpooledWrites(
                    there.parts, target.address, worker.there, self.fence, room, worker.hear_store, sent,
                    elsewhere=link.site is not None,
                )  # fmt: skip
                return worker

            self._workers = workers = SliceWorkers(source.address, here.parts.registry, begin)
            self._there, self._trouble = there, None
            try:
                return await workers.run()
            finally:
                await stop(self._mending)

    async def _leave(self) -> None:
        for worker in self._workers or ():
            await worker.leave()

    async def _mend(self, workers: Sequence[LinkWorker]) -> None:
        link, here = self.link, self._client
        missing = {end for worker in workers for end in worker.forwarder.missing}
        with contextlib.suppress(HeadgateError):  # the worker's trouble tells it; it is tried again
            for worker in workers:
                if "source" in worker.forwarder.missing:
                    await _end(here, worker.source.address.name, recover=True)
            if "target" in missing:
                await _end(self._there, link.target, self._kinds, recover=True)
            if "dead letters" in missing and link.dead_letters:
                await _end(here, link.dead_letters, recover=True)


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
        LinkStore(parts.store.server), address, parts.wake_ups, SpooledReads(parts.registry.spooling).whole
    ), kind
