"""Links whose source or target fails over, there and back, as asked for or not: each message once, in order."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import headgate
from tests.faults.deployments import ask
from tests.faults.failovers import hand_over, put_in_front
from tests.links.chaos import Breeder, at_rest
from tests.links.forwarding.test_failovers import Consumer, Pair, send
from tests.links.worker_process import Plan
from tests.support.servers import available_servers
from tests.support.shared import SharedServers

pytestmark = [pytest.mark.one_server, pytest.mark.soak, pytest.mark.timeout(600)]


@asynccontextmanager
async def forwarding(
    here_url: str, there_url: str, namespace: str
) -> AsyncIterator[tuple[headgate.Client, headgate.Client, Consumer]]:
    """Forward `orders` from here to there by workers that die now and then, and consume there."""
    async with (
        headgate.connect(here_url, namespace=namespace) as here,
        headgate.connect(there_url, namespace=namespace) as there,
    ):
        for client in (here, there):
            client.parts.registry._ttl_ms = 1000
            await client.apply("orders", kind="queue")
        consumer = Consumer(there)
        consumer.reads.set()
        task = asyncio.create_task(consumer.run())
        async with Breeder(Plan(here_url, there_url, namespace, 100, 7)):
            yield here, there, consumer
            await at_rest(here)
        await at_rest(there)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("end", ["source", "target"])
async def test_a_link_does_not_notice_that_an_end_hands_over_and_back(
    pair: Pair, shared_servers: SharedServers, cleanup_namespace: str, end: str
) -> None:
    other = shared_servers.standalone(available_servers()[0])
    async with pair.proxy:
        urls = (pair.proxy.url, other) if end == "source" else (other, pair.proxy.url)
        async with forwarding(*urls, cleanup_namespace) as (here, _, consumer):
            await send(here, range(100))
            await hand_over(pair, pair.primary, pair.replica)
            await send(here, range(100, 200))
            await hand_over(pair, pair.replica, pair.primary)
            await send(here, range(200, 300))
            await consumer.has(299)
        assert consumer.got == list(range(300))


async def test_a_source_that_is_back_in_charge_and_behind_forwards_all_that_is_new(
    pair: Pair, shared_servers: SharedServers, cleanup_namespace: str
) -> None:
    """A -> B -> A: what A gives numbers to is new, although B gave the same ones, and the link brought those."""
    there_url = shared_servers.standalone(available_servers()[0])
    async with pair.proxy, forwarding(pair.proxy.url, there_url, cleanup_namespace) as (here, _, consumer):
        await send(here, range(100))
        await consumer.has(99)
        await at_rest(here)
        await hand_over(pair, pair.primary, pair.replica)
        ask(pair.primary, "REPLICAOF", "NO", "ONE")
        await send(here, range(100, 200))
        await consumer.has(199)
        await at_rest(here)
        put_in_front(pair, pair.primary)
        await send(here, range(200, 300))
        await consumer.has(299)
    assert all(one < later for one, later in itertools.pairwise(consumer.got)), "once, and in order"
    assert set(consumer.got) == set(range(300)), "what B lost had been forwarded"
