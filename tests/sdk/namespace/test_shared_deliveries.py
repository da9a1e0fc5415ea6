"""Consumers at all slices of a destination share the rate at which they are given messages, wherever they are."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import headgate
from headgate.core.names import slice_name
from headgate.redis.keys import Address
from tests.lua.promises.test_p8_rates import most_beyond
from tests.sdk.observing import GUARD, take_turns
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


Entry = tuple[int, int]


async def delivered(client: headgate.Client, slices: int, name: str = "orders") -> list[Entry]:
    """Return when messages of any of the slices were delivered, in microseconds, and how many."""
    found = []
    for number in range(slices):
        address = Address.of(client.namespace, slice_name(name, number))
        key = f"{address.key}:ledger"
        for _, fields in await client.store.server.command(address.shared[0], "XRANGE", key, "-", "+"):
            row = fields[1].decode().split(",")
            for note in row[7].split(";"):
                words = note.split(":")
                if words[0] == "fetched" and int(words[2]) > 0:
                    found.append((int(row[1]) * 1000, int(words[2])))
    return sorted(found)


def within(found: list[Entry], rate: int, burst: int) -> bool:
    """Return whether no window holds more than the rate allows; an entry tells its millisecond alone."""
    return most_beyond(found, rate, burst) <= 0.002 * rate


async def stock(client: headgate.Client, messages: int, sessions: int = 6) -> None:
    """Store messages at all slices."""
    for number in range(sessions):
        async with client.session(f"p{number}") as session:
            producer = await session.producer("orders")
            for _ in range(messages // sessions):
                await producer.send(b"x", timeout=GUARD)


async def take(consumer: headgate.Consumer, taken: list[headgate.Message]) -> None:
    async for message in consumer:
        taken.append(message)
        await message.accept()


async def test_consumers_of_all_hosts_share_one_rate_also_when_the_number_of_slices_changes(
    client: headgate.Client, other: headgate.Client
) -> None:
    rate, burst = 200, 10
    await client.apply("orders", kind="queue", slices=3, delivery_rate=f"{rate}/s", delivery_burst=burst)
    await stock(client, 60)
    taken: list[headgate.Message] = []
    async with client.session("a") as a, other.session("b") as b:
        consumers = [await a.consumer("orders", window=5), await b.consumer("orders"), await b.consumer("orders")]
        taking = asyncio.gather(*(take(consumer, taken) for consumer in consumers))
        await wait_until(lambda: len(taken) > 20, timeout=GUARD)
        await client.apply("orders", slices=5)
        await stock(client, 60)
        await wait_until(lambda: len(taken) == 120, timeout=GUARD)
        for consumer in consumers:
            await consumer.close()
        await taking
    found = await delivered(client, 5)
    assert sum(count for _, count in found) >= 120
    assert within(found, rate, burst)


async def test_a_rate_that_is_set_while_all_receive_holds_from_then_on_and_is_explained(
    client: headgate.Client,
) -> None:
    """Mutants: a slice that has no such rate yet delivers what it likes; nobody is told why nothing comes."""
    await client.apply("orders", kind="queue", slices=3)
    await stock(client, 60)
    taken: list[headgate.Message] = []
    async with client.session("a") as session:
        consumer = await session.consumer("orders", window=1)
        await consumer.receive(timeout=GUARD)  # and keeps it
        await consumer.configure(window=2)
        await client.apply("orders", delivery_rate="50/s", delivery_burst=2)
        since = len(await delivered(client, 3))
        taking = asyncio.create_task(take(consumer, taken))
        await wait_until(lambda: len(taken) > 20, timeout=GUARD)
        assert within((await delivered(client, 3))[since:], 50, 2)
        await client.apply("orders", delivery_rate="1/h", delivery_burst=1, limit=100)

        async def explained() -> bool:
            told = str(await client.explain("orders"))
            return "delivery is limited to" in told and "slice" not in told

        await wait_until(explained, timeout=GUARD)
        await client.apply("orders", delivery_rate="default", delivery_burst="default")
        await wait_until(lambda: len(taken) == 59, timeout=GUARD)
        await consumer.close()
        await taking


async def test_each_message_of_a_topic_counts_for_each_subscription(client: headgate.Client) -> None:
    await client.apply("orders", kind="topic", slices=3, delivery_rate="100/s", delivery_burst=3)
    async with client.session("a") as a, client.session("b") as b:
        consumers = [await a.consumer("orders"), await b.consumer("orders", subscription="b")]
        taken: list[headgate.Message] = []
        taking = asyncio.gather(*(take(consumer, taken) for consumer in consumers))
        await stock(client, 18)
        await wait_until(lambda: len(taken) == 36, timeout=GUARD)
        for consumer in consumers:
            await consumer.close()
        await taking
    assert within(await delivered(client, 3), 100, 3)


@pytest.fixture
async def cluster(cluster_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 21))])
async def test_no_consumer_that_is_killed_or_stands_still_has_more_delivered_or_holds_the_rate(
    cluster: headgate.Client, cluster_url: str, seed: int
) -> None:
    """Processes that receive from slices at three masters are killed, or stopped, again and again."""
    rate, burst = 60, 5
    await cluster.apply("orders", kind="queue", slices=6, delivery_rate=f"{rate}/s", delivery_burst=burst)
    await stock(cluster, 300, 12)

    async def count() -> int:
        return sum(one for _, one in await delivered(cluster, 6))

    def begin(_number: int) -> Worker:
        return Worker("takes", cluster_url, cluster.namespace, "orders", 1)

    await take_turns(begin, count, seed, still=True)
    assert within(await delivered(cluster, 6), rate, burst)
