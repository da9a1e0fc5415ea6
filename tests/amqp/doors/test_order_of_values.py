"""AMQP clients and SDKs behind a node send to a queue that keeps the order of a property's values over its slices."""

import asyncio
from collections import Counter
from functools import partial
from itertools import pairwise

import headgate
from headgate.amqp.link import Link
from headgate.core.amqp.message import AmqpMessage, encode
from headgate.redis.keys import Address
from headgate.redis.stores.spreads import SpreadStore
from tests.amqp.client import Peer
from tests.amqp.nodes import NodeProcess
from tests.remote.grants import C, P
from tests.remote.people import node_with, peer_as, sdk_as
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

VALUES = 8


def message(value: int, number: int) -> bytes:
    return encode(AmqpMessage(kind="data", body=b"%d" % number, application_properties={"customer": value}))


async def put(peer: Peer, link: Link, first: int, count: int) -> None:
    """Send that many messages of each value over one link, without waiting between them."""
    fates = []
    for number in range(first, first + count):
        fates += [await peer.put_raw(link, message(value, number)) for value in range(VALUES)]
    assert {outcome for outcome, _ in await asyncio.gather(*fates)} == {"accepted"}


def in_order(got: dict[int, list[int]]) -> bool:
    return all(before < after for numbers in got.values() for before, after in pairwise(numbers))


async def goes_to(client: headgate.Client, slices: int) -> bool:
    """Return whether messages go to so many slices now."""
    now, _ = await SpreadStore(client.store.server).in_force(Address.of(client.namespace, "orders"))
    return now is not None and now.slices == slices


async def test_messages_over_a_node_stay_in_order_by_value_while_slices_change(
    node: NodeProcess, client: headgate.Client
) -> None:
    got: dict[int, list[int]] = {value: [] for value in range(VALUES)}
    slices_seen = Counter[int]()

    async def consume(consumer: headgate.Consumer) -> None:
        async for one in consumer:
            if one.delivery_count == 0:
                got[int(one.headers["customer"])].append(int(one.body))
            slices_seen[int(one.id.partition(":")[0]) if ":" in one.id else 0] += 1
            await one.accept()

    await client.apply("orders", kind="queue", limit="64kB", slices=2, order_by="header:customer")
    async with client.session("in") as into:
        consumer = await into.consumer("orders", window=20)
        consuming = asyncio.ensure_future(consume(consumer))
        peer = await Peer.connect(node.port)
        link = await peer.sender("orders")
        for at, slices in enumerate((2, 6, 1)):
            sending = asyncio.ensure_future(put(peer, link, 20 * at, 10))
            await client.apply("orders", slices=slices)
            await sending
            await wait_until(partial(goes_to, client, slices), timeout=GUARD)
            await put(peer, link, 20 * at + 10, 10)
        await wait_until(lambda: sum(map(len, got.values())) == 60 * VALUES, timeout=GUARD)
        await peer.close()
        await consumer.close()
        await consuming
    assert in_order(got)
    assert len(slices_seen) > 2


async def test_users_who_may_only_send_keep_the_order_and_take_the_steps_of_a_change(
    redis_url: str, cleanup_namespace: str
) -> None:
    async with node_with(redis_url, cleanup_namespace, {"maker": {"orders": {P}}, "worker": {"orders": {C}}}) as node:
        await node.client.apply("orders", kind="queue", limit="64kB", slices=2, order_by="header:customer")
        async with (
            sdk_as(node, "maker") as maker,
            sdk_as(node, "worker") as worker,
            worker.session() as into,
            maker.session() as session,
        ):
            producer = await session.producer("orders")
            consumer = await into.consumer("orders", window=5)
            for number in range(6):
                if number == 3:
                    await node.client.apply("orders", slices=5)
                await producer.send(f"{number}", headers={"customer": 1}, timeout=GUARD)
                one = await consumer.receive(timeout=GUARD)
                assert one is not None
                assert one.body == f"{number}"
                await one.accept(confirm=True)
        now, to_come = await SpreadStore(node.client.store.server).in_force(Address.of(cleanup_namespace, "orders"))
        assert now is not None
        assert (now.slices, to_come) == (5, "")
        async with peer_as(node, "maker") as peer:
            link = await peer.sender("orders")
            assert (await peer.send(link, "no value")) == ("accepted", "")
