"""Quotas of users on a cluster: what a user has at one master counts at another, whichever answers for its quota."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack

import pytest
from redis.crc import key_slot

import headgate
from headgate.amqp.peer import Disconnected
from headgate.policy import loads
from headgate.redis.keys import SLOTS, Address
from headgate_coordinator.node.node import Node
from tests.amqp.client import Peer
from tests.remote.grants import B, C, M, P
from tests.remote.people import node_with, sdk_as
from tests.sdk.observing import GUARD
from tests.support.cluster import RedisCluster3
from tests.support.waiting import wait_until

LIMITER = "user-limits.tenants"


def quota(*lines: str) -> str:
    return "\n".join(["[[user_limit]]", 'name = "tenants"', 'users = ["ann"]', *lines])


def master_of(namespace: str, name: str) -> int:
    """Return which of three masters has a destination."""
    slot: int = key_slot(Address.of(namespace, name).key.encode())
    return slot * 3 // SLOTS


def at_each(namespace: str) -> list[str]:
    """Return a destination at each master."""
    return [next(f"q{n}" for n in range(1000) if master_of(namespace, f"q{n}") == at) for at in range(3)]


async def of_ann(node: Node, limit: str) -> int:
    """Return what a limit of ann's quota counts."""
    async with node.client.session("look") as session:
        limiter = await session.limiter(LIMITER, in_hand=False)
        return (await limiter.state(key="ann")).key_limits[limit].taken


@contextlib.asynccontextmanager
async def two_nodes(url: str, namespace: str) -> AsyncIterator[list[Node]]:
    people = {name: {">": {P, C, B, M}} for name in ("ann", "bob")}
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(node_with(url, namespace, people)) for _ in range(2)]


@pytest.fixture
async def both(cluster_url: str, cleanup_namespace: str) -> AsyncIterator[list[Node]]:
    async with two_nodes(cluster_url, cleanup_namespace) as nodes:
        yield nodes


@pytest.mark.parametrize(
    ("line", "limit"), [('rate = "12/h"', "messages"), ('byte_rate = "1200B/h"', "bytes")], ids=["rate", "byte_rate"]
)
async def test_what_a_user_sends_is_counted_over_all_masters(
    both: list[Node], cleanup_namespace: str, line: str, limit: str
) -> None:
    """Mutant: each destination, or each node, has the quota."""
    await both[0].client.apply_policy(loads(quota(line)))
    async with AsyncExitStack() as stack:
        sends = []
        for node in both:
            sdk = await stack.enter_async_context(sdk_as(node, "ann"))
            session = await stack.enter_async_context(sdk.session("s"))
            for name in at_each(cleanup_namespace):
                producer = await session.producer(name)
                sends += [producer.send(b"x" * 97, timeout=2) for _ in range(4)]
        told = await asyncio.gather(*sends, return_exceptions=True)
        refused = [error for error in told if isinstance(error, BaseException)]
        assert all("of the quota 'tenants' of user 'ann' is used up" in str(error) for error in refused), refused
        assert 8 <= len(told) - len(refused) <= 12 + 2 * 4, "a batch at each node may be more than what is left"
        assert await of_ann(both[1], limit) > 0
        bob = await stack.enter_async_context(sdk_as(both[0], "bob"))
        session = await stack.enter_async_context(bob.session("s"))
        producer = await session.producer(at_each(cleanup_namespace)[2])
        await asyncio.gather(*(producer.send(b"x", timeout=GUARD) for _ in range(20)))


