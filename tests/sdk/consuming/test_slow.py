"""Slow consumers, as a service sees them."""

import asyncio

import pytest

import headgate
from headgate import SlowConsumer
from headgate.redis.keys import Address
from tests.sdk.consuming.test_consumer import fill, receive
from tests.sdk.observing import GUARD, drain
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def work_slowly(client: headgate.Client, consumer: headgate.Consumer) -> None:
    """Take messages and settle none."""
    async with asyncio.timeout(GUARD):
        while True:
            await client.store.reap(Address.of(client.namespace, "orders"))
            consumer.inbox.take_all()
            await consumer.receive(timeout=0.05)


async def test_a_slow_consumer_is_told_and_its_session_too(
    client: headgate.Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.apply("orders", kind="queue", slow_rate=1000, slow_period="50ms")
    async with client.session("s", ttl=1) as session:
        heard: list[headgate.Consumer] = []
        session.on_slow(heard.append)
        await fill(session, 10)
        consumer = await session.consumer("orders", window=3)
        assert not consumer.is_slow
        await wait_until(lambda: consumer.is_slow)
        assert heard == [consumer]
        await drain(consumer, 10)
        await wait_until(lambda: not consumer.is_slow)
    assert caplog.text.count("is slow") == 1
    assert caplog.text.count("is no longer slow") == 1


async def test_a_callback_of_on_slow_that_fails_is_logged_and_breaks_nothing(
    client: headgate.Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.apply("orders", kind="queue", slow_rate=1000, slow_period="50ms")
    heard: list[headgate.Consumer] = []

    def fail(_: object) -> None:
        raise RuntimeError("at once")

    async def fail_later(_: object) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("later")

    async with client.session("s", ttl=1) as session:
        for callback in (fail, fail_later, heard.append):
            session.on_slow(callback)
        await fill(session, 10)
        consumer = await session.consumer("orders", window=3)
        await wait_until(lambda: consumer.is_slow)
        await wait_until(lambda: caplog.text.count("a callback of on_slow failed") == 2)
        assert heard == [consumer]
        await drain(consumer, 10)
        await wait_until(lambda: not consumer.is_slow, description="hints are still heard")
    assert "at once" in caplog.text
    assert "later" in caplog.text


async def test_a_slow_consumer_is_detached_and_others_get_what_it_held(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", slow_rate=1000, slow_period="50ms", slow_action="detach")
    async with client.session("s", ttl=1) as session:
        await fill(session, 5)
        consumer = await session.consumer("orders", window=5)
        message = await receive(consumer)
        with pytest.raises(SlowConsumer, match=consumer.id) as caught:
            await work_slowly(client, consumer)
        assert (caught.value.destination, caught.value.consumer) == ("orders", consumer.id)
        with pytest.raises(headgate.HeadgateError):
            await message.accept()
        await consumer.close()
        await client.apply("orders", slow_action="notify")
        other = await session.consumer("orders")
        assert {m.delivery_count for m in await drain(other, 5)} == {1}


async def test_an_idle_consumer_is_never_detached(client: headgate.Client) -> None:
    await client.apply(
        "orders", kind="queue", slow_rate=1000, slow_multiple=1, slow_period="200ms", slow_action="detach"
    )
    async with client.session("s", ttl=1) as session:
        consumer = await session.consumer("orders", window=5)
        assert await consumer.receive(timeout=0.5) is None
        await fill(session, 5)
        await drain(consumer, 5)
        assert await consumer.receive(timeout=0.3) is None
        assert not consumer.is_slow
