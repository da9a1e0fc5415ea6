"""A node works on pools over sites: those of the policy, and those that have something to give back.

Each has a lease of its own. When a node dies, another goes on after the lease; until then nothing is lent to sites, and
nothing is lost.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from headgate.client import Client
from headgate.core.limits.pool_sites import sites_named
from headgate.core.links.link import Site
from headgate.core.names import decode_name
from headgate.core.policy import Policy
from headgate.errors import HeadgateError
from headgate.namespace.pool_limits import pool_names
from headgate.redis.keys import PoolAddress, namespace_channel
from headgate.redis.replies import record
from headgate_coordinator.fleet.leases import LeaseStore, pages
from headgate_coordinator.fleet.rounds import LeaseRounds
from headgate_coordinator.links.sites import Sites
from headgate_coordinator.pools.job import PoolJob
from headgate_coordinator.pools.part_job import PoolPartJob
from headgate_coordinator.pools.sites_job import PoolSitesJob

_log = logging.getLogger("headgate.explain.links")
CLOSING: Final = 2.0
"""Seconds to give back leases; without Redis, they end by themselves."""

Begin = Callable[[], PoolJob]
Plan = dict[str, tuple[tuple[object, ...], Begin]]
"""By lease: what the work is, and how it begins."""


class PoolSupervisor:
    """A pool supervisor runs this node's part of the work on pools over sites.

    Args:
        client: connected; it stays the caller's.
        node: id of the node.
        sites: clients of the others; they stay the caller's.
        ttl: seconds after which others take over when nothing is heard of it.
    """

    def __init__(self, client: Client, node: str, sites: Sites, *, ttl: float) -> None:
        self._client, self._node, self._sites, self._ttl = client, node, sites, ttl
        self._leases = LeaseStore(client.store.server, client.namespace)
        self._jobs: dict[str, tuple[tuple[object, ...], PoolJob]] = {}
        self._leftovers: dict[str, str] = {}
        self._unnamed: dict[str, tuple[str, ...]] = {}
        self._looked: Policy | None = None
        self._rounds = LeaseRounds(self.round, self._lose, ttl=ttl, name="pools over sites")

    async def start(self) -> None:
        """Begin."""
        await self._client.parts.wake_ups.subscribe((namespace_channel(self._client.namespace),), self._hear)
        self._rounds.start()

    async def close(self) -> None:
        """Stop, and let others go on at once."""
        await self._client.parts.wake_ups.unsubscribe((namespace_channel(self._client.namespace),), self._hear)
        await self._rounds.stop()
        held = list(self._jobs)
        await self._stop(held)
        if held:
            with contextlib.suppress(HeadgateError, TimeoutError):
                async with asyncio.timeout(CLOSING):
                    for page in pages(held):
                        await self._leases.call(self._node, page, mode="release", ttl_ms=int(self._ttl * 1000))

    @property
    def troubles(self) -> Mapping[str, str]:
        """Why nothing moves, by pool."""
        return {job.pool.name: job.trouble for _, job in self._jobs.values() if job.trouble}

    def _hear(self, words: list[str]) -> None:
        if words[0] == "policy":
            self._rounds.hurry()

    async def round(self) -> int | None:
        """Do once what is to be done; returns in how many ms a lease may become free, None when that is not known.

        Raises:
            CoordinatorUnavailable: Redis does not answer; repeat it.
        """
        policy = await self._client.policy()
        if policy is not self._looked or self._leftovers or self._unnamed:
            await self._find_leftovers(policy)
            self._looked = policy
        plan = self._plan(policy)
        await self._stop([name for name, (what, _) in self._jobs.items() if name not in plan or plan[name][0] != what])
        fences, again = dict[str, int](), list[int]()
        for page in pages(list(plan)):
            answer = await self._leases.call(
                self._node, page, mode="alone", ttl_ms=int(self._ttl * 1000),
                held=sum(name in self._jobs for name in page), total=len(page),
            )  # fmt: skip
            fences |= answer.fences
            again += [answer.again_ms] if answer.again_ms else []
        await self._stop([name for name in self._jobs if name not in fences])
        for name in fences:
            if name not in self._jobs:
                what, begin = plan[name]
                self._jobs[name] = what, begin()
        return min(again, default=None)

    def _plan(self, policy: Policy) -> Plan:
        plan, sites = Plan(), {site.name: site for site in policy.sites}
        for pool in policy.pools:
            fields = pool.fields
            if "part_of" in fields:
                self._add_share(plan, sites, policy.site, pool.name, fields["part_of"])
            if names := (*sites_named(fields), *self._unnamed.get(pool.name, ())):
                address = PoolAddress.of(self._client.namespace, pool.name)
                what = (pool.name, names)
                plan[f"pool-sites:{address.key}"] = what, partial(PoolSitesJob, self._client, address, names)
        for name, of in self._leftovers.items():
            self._add_share(plan, sites, policy.site, name, of)
        return plan

    def _add_share(self, plan: Plan, sites: Mapping[str, Site], own: str, name: str, of: str) -> None:
        site, _, there = of.partition("/")
        if site not in sites or not own:
            return
        address, there = PoolAddress.of(self._client.namespace, name), decode_name(there)
        begin = partial(
            PoolPartJob, self._client, address, name=own, site=site, there=there,
            connect=partial(self._sites.client, sites[site]),
        )  # fmt: skip
        plan[f"pool-share:{address.key}:{of}"] = (name, own, sites[site], there), begin

    async def _find_leftovers(self, policy: Policy) -> None:
        """Note pools with something of a site, and sites with something of a pool, not named so in the policy."""
        again = policy is self._looked
        names = {*self._leftovers, *self._unnamed} if again else await pool_names(self._client.parts.pools)
        settings = {pool.name: pool.fields for pool in policy.pools}
        store = self._client.parts.pools.store
        shares, unnamed = dict[str, str](), dict[str, tuple[str, ...]]()
        for name in names:
            pool, known = PoolAddress.of(self._client.namespace, name), settings.get(name, {})
            fields = await store.fields(pool)
            if "share" in fields and (of := record(fields["share"].encode())["of"]) != known.get("part_of", ""):
                shares[name] = of
            members = await store.members(pool, match="@*")
            if sites := tuple(one.site for one in members if one.site not in sites_named(known)):
                unnamed[name] = sites
        self._leftovers, self._unnamed = shares, unnamed

    async def _lose(self) -> None:
        await self._stop(list(self._jobs))

    async def _stop(self, names: list[str]) -> None:
        ending = [self._jobs.pop(name)[1] for name in names if name in self._jobs]
        await asyncio.gather(*(job.stop() for job in ending))
