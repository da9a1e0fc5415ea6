"""Consumers begin where the master of a queue's first slice is lost: at the others, and at the first once it serves."""

import asyncio
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest

import headgate
from headgate.amqp.link import Link
from headgate.redis.keys import policy_key
from tests.amqp.client import read
from tests.faults.deployments import Replicated, ask, is_master
from tests.faults.features.test_hanging_slices import places
from tests.faults.test_slices import node_of
from tests.faults.traffic import GUARD
from tests.remote.grants import C
from tests.remote.people import node_with, peer_as, sdk_as
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SENDERS = 6
EACH = 5


async def fill(client: headgate.Client, name: str) -> None:
    """Send to each slice, in two sessions each; all is at a replica too."""
    await client.apply(name, kind="queue", limit=10_000, slices=3)
    for number in range(SENDERS):
        async with client.session(f"s{number}") as session:
            producer = await session.producer(name, durability="replicas:1")
            for body in range(EACH):
                headers = {"from": f"s{number}"}
                assert (await producer.send(f"{body}", headers=headers, timeout=GUARD)).slice == number % 3


class Got(dict[str, list[int]]):
    """What a consumer got, by its sender."""

    @property
    def count(self) -> int:
        return sum(map(len, self.values()))

    def note(self, sender: str, body: bytes | str) -> None:
        self.setdefault(sender, []).append(int(body))

    async def consume(self, consumer: headgate.Consumer) -> None:
        async for message in consumer:
            self.note(message.headers["from"], message.body)
            await message.accept()

    def take(self, link: Link, message: bytes, delivery: Any) -> None:
        """Note what an AMQP client got."""
        self.note("amqp", read(message))
        link.settle(delivery)


async def test_consumers_begin_where_the_first_slice_is_lost_and_come_to_it_once_its_replica_serves(
    cluster: Replicated, cleanup_namespace: str
) -> None:
    """A client, an SDK with the right to receive behind a node, and an AMQP client, none of whom knows the queue."""
    here = cleanup_namespace
    lost = (node_of(policy_key(here)) + 1) % 3  # who does not know the policy learns it first
    lie = (
        name for name in map("q{}".format, count()) if places(here, name)[0] == lost and len({*places(here, name)}) == 3
    )
    names = [next(lie) for _ in range(3)]
    master, replica = cluster.masters[lost], cluster.replicas[lost]
    for one in (*cluster.masters, *cluster.replicas):
        ask(one, "CONFIG", "SET", "cluster-require-full-coverage", "no")
    async with headgate.connect(cluster.url, namespace=here) as client:
        await asyncio.gather(*(fill(client, name) for name in names))
    ask(replica, "CONFIG", "SET", "cluster-replica-no-failover", "yes")
    async with AsyncExitStack() as stack:
        fresh = await stack.enter_async_context(headgate.connect(cluster.url, namespace=here))
        node = await stack.enter_async_context(node_with(cluster.url, here, {"ann": {">": {C}}}))
        behind = await stack.enter_async_context(sdk_as(node, "ann"))
        peer = await stack.enter_async_context(peer_as(node, "ann", "b"))
        master.kill9()
        seen, consuming = [Got() for _ in names], list[asyncio.Future[None]]()
        for queue, got, by in zip(names, seen, (fresh, behind), strict=False):
            session = await stack.enter_async_context(by.session("in"))
            consuming.append(asyncio.ensure_future(got.consume(await session.consumer(queue, window=4))))
        await peer.receiver(names[2], seen[2].take, credit=500)
        others = SENDERS * EACH * 2 // 3
        await wait_until(lambda: [got.count for got in seen] == [others] * 3, timeout=GUARD)
        assert not is_master(replica)
        ask(replica, "CONFIG", "SET", "cluster-replica-no-failover", "no")
        await wait_until(lambda: [got.count for got in seen] == [SENDERS * EACH] * 3, timeout=GUARD)
        for got in seen[:2]:
            assert got == {f"s{number}": [*range(EACH)] for number in range(SENDERS)}
        for task in consuming:
            task.cancel()
