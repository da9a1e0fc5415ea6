"""A queue over several slots that delivers at one rate, over a node: AMQP clients, and SDKs with few rights."""

import asyncio
import re
from typing import Any

import pytest

import headgate
from headgate.amqp.link import Link
from headgate.redis.keys import Address
from headgate.redis.stores.rates import Kind, RateStore
from tests.amqp.client import Peer, read, rude
from tests.amqp.nodes import NodeProcess
from tests.amqp.raw import attach, flow
from tests.remote.grants import C, M, P
from tests.remote.people import node_with, sdk_as
from tests.sdk.namespace.test_shared_deliveries import delivered, stock, within
from tests.sdk.observing import GUARD, drain
from tests.support.waiting import wait_until


async def test_amqp_clients_share_the_rate_with_all_others(node: NodeProcess, client: headgate.Client) -> None:
    got: list[str] = []

    def take(link: Link, message: bytes, delivery: Any) -> None:
        got.append(read(message))
        link.settle(delivery)

    await client.apply("orders", kind="queue", slices=3, delivery_rate="100/s", delivery_burst=5)
    await stock(client, 60)
    peer = await Peer.connect(node.port)
    await peer.receiver("orders", take, credit=500)
    async with client.session("c") as session:
        consumer = await session.consumer("orders", window=2)
        await drain(consumer, 5)
        await consumer.close()
        await wait_until(lambda: len(got) == 55, timeout=GUARD)
    await peer.close()
    assert within(await delivered(client, 3), 100, 5)


async def test_a_drain_is_answered_after_what_the_rate_allows_at_all_slices(
    node: NodeProcess, client: headgate.Client
) -> None:
    """Mutant: a slice that has nothing in hand yet is taken to have nothing."""
    await client.apply("orders", kind="queue", slices=3, delivery_rate="1/h", delivery_burst=5)
    await stock(client, 12)
    async with rude(node.port) as guest:
        await guest.greet(attach("r", 0, receives=True), flow(0, 50, drain=True))
        drained = rb"\0S\x13\xc0.\x09.{,60}C@A"
        async with asyncio.timeout(GUARD):
            while re.search(drained, guest.heard, re.DOTALL) is None:
                assert await guest._read()
    assert 1 <= sum(count for _, count in await delivered(client, 3)) <= 5


async def test_who_may_only_receive_is_lent_the_rate_of_deliveries_and_no_other(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutants: it needs the right to send; who receives may hold the rate of those who send."""
    people = {"maker": {"orders": {P}}, "worker": {"orders": {C}}, "keeper": {"orders": {M}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply(
            "orders", kind="queue", slices=3, delivery_rate="100/s", delivery_burst=2, send_rate="1000/s"
        )
        async with sdk_as(node, "maker") as maker, sdk_as(node, "worker") as worker, worker.session() as into:
            await stock(maker, 18)
            consumer = await into.consumer("orders")
            await drain(consumer, 18)
            address = Address.of(node.client.namespace, "orders")
            both: tuple[tuple[headgate.Client, Kind, Kind], ...]
            both = ((worker, "send", "delivery"), (maker, "delivery", "send"))
            for one, denied, allowed in both:
                rates = RateStore(one.store.server)
                hand = await rates.take(address, allowed)
                assert (await rates.lend(address, allowed, 0, hand)).code == "OK"
                for call in (rates.take(address, denied), rates.lend(address, denied, 0, hand, 1, 1)):
                    with pytest.raises(headgate.AccessDenied):
                        await call
        assert within(await delivered(node.client, 3), 100, 2)
