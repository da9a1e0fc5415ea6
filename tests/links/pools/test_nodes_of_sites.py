"""Nodes of sites that share a pool, as processes: they are killed and frozen under load, and another goes on."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager

import pytest

from tests.amqp.node_processes import nodes
from tests.links.pools.pool_sites import part, whole
from tests.links.pools.site_deployments import LIMIT, MOST, NAMES, Deployment, served_afterwards, watch
from tests.links.sites import SiteOf
from tests.support.extent import for_long

pytestmark = [pytest.mark.one_server, pytest.mark.usefixtures("patient")]


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@asynccontextmanager
async def deployed(
    sites: list[SiteOf], processes: ExitStack, seed: int
) -> AsyncIterator[tuple[Deployment, Deployment]]:
    """Paris with a pool and berlin with a part of it, two nodes each, under load that is looked at all the time."""
    paris, berlin, _ = sites
    await paris.govern(whole(LIMIT, berlin=MOST), berlin)
    await berlin.govern(part("paris"), paris)
    hosts = [f"--site-host={host}" for host in berlin.reach.hosts]
    dice = random.Random(seed)
    both = [
        Deployment(site, processes.enter_context(nodes(site.url, site.client.namespace, 2, *hosts)), dice)
        for site in (paris, berlin)
    ]
    for one in both:
        for name in NAMES:
            await one.client.apply(name)
    tasks = [asyncio.create_task(one.traffic(name)) for one in both for name in NAMES]
    tasks.append(asyncio.create_task(watch(*both)))
    try:
        yield both[0], both[1]
        assert not any(task.done() for task in tasks), [task.exception() for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_the_limit_holds_while_nodes_of_both_sites_fail(three_sites: list[SiteOf], processes: ExitStack) -> None:
    async with deployed(three_sites, processes, seed=1) as (paris, berlin):
        await asyncio.gather(paris.fails("killed"), berlin.fails("frozen"))
    await served_afterwards(paris, berlin)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(for_long(4)))
async def test_the_limit_holds_however_often_they_fail(
    three_sites: list[SiteOf], processes: ExitStack, seed: int
) -> None:
    dice = random.Random(f"failures {seed}")
    async with deployed(three_sites, processes, seed) as (paris, berlin):
        for _ in range(for_long(12)):
            failing = dice.choice([(paris,), (berlin,), (paris, berlin)])
            await asyncio.gather(*(one.fails(dice.choice(["killed", "frozen"])) for one in failing))
            await asyncio.sleep(dice.random())
    await served_afterwards(paris, berlin)
