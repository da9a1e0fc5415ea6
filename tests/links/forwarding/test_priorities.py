"""Priorities where messages travel: over a link, out of a spool, on a cluster."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import headgate
from headgate.policy import loads
from tests.amqp.node_processes import NodeProcess, nodes
from tests.links.policy.test_bridges import bridges, fields, rule
from tests.support.spooled import body, references, spooling
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
COUNT = 60
HIGH = range(2, COUNT, 3)
"""Of these messages; the others have no priority."""


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
def node(redis_url: str, cleanup_namespace: str) -> Iterator[NodeProcess]:
    with nodes(redis_url, cleanup_namespace, 1, "--ttl", 2) as (started,):
        yield started


async def send(client: headgate.Client, name: str) -> None:
    async with client.session("s") as session:
        producer = await session.producer(name, kind="queue")
        await asyncio.gather(
            *(producer.send(body(n), priority=9 if n in HIGH else None, timeout=30) for n in range(COUNT))
        )


async def received(client: headgate.Client, name: str) -> list[int]:
    """Return the numbers of all messages as they are delivered, each accepted before the next."""
    found: list[int] = []
    async with client.session("r") as session:
        consumer = await session.consumer(name, window=1)
        for _ in range(COUNT):
            message = await consumer.receive(timeout=30)
            assert message is not None, f"{len(found)} came"
            found.append(int(bytes(message.body[:6])))  # type: ignore[arg-type]  # bytes were sent
            assert message.priority == (9 if found[-1] in HIGH else 4)
            await message.accept(confirm=True)
        await consumer.close()
    return found


def by_priority() -> list[int]:
    return [*HIGH, *(n for n in range(COUNT) if n not in HIGH)]


async def test_the_target_of_a_link_delivers_by_priority(client: headgate.Client, node: NodeProcess) -> None:
    """A link takes them in the order of storage, and what a message says goes along."""
    await client.apply("orders", kind="queue")
    await send(client, "orders")
    more = rule("billing", 'fair_by = "priority"')
    await client.apply_policy(loads(bridges(("orders", "billing"), more=more)))

    async def all_there() -> bool:
        return int((await fields(client, "billing")).get("pending_messages", 0)) == COUNT

    await wait_until(all_there, timeout=80)
    assert await received(client, "billing") == by_priority()


async def test_what_is_spooled_goes_by_priority(client: headgate.Client, tmp_path: Path) -> None:
    """A reference is in its message's band."""
    await spooling(client, tmp_path, memory=20_000, fair_by="priority")
    await send(client, "orders")
    assert len(await references(client)) > COUNT // 3
    assert await received(client, "orders") == by_priority()


async def test_a_link_brings_what_is_spooled_with_its_priority(
    client: headgate.Client, node: NodeProcess, tmp_path: Path
) -> None:
    await spooling(client, tmp_path, memory=20_000)
    await spooling(client, tmp_path, "billing", memory=20_000, fair_by="priority")
    await send(client, "orders")
    await client.apply_policy(loads(bridges(("orders", "billing"))))

    async def all_there() -> bool:
        return int((await fields(client, "billing")).get("pending_messages", 0)) == COUNT

    await wait_until(all_there, timeout=80)
    assert len(await references(client, "billing")) > COUNT // 3
    assert await received(client, "billing") == by_priority()


async def test_on_a_cluster_a_queue_delivers_by_priority(cluster_url: str, cleanup_namespace: str) -> None:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        for name in ("orders", "invoices", "mails"):
            await client.apply(name, kind="queue", fair_by="priority")
            await send(client, name)
            assert await received(client, name) == by_priority()
            await client.remove(name)
