"""Iteration ends when the consumer is closed, and not before, whoever else takes its messages meanwhile."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import headgate
import headgate.sync
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, field, look
from tests.sdk.workers import Worker
from tests.support.waiting import wait_for, wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
def threads(redis_url: str, cleanup_namespace: str) -> Iterator[headgate.sync.Client]:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


async def send(session: headgate.Session, count: int, *destinations: str) -> None:
    for destination in destinations:
        producer = await session.producer(destination)
        for start in range(0, count, 500):
            numbers = range(start, min(count, start + 500))
            await asyncio.gather(*(producer.send(f"{destination} {number}") for number in numbers))


async def expired(client: headgate.Client, destination: str, session: str) -> bool:
    """Look for the lease of a session as others do, who take what it held."""
    await client.store.reap(Address.of(client.namespace, destination))
    return not any(one.startswith(session) for one in (await look(client, destination)).consumers)


@pytest.mark.whole
@pytest.mark.parametrize("way", ["iterates", "iterates_in_threads"])
async def test_iteration_goes_on_after_a_pause_longer_than_the_lease(
    client: headgate.Client, redis_url: str, way: str
) -> None:
    async with client.session("s") as session:
        await send(session, 3000, "orders")
    with Worker(way, redis_url, client.namespace, "orders", 100) as worker:
        (paused,) = await asyncio.to_thread(worker.ready)  # it has stopped itself, with all of its defaults
        await wait_until(lambda: expired(client, "orders", paused), timeout=4 * GUARD)
        worker.sigcont()
        await wait_until(lambda: drained(client, "orders"), timeout=2 * GUARD)
        assert worker.process.poll() is None
        worker.tell("close")
        assert await asyncio.to_thread(worker.next_line) == ["ended"]


async def drained(client: headgate.Client, destination: str) -> bool:
    return await field(client, destination, "pending_messages") == 0


@pytest.mark.parametrize("workers", [4, 16])
async def test_tasks_that_share_a_consumer_all_go_on_until_it_is_closed(client: headgate.Client, workers: int) -> None:
    got: Counter[int] = Counter()
    async with client.session("s") as session:
        await send(session, 3000, "orders")
        consumer = await session.consumer("orders")

        async def work(number: int) -> None:
            async for message in consumer:
                await message.accept()
                got[number] += 1

        working = [asyncio.create_task(work(number)) for number in range(workers)]
        await wait_until(lambda: drained(client, "orders"), timeout=2 * GUARD)
        assert [task for task in working if task.done()] == []
        await send(session, workers, "orders")
        await wait_until(lambda: drained(client, "orders"), timeout=2 * GUARD)
        assert [task for task in working if task.done()] == []
        await consumer.close()
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*working)
    assert got.total() == 3000 + workers


async def test_tasks_that_share_a_wildcard_consumer_all_go_on_until_it_is_closed(client: headgate.Client) -> None:
    topics = [f"news.{number}" for number in range(4)]
    for topic in topics:
        await client.apply(topic, kind="topic")
    got: Counter[int] = Counter()
    async with client.session("s") as session:
        consumer = await session.consumer("news.*", subscription="audit", window=200)

        async def work(number: int) -> None:
            async for message in consumer:
                await message.accept()
                got[number] += 1

        working = [asyncio.create_task(work(number)) for number in range(8)]
        await send(session, 500, *topics)
        await wait_until(lambda: got.total() == 2000, timeout=2 * GUARD)
        assert [task for task in working if task.done()] == []
        await consumer.close()
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*working)


@pytest.mark.whole  # test_sync.py has threads that share one
def test_threads_that_share_a_consumer_all_go_on_until_it_is_closed(threads: headgate.sync.Client) -> None:
    with threads.session("s") as session, ThreadPoolExecutor(8) as pool:
        producer, consumer = session.producer("orders"), session.consumer("orders")
        for sending in [producer.post(f"{number}") for number in range(3000)]:
            sending.result(GUARD)

        def work() -> int:
            got = 0
            for message in consumer:
                message.accept()
                got += 1
            return got

        working = [pool.submit(work) for _ in range(8)]
        wait_for(lambda: int(threads.explain("orders").fields["pending_messages"]) == 0, timeout=2 * GUARD)
        assert [task for task in working if task.done()] == []
        consumer.close()
        assert sum(task.result(GUARD) for task in working) == 3000


@pytest.mark.parametrize("destination", ["orders", "news.*"])
async def test_receivers_share_the_rate_of_their_consumer(client: headgate.Client, destination: str) -> None:
    topic = destination.replace("*", "one")
    await client.apply(topic, kind="topic" if "*" in destination else "queue")
    async with client.session("s") as session:
        consumer = await session.consumer(destination, rate=100)
        got: list[float] = []

        async def work() -> None:
            async for message in consumer:
                got.append(time.monotonic())
                await message.accept()

        working = [asyncio.create_task(work()) for _ in range(8)]
        began = time.monotonic()
        for _ in range(10):  # fewer than there are receivers, again and again
            await send(session, 4, topic)
        await wait_until(lambda: len(got) == 40)
        assert [task for task in working if task.done()] == []
        # Not any shorter: each alone at that rate would be done in an eighth of the time. The first may go at once.
        assert got[-1] - began >= 38 / 100
        await consumer.close()
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*working)


async def test_a_turn_that_comes_too_late_is_not_waited_for_and_not_lost(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await send(session, 3, "orders")
        consumer = await session.consumer("orders", rate="1/h")
        first = await consumer.receive(timeout=GUARD)
        assert first is not None
        async with asyncio.timeout(GUARD):
            began = time.monotonic()
            assert await consumer.receive(timeout=0.05) is None
            assert time.monotonic() - began >= 0.049, "who asks again and again does not spin"
            assert await consumer.receive(timeout=0) is None
        consumer.pacing.set(1000)
        assert await consumer.receive(timeout="unlimited") is not None
