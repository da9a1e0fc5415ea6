"""The target's site is cut off under load, or loses answers: all gets there once and in order when it is back."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

import headgate
from headgate.core.link_rules import Forwarding
from headgate.redis.keys import Address
from headgate.redis.link_store import LinkStore
from headgate.redis.link_worker import End, LinkWorker
from headgate.redis.server import Server
from headgate.redis.url import parse_url
from headgate.tasks import stop
from tests.links.chaos import SOURCE_LIMIT, TARGET_LIMIT, Load, at_rest, look
from tests.links.site import LINK
from tests.support.faultproxy import FaultProxy
from tests.support.servers import available_servers
from tests.support.shared import SharedServers
from tests.support.waiting import wait_until

TTL = 1.0


@pytest.fixture
async def ends(
    cleanup_namespace: str, shared_servers: SharedServers
) -> AsyncIterator[tuple[headgate.Client, headgate.Client]]:
    binaries = available_servers()
    here, there = (shared_servers.standalone(binary) for binary in (binaries[-1], binaries[0]))
    async with (
        headgate.connect(here, namespace=cleanup_namespace) as source,
        headgate.connect(there, namespace=cleanup_namespace) as target,
    ):
        await source.apply("orders", kind="queue", limit=SOURCE_LIMIT)
        await target.apply("orders", kind="queue", limit=TARGET_LIMIT)
        yield source, target


@asynccontextmanager
async def linked(here: headgate.Client, url: str) -> AsyncIterator[LinkWorker]:
    """A worker that reaches the target at ``url``."""
    orders = Address.of(here.namespace, "orders")
    servers = [Server(parse_url(where)) for where in (here.redis_url, url)]
    wakes = [server.wake_ups() for server in servers]
    for server in servers:
        await server.open()
    source, target = (End(LinkStore(server), orders, wake) for server, wake in zip(servers, wakes, strict=True))
    worker = LinkWorker(LINK, source, target, Forwarding("a", "b", window=1000, messages=20), fence=1, ttl=TTL)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await stop(task)
        for wake in wakes:
            await wake.close()
        for server in servers:
            await server.close()


def hold(proxy: FaultProxy) -> None:
    """Pass nothing on; connections stay."""
    proxy.hold()


def break_off(proxy: FaultProxy) -> None:
    """End connections, and refuse new ones."""
    proxy.refuse()
    proxy.reset()


@pytest.mark.parametrize("cut", [hold, break_off])
async def test_a_site_that_is_cut_off_for_longer_than_a_lease_gets_all_once_when_it_is_back(
    ends: tuple[headgate.Client, headgate.Client], cut: Callable[[FaultProxy], None]
) -> None:
    here, there = ends
    async with (
        FaultProxy(there.redis_url) as proxy,
        linked(here, proxy.url) as worker,
        Load(here, there) as load,
    ):
        for _ in range(2):
            before = worker.forwarder.committed
            await wait_until(lambda: worker.forwarder.committed > before + 50)  # noqa: B023 -- used before it changes
            cut(proxy)

            async def given_up() -> bool:
                load.watch()
                await there.store.reap(Address.of(there.namespace, "orders"))
                return (await look(there))["leased_bytes"] == "0"

            async def stuck() -> bool:
                return int((await look(here))["blocked"]) == len(load.sent)

            await wait_until(given_up, description="the target gives the link's credit to others")
            await wait_until(stuck, description="producers of the source wait, for it is full")
            await wait_until(lambda: worker.forwarder.trouble, description="the reason is said")
            proxy.pass_through()
        await load.drained()
        assert load.numbers() == [list(range(count)) for count in load.sent]
    await at_rest(there)
    await at_rest(here)


async def test_a_commit_whose_answer_is_lost_is_stored_once(ends: tuple[headgate.Client, headgate.Client]) -> None:
    """Mutant: `lua/link_commit.lua` without `seq > mark`."""
    here, there = ends
    async with FaultProxy(there.redis_url) as proxy, linked(here, proxy.url) as worker, Load(here, there) as load:
        await wait_until(lambda: worker.forwarder.committed)
        proxy.lose_every(7)

        def enough() -> bool:
            worker.forwarder.woken(source=True, target=True)
            worker._event.set()
            return proxy.lost >= 100

        await wait_until(enough, timeout=30)
        proxy.pass_through()
        await load.drained()
        assert load.numbers() == [list(range(count)) for count in load.sent]
    await at_rest(there)
    await at_rest(here)
