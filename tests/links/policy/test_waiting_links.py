"""Links that wait for room at their target, beside others that do: none keeps what another waits for."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import headgate
from headgate.policy import loads
from tests.links.policy.test_bridges import bridges, rule, settled
from tests.links.policy.test_sliced_sources import working

pytestmark = pytest.mark.one_server
SMALL, LARGE = b"x" * 60, b"x" * 900


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.mark.parametrize("names", [("north", "south"), ("north", "billing")])
async def test_two_that_wait_for_room_do_not_wait_for_each_other(
    client: headgate.Client, names: tuple[str, str]
) -> None:
    """Two links, or one and a sender, have credit left of small messages; then each needs more than half the limit."""
    links = bridges(("north", "billing"), ("south", "billing"), more=rule("billing", 'kind = "queue"\nlimit = 1000'))
    await client.apply_policy(loads(links))
    got: list[int] = []

    async def drain() -> None:
        async with client.session() as session:
            consumer = await session.consumer("billing")
            while len(got) < 24:
                message = await consumer.receive(timeout=60)
                assert message is not None
                got.append(len(message.body))
                await message.accept()

    async def feed(name: str) -> None:
        async with client.session() as session:
            producer = await session.producer(name)
            for body in (SMALL, LARGE) * 6:
                await producer.send(body, timeout=60)

    async with working(client):
        await asyncio.gather(drain(), *map(feed, names))
        await settled(client, "billing")
    assert sorted(got) == [60] * 12 + [900] * 12
