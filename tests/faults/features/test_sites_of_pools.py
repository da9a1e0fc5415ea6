"""One pool over sites, one of which loses its master and what it wrote last, and later hands back to the first."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

import headgate
from headgate._util.tasks import stop
from tests.faults.deployments import Watched, ask, is_linked, watched
from tests.links.pools.pool_sites import drawn, in_use, part, shared, whole, working
from tests.links.sites import SiteOf, reach_of
from tests.support.servers import RedisServer
from tests.support.waiting import wait_for, wait_until

pytestmark = [pytest.mark.one_server, pytest.mark.soak]
LIMIT = 1000
BODY = b"x" * 97
NAMES = ("orders", "invoices")


@asynccontextmanager
async def judged(*sites: SiteOf) -> AsyncIterator[None]:
    """Look again and again that the sites use no more than the limit together; what one cannot say, it does not use."""
    most = 0

    async def used(site: SiteOf) -> int:
        with suppress(headgate.CoordinatorUnavailable):
            return await in_use(site, NAMES)
        return 0

    async def look() -> None:
        nonlocal most
        while True:
            most = max(most, sum([await used(site) for site in sites]))
            await asyncio.sleep(0.02)

    looking = asyncio.create_task(look())
    try:
        yield
    finally:
        await stop(looking)
    assert 0 < most <= LIMIT


async def fill(site: SiteOf, *, timeout: float = 4) -> None:
    """Send to both queues of a site until there is no room."""

    async def one(name: str) -> None:
        with suppress(headgate.CreditTimeout, headgate.MessageTooLarge, headgate.DestinationFull):
            await site.send(name, *[BODY] * 12, timeout=timeout)

    await asyncio.gather(*(one(name) for name in NAMES))


async def filled(site: SiteOf, size: int) -> None:
    """Send until so much is in use there."""

    async def there() -> bool:
        with suppress(headgate.CoordinatorUnavailable):
            await fill(site)
            return await in_use(site, NAMES) == size
        return False

    await wait_until(there, timeout=180, description=f"{size} bytes are in use at {site.name}")


async def empty(site: SiteOf) -> None:
    async with site.client.session() as session:
        for name in NAMES:
            consumer = await session.consumer(name)
            while (message := await consumer.receive(timeout=0.2)) is not None:
                await message.accept(confirm=True)


async def has_drawn(paris: SiteOf, size: int) -> None:
    async def there() -> bool:
        return (await shared(paris)).get("@berlin", -1) == size

    await wait_until(there, timeout=120, description=f"berlin has {size} bytes of the pool")


async def lose_master(deployment: Watched) -> RedisServer:
    """Kill a master whose replica was frozen, which takes over; return the master."""
    first = deployment.master
    (replica,) = (one for one in deployment.servers if one is not first)
    first.kill9()
    replica.sigcont()
    await replaced(deployment, first)
    return first


async def hand_back(deployment: Watched, first: RedisServer) -> None:
    before = deployment.master
    first.restart()
    await asyncio.to_thread(wait_for, lambda: is_linked(first), timeout=60)
    deployment.fail_over()
    await replaced(deployment, before)


async def replaced(deployment: Watched, before: RedisServer) -> None:
    async def other() -> bool:
        return await asyncio.to_thread(lambda: deployment.master) is not before

    await wait_until(other, timeout=60, description="another master")


async def freeze_replica(deployment: Watched) -> None:
    """Freeze it once it has all that its master has, and hang up on it: what comes later is in no buffer of its."""
    (replica,) = (one for one in deployment.servers if one is not deployment.master)
    await asyncio.to_thread(wait_for, lambda: is_linked(replica), timeout=30)
    await asyncio.to_thread(ask, deployment.master, "WAIT", 1, 5000)
    replica.sigstop()
    await asyncio.to_thread(ask, deployment.master, "CLIENT", "KILL", "TYPE", "replica")


@asynccontextmanager
async def governed(paris: SiteOf, berlin: SiteOf) -> AsyncIterator[None]:
    paris.reach = berlin.reach = reach_of(paris.url, berlin.url)
    await paris.govern(whole(LIMIT, berlin=600), berlin)
    await berlin.govern(part("paris"), paris)
    async with working(paris), judged(paris, berlin):
        yield


@pytest.mark.timeout(900)
async def test_a_home_that_forgot_what_a_silent_site_holds_keeps_it(three_sites: list[SiteOf]) -> None:
    """Mutant: nothing is kept for a site that was not heard of since."""
    _, berlin, _ = three_sites
    with watched(replicas=1) as deployment:
        async with headgate.connect(deployment.url, namespace=f"{berlin.client.namespace}-s") as client:
            paris = SiteOf("paris", client, deployment.url)
            async with governed(paris, berlin):
                async with working(berlin):
                    await has_drawn(paris, 0)
                    await freeze_replica(deployment)
                    await filled(berlin, 600)
                    await has_drawn(paris, 600)
                first = await lose_master(deployment)
                await filled(paris, 400)
                await fill(paris)
                assert await in_use(paris, NAMES) == 400
                await hand_back(deployment, first)
                async with working(berlin):
                    await empty(berlin)
                    await filled(paris, LIMIT)


@pytest.mark.timeout(900)
async def test_a_part_that_forgot_what_it_gave_back_lends_none_of_it(three_sites: list[SiteOf]) -> None:
    """Mutant: a part lends what it has on record before its home confirmed it."""
    paris, _, _ = three_sites
    with watched(replicas=1) as deployment:
        async with headgate.connect(deployment.url, namespace=f"{paris.client.namespace}-s") as client:
            berlin = SiteOf("berlin", client, deployment.url)
            async with governed(paris, berlin):
                async with working(berlin):
                    await berlin.send("invoices", BODY, timeout=120)
                await empty(berlin)
                await freeze_replica(deployment)
                assert await drawn(berlin) >= len(BODY)
                async with working(berlin):
                    await has_drawn(paris, 0)
                    await filled(paris, LIMIT)
                first = await lose_master(deployment)
                await fill(berlin, timeout=25)
                await hand_back(deployment, first)
                await fill(berlin)
                assert await in_use(berlin, NAMES) == 0
                async with working(berlin):
                    await empty(paris)
                    await filled(berlin, 600)
