"""Channels of a policy, sent by real nodes over real multicast, on the loopback interface."""

from collections.abc import AsyncIterator

import pytest

import headgate
from headgate_coordinator.policy import loads
from tests.amqp.node_processes import NodeProcess, nodes
from tests.links.channels import Group, collecting, fields, opened
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
TTL = 2
LINK = "prices>channel:quotes"
BODIES = [b"%04d" % number * (1 + number % 5) for number in range(300)]


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
async def pair(redis_url: str, cleanup_namespace: str) -> AsyncIterator[list[NodeProcess]]:
    """Two nodes."""
    with nodes(redis_url, cleanup_namespace, 2, "--ttl", TTL) as started:
        yield started


@pytest.fixture
def group() -> Group:
    return Group()


async def send(client: headgate.Client, name: str, *bodies: bytes) -> None:
    async with client.session() as session:
        producer = await session.producer(name, kind="topic")
        receipts = [await producer.post(body) for body in bodies]
        for receipt in receipts:
            await receipt
        await producer.close()


async def test_each_reader_gets_all_messages_in_order(
    client: headgate.Client, pair: list[NodeProcess], group: Group
) -> None:
    await client.apply_policy(loads(group.channel("prices")))
    await opened(client)
    large = b"large" * 5000
    async with collecting(group.reader()) as one, collecting(group.reader()) as other:
        await send(client, "prices", *BODIES, large)
        for got in (one, other):
            await wait_until(lambda: len(got.bodies) == len(BODIES) + 1, timeout=20)  # noqa: B023 -- used at once
            assert got.bodies == [*BODIES, large]
            assert (got.reader.lost.total(), got.reader.refused) == (0, 0)
            assert [message.topic for message in got.messages] == ["prices"] * len(got.messages)
            assert [message.seq for message in got.messages] == list(range(1, len(got.messages) + 1))
    assert await settled(client)


async def settled(client: headgate.Client) -> bool:
    async def empty() -> bool:
        return (await fields(client, "prices"))["pending_messages"] == "0"

    return bool(await wait_until(empty, timeout=20))
