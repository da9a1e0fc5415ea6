"""A pool here may have parts at sites: their reports are answered, and members give back what they wait for."""

import math
import time
from collections.abc import Callable
from functools import partial

from headgate.client import Client
from headgate.errors import CoordinatorUnavailable, HeadgateError
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pool_sites import PoolSiteStore
from headgate_coordinator.pools.job import EVERY, WAITING, PoolJob


class PoolSitesJob(PoolJob):
    """A pool's job for its sites does the work on one such pool.

    A round is about the sites that left a report. Now and then, and when somebody here begins to wait, it is about all.
    So the reports of one site, however many, cost no calls for the others.
    """

    def __init__(self, client: Client, pool: PoolAddress, sites: tuple[str, ...]) -> None:
        self._store = PoolSiteStore(client.store.server)
        self._listeners: dict[str, Callable[[list[str]], None]] = {
            site: partial(self._hear_letter, site) for site in sites
        }
        self._listening = False
        self._asked = dict[str, set[str]]()
        self._troubles = dict[str, str]()
        self._reported = set[str]()
        self._in_line = set[str]()
        self._all_at = -math.inf
        super().__init__(client, pool)

    async def _round(self) -> bool:
        if not self._listening:
            self._listening = True
            for site, hear in self._listeners.items():
                await self.client.parts.wake_ups.subscribe((self._channel(site),), hear)
        for site in self._due():
            try:
                code = await self._account(site)
            except HeadgateError as error:
                if isinstance(error, CoordinatorUnavailable) and not error.answered:
                    raise
                self._troubles[site] = f"site {site}: {error}"
                continue
            if code == "UNKNOWN":
                return False
            self._troubles[site] = (
                f"the report of site {site} is {code.lower()}" if code in ("INVALID", "STALE", "AHEAD") else ""
            )
        self.fail("; ".join(filter(None, self._troubles.values())))
        return bool(self._in_line)

    def hear(self, words: list[str]) -> None:
        """Begin a round about all sites."""
        self._all_at = -math.inf
        super().hear(words)

    def _due(self) -> list[str]:
        """Return the sites that a round is about."""
        now, reported = time.monotonic(), self._reported
        self._reported = set()
        if now - self._all_at < (WAITING if self._in_line else EVERY):
            return [site for site in self._listeners if site in reported]
        self._all_at = now
        return list(self._listeners)

    async def _account(self, site: str) -> str:
        """Take in what a site left, and have members here give back what it waits for; returns the code."""
        code, epoch, _, place, served = await self._store.account(self.pool, site)
        await self.client.parts.pools.deliver(self.pool, served, epoch)
        if code == "LEARNING" and await self.client.parts.pools.rebuild(self.pool, epoch):  # nobody may wait but sites
            code, epoch, _, place, served = await self._store.account(self.pool, site)
            await self.client.parts.pools.deliver(self.pool, served, epoch)
        if place == 1:
            await self.client.parts.pools.take_back_for(self.pool, f"@{site}", self._asked.setdefault(site, set()))
            await self._store.account(self.pool, site)
        else:
            self._asked.pop(site, None)
        (self._in_line.add if place > 0 else self._in_line.discard)(site)
        return code

    def _hear_letter(self, site: str, words: list[str]) -> None:
        if words[:1] == ["report"]:
            self._reported.add(site)
            self._heard.set()

    def _channel(self, site: str) -> str:
        return self.pool.site_key(site).decode()

    async def _leave(self) -> None:
        if self._listening:
            for site, hear in self._listeners.items():
                await self.client.parts.wake_ups.unsubscribe((self._channel(site),), hear)
