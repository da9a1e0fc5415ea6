"""A topic over several slots, over a node: AMQP clients, and SDKs behind it, know of one topic."""

from functools import partial
from typing import Any

import pytest

import headgate
from headgate.amqp.link import Link
from headgate.core.names import slice_name
from headgate.namespace.topics import TopicIndex
from headgate.redis.keys import Address
from headgate.redis.stores.sliced_reads import every_slice
from tests.amqp.client import Peer, read
from tests.amqp.nodes import NodeProcess
from tests.remote.grants import C, M, P
from tests.remote.people import node_with, sdk_as
from tests.sdk.observing import GUARD, drain
from tests.support.waiting import wait_until


class Got:
    """What a link was sent, by sender."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}

    def __call__(self, link: Link, message: bytes, delivery: Any) -> None:
        name, _, number = read(message).partition(" ")
        self.numbers.setdefault(name, []).append(int(number))
        link.settle(delivery)

    def has(self, count: int) -> bool:
        return sum(map(len, self.numbers.values())) == count


async def subscriptions(client: headgate.Client, slices: int) -> list[int]:
    """Return how many subscriptions each slice has."""
    parts = [Address.of(client.namespace, slice_name("news", number)) for number in range(slices)]
    return [len(await TopicIndex(client.store)._subscriptions(part)) for part in parts]


async def test_amqp_clients_subscribe_at_all_slices_those_included_that_come_later(
    node: NodeProcess, client: headgate.Client
) -> None:
    await client.apply("news", kind="topic", limit="64kB", slices=2)
    by_name, durable, by_pattern = Got(), Got(), Got()
    peer = await Peer.connect(node.port)
    await peer.receiver("news", by_name, credit=500, name="a", capabilities=("topic",))
    link = await peer.receiver("news", durable, credit=500, name="b", capabilities=("topic",), durable=True)
    await peer.receiver("#", by_pattern, credit=500, name="c", capabilities=("topic",))
    await wait_until(lambda: every(client, 2, 3), timeout=GUARD)
    sessions = list[headgate.Session]()
    for slices in (2, 4):
        await client.apply("news", slices=slices)
        sessions += [client.session(f"s{slices}-{number}") for number in range(4)]
        for at, session in enumerate(sessions):
            producer = await session.producer("news")
            for number in range(10):
                await producer.send(f"{at} {len(by_name.numbers.get(str(at), ()))}{number}", timeout=GUARD)
        wanted = 40 if slices == 2 else 120
        for got in (by_name, durable, by_pattern):
            await wait_until(partial(got.has, wanted), timeout=GUARD)
            assert all(numbers == sorted(numbers) for numbers in got.numbers.values()), "each session's in order"
    sending = await peer.sender("news")
    for number in range(5):
        assert (await peer.send(sending, f"amqp {number}"))[0] == "accepted"
    await wait_until(lambda: by_name.numbers.get("amqp") == [0, 1, 2, 3, 4], timeout=GUARD)
    link.close()
    peer.flush_soon()
    await wait_until(lambda: every(client, 4, 2), timeout=GUARD)
    await peer.close()
    for session in sessions:
        await session.close()


async def every(client: headgate.Client, slices: int, count: int) -> bool:
    """Return whether each slice has so many subscriptions."""
    return await subscriptions(client, slices) == [count] * slices


async def test_users_with_narrow_rights_publish_to_and_subscribe_at_all_slices(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutant: a new slice gets no subscriptions where who makes it may not subscribe."""
    people = {"maker": {"news": {P}}, "reader": {"news": {C}}, "keeper": {"news": {M}}, "other": {"other": {P, C, M}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply("news", kind="topic", limit=10_000)
        async with sdk_as(node, "maker") as maker, sdk_as(node, "reader") as reader, reader.session() as into:
            await (await into.consumer("news", subscription="audit", durable=True)).close()
            consumer = await into.consumer("news", window=5)
            for slices in (3, 5):
                await node.client.apply("news", slices=slices)
                for _ in range(slices):
                    async with maker.session() as session:
                        await (await session.producer("news")).send("x", timeout=GUARD)
                await drain(consumer, slices)
            again = await into.consumer("news", subscription="audit", durable=True)
            await drain(again, 8)
            await again.close()
            await reader.unsubscribe("news", "audit")
            await consumer.close()
            assert await subscriptions(node.client, 5) == [0] * 5
        assert len(await every_slice(node.client.store.server, cleanup_namespace)) == 5
        async with sdk_as(node, "other") as other, other.session() as session:
            for name in ("news", "news#1"):
                with pytest.raises((headgate.AccessDenied, headgate.InvalidName)):
                    await session.consumer(name)
