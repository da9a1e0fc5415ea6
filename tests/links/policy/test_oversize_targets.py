"""Links into a queue with slices that lets a message above its limit go alone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import headgate
from headgate.policy import loads
from tests.links.policy.test_bridges import bridges, settled
from tests.links.policy.test_sliced_sources import working
from tests.sdk.namespace.test_sliced_oversize import Received, ended, send
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
LIMIT = 1000


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.mark.parametrize(
    "order_by",
    [pytest.param("", marks=pytest.mark.whole, id="to the first slice"), pytest.param("header:from", id="by value")],
)
async def test_what_a_link_brings_has_its_turn_beside_those_who_send(client: headgate.Client, order_by: str) -> None:
    ordered: dict[str, Any] = {"order_by": order_by} if order_by else {}
    await client.apply("orders", kind="queue", limit=LIMIT, slices=4, oversize="allow-one", **ordered)
    await client.apply("outside", kind="queue", limit="64kB")
    await client.apply_policy(loads(bridges(("outside", "orders"), more=" ")))
    async with client.session("outside") as outside:
        producer = await outside.producer("outside")
        for number in range(24):
            size = 2500 if number % 4 == 3 else 100
            await producer.send(bytes(size), headers={"from": f"link-{number % 8}"}, timeout=20)
    received = Received(client)
    async with client.session("in") as into, client.session("small") as small, client.session("large") as large:
        consumer = await into.consumer("orders", window=10)
        consuming = asyncio.ensure_future(received.consume(consumer))
        sending = [asyncio.ensure_future(send(small, 60)), asyncio.ensure_future(send(large, 2000))]

        def came() -> bool:
            of_link = sum(count for name, count in received.count.items() if name.startswith("link"))
            return of_link == 24 and received.count[small.id] > 0 and received.large[large.id] > 0

        try:
            async with working(client):
                await wait_until(came, timeout=30, description="all that the link brings, and some of each sender")
                await settled(client, "outside")
        finally:
            await ended(*sending)
            await consumer.close()
            await consuming
        assert sum(count for name, count in received.large.items() if name.startswith("link")) == 6
    assert received.beside == []
