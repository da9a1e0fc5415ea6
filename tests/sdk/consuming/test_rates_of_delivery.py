"""Rates of consumers: shared by all of a destination, and of one alone."""

import asyncio
import time

import headgate
from tests.sdk.consuming.test_consumer import fill
from tests.sdk.observing import GUARD, drain, field
from tests.support.waiting import wait_until


async def test_all_hosts_together_keep_to_the_destinations_rate(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("orders", kind="queue", delivery_rate=200, delivery_burst=10)
    async with client.session("a") as a, other.session("b") as b:
        await fill(a, 60)
        begin = time.monotonic()
        consumers = [await a.consumer("orders", window=5), await b.consumer("orders")]
        arrived: list[headgate.Message] = []

        async def take(consumer: headgate.Consumer) -> None:
            async for message in consumer:
                arrived.append(message)
                await message.accept()

        tasks = [asyncio.create_task(take(consumer)) for consumer in consumers]
        await wait_until(lambda: len(arrived) == 60)
        took = time.monotonic() - begin
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert 200 * took + 10 >= 60


async def test_a_change_of_the_rate_is_noticed_by_who_waits(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", delivery_rate=0.001, delivery_burst=1)
    async with client.session("a") as session:
        await fill(session, 20)
        consumer = await session.consumer("orders")
        await drain(consumer, 1)
        assert await consumer.receive(timeout=0.05) is None
        await client.apply("orders", delivery_rate="default", delivery_burst="default")
        await drain(consumer, 19)


async def test_a_consumers_own_rate_slows_what_it_takes_and_not_what_it_holds(client: headgate.Client) -> None:
    """Row A07: a slow rate with a large window fills the buffer."""
    async with client.session("a") as session:
        await fill(session, 100)
        consumer = await session.consumer("orders", window=80, rate=10)
        await wait_until(lambda: consumer.held_messages == 80)
        begin = time.monotonic()
        for _ in range(4):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept()
        assert time.monotonic() - begin >= 0.29, "three tenths of a second for three more than the first"
        assert await field(client, "orders", "pending_messages") >= 96
