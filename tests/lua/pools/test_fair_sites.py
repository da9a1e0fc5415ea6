"""Sites with parts of a pool are served by their weights, beside the destinations that it has at home."""

from collections.abc import AsyncIterator, Mapping

import pytest

from headgate.redis.stores.pool_sites import PoolSiteStore
from tests.lua.pool_world import PoolWorld
from tests.lua.pools.site_world import SiteWorld
from tests.lua.pools.test_fair_pools import MESSAGE, Crowd, water_fill
from tests.support.extent import WHOLE
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = pytest.mark.one_server
LIMIT = 100


class Deployments:
    """A home with one destination, and two sites with one each; at all of them more wait than there is room for."""

    def __init__(self, eu: SiteWorld, us: SiteWorld) -> None:
        self.hq, self.parts = eu.hq, {"eu": eu, "us": us}
        self.asked = {name: set[str]() for name in self.parts}
        self.crowds = {"hq": Crowd(eu.hq), "eu": Crowd(eu.eu), "us": Crowd(us.eu)}

    async def open(self, sites: str, leasts: str = "") -> None:
        for part in self.parts.values():
            await part.open()
        await self.hq.store.set(self.hq.pool, {"limit_bytes": str(LIMIT), "sites": sites, "leasts": leasts})

    async def held(self, site: str) -> int:
        """Return what the home has lent a site."""
        return sum(share.held for share in await self.hq.store.members(self.hq.pool) if share.site == site)

    async def close(self) -> None:
        for part in self.parts.values():
            await part.close()

    async def round(self) -> dict[str, int]:
        """Let some messages be consumed everywhere, others wait, and letters come; returns what each site holds."""
        held = {name: (await crowd.round())["a"] for name, crowd in self.crowds.items()}
        for name, part in self.parts.items():
            await part.round()
            await self._take_back_for(name, part)
        return held

    async def _take_back_for(self, name: str, part: SiteWorld) -> None:
        """Do what the node at home does for a site that is first in line."""
        _, _, _, place, _ = await PoolSiteStore(self.hq.server).account(self.hq.pool, name)
        if place == 1:
            await self.hq.pools.take_back_for(self.hq.pool, f"@{name}", self.asked[name])
        else:
            self.asked[name].clear()

    async def shares(self, rounds: int = 10) -> dict[str, float]:
        """Return what each holds on the average, once what was before is forgotten."""
        for _ in range(25 if WHOLE else 15):
            await self.round()
        seen = [await self.round() for _ in range(rounds)]
        assert all(sum(held.values()) <= LIMIT for held in seen)
        return {name: sum(held[name] for held in seen) / rounds for name in self.crowds}

    async def expect(self, weights: Mapping[str, int], **demands: int) -> None:
        for name, count in demands.items():
            await self.crowds[name].want(a=count)
        shares = await self.shares()
        ideal = water_fill(LIMIT, {name: MESSAGE * count for name, count in demands.items()}, weights)
        for name, share in ideal.items():
            assert share - 1.5 * MESSAGE <= shares[name] <= share + 1.5 * MESSAGE, (name, shares, ideal)


@pytest.fixture
async def deployed(redis_url: str, namespace: str) -> AsyncIterator[Deployments]:
    worlds = []
    for site in ("hq", "eu", "us"):
        server = RewritingServer(redis_url, virtual_clock, lambda source: source)
        await server.open()
        worlds.append(PoolWorld(server, f"{namespace}-{site}"))
    hq, eu, us = worlds
    found = Deployments(SiteWorld(hq, eu), SiteWorld(hq, us, "us"))
    yield found
    await found.close()
    for world in worlds:
        await world.server.close()


async def test_sites_share_by_weight_beside_destinations_at_home(deployed: Deployments) -> None:
    """Mutant: the weight of a site is not read."""
    await deployed.open("eu=100*3 us=100")
    await deployed.expect({"hq": 1, "eu": 3, "us": 1}, hq=12, eu=12, us=12)
    if WHOLE:
        await deployed.expect({"hq": 1, "eu": 3, "us": 1}, hq=12, eu=2, us=12)
        await deployed.hq.store.set(deployed.hq.pool, {"sites": "eu=100 us=100*3"})
        await deployed.expect({"hq": 1, "eu": 1, "us": 3}, hq=12, eu=12, us=12)


async def test_a_site_that_others_far_outweigh_has_its_share_nonetheless(deployed: Deployments) -> None:
    """Mutant: what a site was granted goes back for who waits at home, before its own line has it."""
    await deployed.open("eu=100 us=100*8")
    await deployed.expect({"hq": 1, "eu": 1, "us": 8}, hq=12, eu=12, us=12)


@pytest.mark.longest
async def test_a_least_that_is_raised_comes_back_from_all_who_want_more(deployed: Deployments) -> None:
    """Mutants: it waits behind who holds less; nobody owes what it lacks; it is taken from it once more."""
    await deployed.open("eu=100 us=100")
    await deployed.crowds["hq"].want(a=12)
    await deployed.crowds["us"].want(a=12)
    for _ in range(15):
        await deployed.round()
    assert await deployed.held("eu") == 0
    await deployed.hq.store.set(deployed.hq.pool, {"leasts": "eu=60"})
    for _ in range(40):
        await deployed.round()
        if await deployed.held("eu") == 60:
            break
    assert await deployed.held("eu") == 60, "though nobody there wants it"
    shares = await deployed.shares()
    assert await deployed.held("eu") == 60
    assert 15 <= shares["hq"] <= 25, "the rest goes by weight"
    await deployed.hq.store.set(deployed.hq.pool, {"leasts": ""})
    shares = await deployed.shares()
    assert 35 <= shares["hq"] <= 65, "and all of it, once nothing is the least"


async def test_each_site_has_its_least_and_what_is_beyond_goes_by_weight(deployed: Deployments) -> None:
    """Mutant: what is kept for one is lent to another site."""
    await deployed.open("eu=100 us=100*8", "eu=40 us=20")
    for name in deployed.crowds:
        await deployed.crowds[name].want(a=12)
    for turn in range(40):
        await deployed.round()
        if turn > 20:
            assert await deployed.held("eu") >= 40
            assert await deployed.held("us") >= 20
