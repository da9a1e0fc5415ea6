"""BlazingMQ: unconfirmed messages and bytes, given when attaching and changed at any time."""

import asyncio

import pytest

import headgate
from headgate import Window
from tests.conformance.story import fill, held, holds, take
from tests.sdk.observing import drain, field

pytestmark = pytest.mark.one_server


@pytest.mark.parametrize(
    ("window", "count"),
    [(Window(messages=7), 7), (Window("unlimited", 500), 5), (Window(7, 500), 5), (Window(3, 500), 3)],
    ids=repr,
)
async def test_b01_messages_are_pushed_up_to_so_many_and_so_many_bytes(
    client: headgate.Client, window: Window, count: int
) -> None:
    await fill(client, "orders", 20, 100)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=window)
        await holds(client, consumer, count)  # nobody asked for them
        for left in range(20, 0, -1):
            message = await take(consumer)
            assert await held(client, consumer) <= min(count, left)
            await message.accept(confirm=True)


async def test_b02_given_when_attaching_and_changed_at_any_time(client: headgate.Client) -> None:
    await fill(client, "orders", 100)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=10)
        await holds(client, consumer, 10)
        await consumer.configure(window=30)
        await holds(client, consumer, 30)
        await consumer.configure(window=20)  # below what it holds: nothing more until enough is confirmed
        for _ in range(15):
            await (await take(consumer)).accept()
        await consumer.flush()
        assert await held(client, consumer) == 15
        for _ in range(5):
            await (await take(consumer)).accept()
        await holds(client, consumer, 20)


async def test_b03_at_capacity_the_rest_stays_in_the_queue_until_messages_are_confirmed(
    client: headgate.Client,
) -> None:
    await fill(client, "orders", 10)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=Window(10, top_up=0.1))
        messages = [await take(consumer) for _ in range(10)]
        await fill(client, "orders", 5)  # new ones arrive
        assert await consumer.receive(timeout=0.05) is None
        assert (await held(client, consumer), await field(client, "orders", "pending_messages")) == (10, 15)
        for number in range(1, 6):
            await messages[number - 1].accept()
            messages.append(await take(consumer))
            assert await held(client, consumer) == 10
            assert await field(client, "orders", "pending_messages") == 15 - number


async def test_b04_a_thousand_messages_or_a_hundred_megabytes_whichever_comes_first(client: headgate.Client) -> None:
    window = Window(1000, "100MB")
    await fill(client, "small", 1200, 100)
    await fill(client, "large", 27, 4_000_000)
    async with client.session("s") as session:
        small = await session.consumer("small", window=window)
        await holds(client, small, 1000)
        large = await session.consumer("large", window=window)
        await holds(client, large, 25)
        assert large.held_bytes == 100_000_000
        assert await large.receive(timeout=0) is not None
        await drain(large, 26)
    await client.purge("large")


async def test_b05_a_paused_consumer_is_routed_nothing_and_others_get_it(client: headgate.Client) -> None:
    async with client.session("s") as session:
        paused = await session.consumer("orders", window="paused")
        await fill(client, "orders", 20)
        another = await session.consumer("orders", window=5)
        await drain(another, 20)
        assert (await held(client, paused), paused.held_messages) == (0, 0)
        await another.close()
        await fill(client, "orders", 3)
        assert await paused.receive(timeout=0.05) is None
        await paused.configure(window=1000)  # it goes on when it wants to
        await drain(paused, 3)


async def test_b06_one_message_is_one_at_a_time(client: headgate.Client) -> None:
    await fill(client, "orders", 4)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=1)
        for _ in range(4):
            message = await take(consumer)
            another = asyncio.ensure_future(consumer.receive(timeout=0.02))
            assert await another is None
            assert await held(client, consumer) == 1
            await message.accept(confirm=True)


async def test_b07_each_subscription_has_its_own(client: headgate.Client) -> None:
    await client.apply("news", kind="topic", subscription_windows={"audit": 10, "index": Window("unlimited", 300)})
    async with client.session("s") as session:
        consumers = [await session.consumer("news", subscription=name) for name in ("audit", "index", "other")]
        await fill(client, "news", 30, 100)
        for consumer, count in zip(consumers, (10, 3, 30), strict=True):
            await holds(client, consumer, count)
        await drain(consumers[0], 30)
        assert [await held(client, consumer) for consumer in consumers] == [0, 3, 30]  # at capacity by themselves
