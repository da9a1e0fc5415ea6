"""A pool here may have parts at sites: their reports are answered, and members give back what they wait for."""

from headgate.client import Client
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pool_sites import PoolSiteStore
from headgate_coordinator.pools.job import PoolJob


class PoolSitesJob(PoolJob):
    """A pool's job for its sites does the work on one such pool."""

    def __init__(self, client: Client, pool: PoolAddress, sites: tuple[str, ...]) -> None:
        self._store = PoolSiteStore(client.store.server)
        self._sites = sites
        self._channels = tuple(pool.site_key(site).decode() for site in sites)
        self._listening = False
        self._asked = dict[str, set[str]]()
        super().__init__(client, pool)

    async def _round(self) -> bool:
        if not self._listening:
            await self.client.parts.wake_ups.subscribe(self._channels, self._hear_letter)
            self._listening = True
        pools, waiting, troubles = self.client.parts.pools, False, list[str]()
        for site in self._sites:
            code, epoch, _, place, served = await self._store.account(self.pool, site)
            await pools.deliver(self.pool, served, epoch)
            if code == "UNKNOWN":
                return False
            if code in ("INVALID", "STALE", "AHEAD"):
                troubles.append(f"the report of site {site} is {code.lower()}")
            if place == 1:
                await pools.take_back_for(self.pool, f"@{site}", self._asked.setdefault(site, set()))
                await self._store.account(self.pool, site)
            else:
                self._asked.pop(site, None)
            waiting = waiting or place > 0
        self.fail("; ".join(troubles))
        return waiting

    def _hear_letter(self, words: list[str]) -> None:
        if words[:1] == ["report"]:
            self._heard.set()

    async def _leave(self) -> None:
        if self._listening:
            await self.client.parts.wake_ups.unsubscribe(self._channels, self._hear_letter)