@pytest.mark.parametrize("most", ["4", '"400B"'], ids=["messages", "bytes"])
async def test_what_a_user_has_in_flight_is_counted_over_all_masters(
    both: list[Node], cleanup_namespace: str, most: str
) -> None:
    """Mutant: each destination, or each node, has the quota."""
    admin, names = both[0].client, at_each(cleanup_namespace)
    async with admin.session("fills") as session:
        for name in names:
            producer = await session.producer(name)
            for number in range(8):
                await producer.send(f"{number:097}")  # 100 bytes
    await admin.apply_policy(loads(quota(f"in_flight = {most}")))
    done, held, had = 0, 0, 0

    async def take(consumer: headgate.Consumer) -> None:
        nonlocal done, held, had
        async for message in consumer:
            held += 1
            had = max(had, held)
            await asyncio.sleep(0.05)
            held -= 1
            await message.accept()
            done += 1

    async with AsyncExitStack() as stack:
        tasks = []
        for node in both:
            sdk = await stack.enter_async_context(sdk_as(node, "ann"))
            session = await stack.enter_async_context(sdk.session("s"))
            consumers = [await session.consumer(name, window=8) for name in names]
            tasks += [asyncio.create_task(take(consumer)) for consumer in consumers]
        await wait_until(lambda: done == 24 or any(task.done() for task in tasks), timeout=GUARD)
        assert done == 24
        assert 1 <= had <= 4
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_connections_and_destinations_of_a_user_are_counted_over_all_masters(
    both: list[Node], cleanup_namespace: str
) -> None:
    """Mutants: each node has the quota; a destination at another master is not counted."""
    await both[0].client.apply_policy(loads(quota("connections = 2", "destinations = 2")))
    one, two, three = at_each(cleanup_namespace)
    peers = [await Peer.connect(node.port, user="ann") for node in both]
    await peers[0].sender(one)
    await peers[1].sender(two)
    with pytest.raises(Disconnected, match="'ann' has made 2 destinations, the most allowed"):
        await peers[1].sender(three, "third")
    for node in both:
        with pytest.raises(Disconnected, match="has 2 connections over all nodes"):
            await Peer.connect(node.port, user="ann")
    assert await of_ann(both[0], "connections") == 2
    for peer in peers:
        await peer.close()


@pytest.fixture
def own_cluster() -> Iterator[RedisCluster3]:
    with RedisCluster3.start() as cluster:
        yield cluster


@pytest.mark.whole  # waits for seconds; tests of faults have failovers
async def test_while_the_master_of_a_quota_is_away_others_go_on_and_nobody_gets_more(
    own_cluster: RedisCluster3, namespace: str
) -> None:
    """Those of the quota wait, and get the rest of it as the master is back.

    Mutants: a user that cannot be counted is let in; the quota of one holds up all.
    """
    away = master_of(namespace, LIMITER)
    theirs = {"ann": at_each(namespace)[(away + 1) % 3], "bob": at_each(namespace)[(away + 2) % 3]}
    async with two_nodes(own_cluster.url, namespace) as nodes, AsyncExitStack() as stack:
        await nodes[0].client.apply_policy(loads(quota('rate = "6/h"', "connections = 2")))
        producers = {}
        for user in ("ann", "bob"):
            sdk = await stack.enter_async_context(sdk_as(nodes[0], user))
            session = await stack.enter_async_context(sdk.session("s"))
            producers[user] = await session.producer(theirs[user])
            await producers[user].send(b"x", timeout=GUARD)

        async def stored() -> int:
            return int((await nodes[0].client.explain(theirs["ann"])).fields["pending_messages"])

        async def sends() -> str:
            """Send until the quota is used up; returns the refusal."""
            while True:
                try:
                    await producers["ann"].send(b"x", timeout=3)
                except headgate.HeadgateError as error:
                    return str(error)

        async def comes() -> bool:
            with contextlib.suppress(Disconnected):
                peer = await Peer.connect(nodes[1].port, user="ann")
                stack.push_async_callback(peer.close)
                return True
            return False

        own_cluster.nodes[away].sigstop()
        try:

            async def is_told_why() -> bool:
                return "the rate of the quota 'tenants' of user 'ann' is used up" in await sends()

            await wait_until(is_told_why, timeout=GUARD)
            assert await stored() <= 3, "what the node had in hand"
            assert not await comes()
            for _ in range(3):
                await producers["bob"].send(b"x", timeout=GUARD)
        finally:
            own_cluster.nodes[away].sigcont()

        async def has_the_rest() -> bool:
            await sends()
            return await stored() >= 5

        await wait_until(has_the_rest, timeout=GUARD)
        assert await stored() <= 6
        await wait_until(comes, timeout=GUARD)
        assert not await comes(), "the SDK has the other connection"
