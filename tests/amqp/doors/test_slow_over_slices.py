"""Slow consumers of a queue over several slots, over a node: AMQP clients, and SDKs with few rights."""

from typing import Any

import pytest

import headgate
from headgate.amqp.link import Link
from headgate.redis.keys import Address
from headgate.redis.stores.paces import Pace, PaceStore
from tests.amqp.client import Peer
from tests.amqp.nodes import NodeProcess
from tests.remote.grants import C, P
from tests.remote.people import node_with, sdk_as
from tests.sdk.namespace.test_shared_deliveries import stock
from tests.sdk.observing import drain
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_a_link_that_settles_nothing_is_detached_and_others_get_what_it_held(
    node: NodeProcess, client: headgate.Client
) -> None:
    """Mutant: the link keeps what other slices gave it."""
    held: list[Any] = []

    def keep(_link: Link, message: bytes, _delivery: Any) -> None:
        held.append(message)

    await client.apply("orders", kind="queue", slices=3, slow_rate=1000, slow_period="50ms")
    await stock(client, 6, 3)
    peer = await Peer.connect(node.port)
    link = await peer.receiver("orders", keep, credit=10)
    await wait_until(lambda: len(held) == 6)
    await client.apply("orders", slow_action="detach")
    await wait_until(lambda: link in peer.gone)
    await client.apply("orders", slow_action="notify")
    async with client.session("c") as session:
        consumer = await session.consumer("orders")
        await drain(consumer, 6)
        await consumer.close()
    await peer.close()


async def test_who_may_only_receive_is_judged_and_judges_nobody_else(redis_url: str, cleanup_namespace: str) -> None:
    """Mutants: it needs another right; it may have consumers of others closed."""
    people = {"maker": {"orders": {P}}, "worker": {"orders": {C}}, "rival": {"orders": {C}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply("orders", kind="queue", slices=3, slow_rate=1000, slow_period="50ms")
        async with sdk_as(node, "maker") as maker, sdk_as(node, "worker") as worker, sdk_as(node, "rival") as rival:
            await stock(maker, 6, 3)
            async with worker.session() as into:
                consumer = await into.consumer("orders", window=6)
                await wait_until(lambda: consumer.is_slow)
                paces, address = PaceStore(rival.store.server), Address.of(node.client.namespace, "orders")
                for call in (
                    paces.look(address, into.id, 1),
                    paces.judge(address, into.id, 1, began=0, busy_ms=0, total=Pace("OK"), parts="x"),
                    PaceStore(maker.store.server).look(address, "s~00000000", 1),
                ):
                    with pytest.raises(headgate.AccessDenied):
                        await call
                await drain(consumer, 6)
                await wait_until(lambda: not consumer.is_slow)
