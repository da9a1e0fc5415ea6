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

from headgate._util.tasks import stop
from headgate.client import Client
from headgate.core.links.link import Site
from headgate.core.names import decode_name
from headgate.core.policy import Policy
from headgate.errors import HeadgateError
from headgate.namespace.pool_limits import pool_names
from headgate.redis.keys import PoolAddress, namespace_channel
from headgate.redis.replies import record
from headgate_coordinator.fleet.leases import LeaseStore
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
        self._heard = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin."""
        await self._client.parts.wake_ups.subscribe((namespace_channel(self._client.namespace),), self._hear)
        self._task = asyncio.create_task(self._run(), name="headgate pools over sites")

    async def close(self) -> None:
        """Stop, and let others go on at once."""
        await self._client.parts.wake_ups.unsubscribe((namespace_channel(self._client.namespace),), self._hear)
        await stop(self._task)
        held = list(self._jobs)
        await self._stop(held)
        if held:
            with contextlib.suppress(HeadgateError, TimeoutError):
                async with asyncio.timeout(CLOSING):
                    await self._leases.call(self._node, held, mode="release", ttl_ms=int(self._ttl * 1000))

    @property
    def troubles(self) -> Mapping[str, str]:
        """Why nothing moves, by pool."""
        return {job.pool.name: job.trouble for _, job in self._jobs.values() if job.trouble}

    def _hear(self, words: list[str]) -> None:
        if words[0] == "policy":
            self._heard.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            self._heard.clear()
            began, pause = loop.time(), self._ttl / 4
            try:
                again_ms = await self.round()
                renewed = began
                pause = min(pause, again_ms / 1000) if again_ms else pause
            except HeadgateError as error:
                _log.debug("a round of pools over sites ended early: %s", error)
                if loop.time() - renewed > self._ttl:
                    await self._stop(list(self._jobs))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._heard.wait()

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
        if not plan:
            return None
        answer = await self._leases.call(
            self._node, list(plan), mode="alone", ttl_ms=int(self._ttl * 1000), held=len(self._jobs), total=len(plan)
        )
        await self._stop([name for name in self._jobs if name not in answer.fences])
        for name in answer.fences:
            if name not in self._jobs:
                what, begin = plan[name]
                self._jobs[name] = what, begin()
        return answer.again_ms

    def _plan(self, policy: Policy) -> Plan:
        plan, sites = Plan(), {site.name: site for site in policy.sites}
        for pool in policy.pools:
            fields = pool.fields
            if "part_of" in fields:
                self._add_share(plan, sites, policy.site, pool.name, fields["part_of"])
            if names := (*_sites_of(fields), *self._unnamed.get(pool.name, ())):
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
            if sites := tuple(one.site for one in members if one.site not in _sites_of(known)):
                unnamed[name] = sites
        self._leftovers, self._unnamed = shares, unnamed

    async def _stop(self, names: list[str]) -> None:
        ending = [self._jobs.pop(name)[1] for name in names if name in self._jobs]
        await asyncio.gather(*(job.stop() for job in ending))


def _sites_of(fields: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sites that have parts of a pool, of its fields."""
    return tuple(part.partition("=")[0] for part in fields.get("sites", "").split())
