"""Windows: a change takes effect at once, settings give one to who names none, nobody sits on what others need."""

import asyncio

import pytest

import headgate
from headgate import Window
from headgate.namespace.defaults import Defaults
from tests.sdk.consuming.test_consumer import fill, found_nothing, receive
from tests.sdk.observing import GUARD, drain, field, look
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def recorded(client: headgate.Client, consumer: headgate.Consumer) -> str:
    return (await look(client, "orders")).consumers[consumer.id]["window"]


async def test_raise_lower_pause_and_resume_take_effect_at_once(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 100)
        consumer = await session.consumer("orders", window=10)
        await wait_until(lambda: consumer.held_messages == 10)
        await consumer.configure(window=20)
        await wait_until(lambda: consumer.held_messages == 20)
        await consumer.configure(window=4)
        assert consumer.window == Window(4)
        for left in range(19, 3, -1):
            await (await receive(consumer)).accept(confirm=True)
            assert consumer.held_messages == left, "nothing comes while more than the window is held"
        await drain(consumer, 10)
        assert consumer.held_messages <= 4
        await consumer.configure(window="paused")
        assert await field(client, "orders", "active") == 0
        while consumer.held_messages:
            await (await receive(consumer)).accept(confirm=True)
        assert await consumer.receive(timeout=0.05) is None
        await consumer.configure(window="pull")
        assert (await field(client, "orders", "active"), consumer.held_messages) == (1, 0)
        await (await receive(consumer)).accept()
        await consumer.configure(window="unlimited")
        await wait_until(lambda: consumer.held_messages >= 60)
        assert await recorded(client, consumer) == "unlimited/unlimited"


async def test_a_receiver_that_waits_while_paused_gets_a_message_on_resume(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 1)
        consumer = await session.consumer("orders", window="paused")
        waiting = asyncio.create_task(receive(consumer))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await consumer.configure(window=5)
        await (await asyncio.wait_for(waiting, GUARD)).accept(confirm=True)


async def test_who_names_no_window_has_what_the_settings_say_and_follows_them(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", consumer_window=7)
    async with client.session("s") as session:
        await fill(session, 50)
        follows, keeps = await session.consumer("orders"), await session.consumer("orders", window=3)
        assert (follows.window, keeps.window) == (Window(7), Window(3))
        await client.apply("orders", consumer_window=Window(9, "1MiB"))
        await wait_until(lambda: follows.window == Window(9, "1MiB"))
        await wait_until(lambda: follows.held_messages == 9)
        await client.apply("orders", consumer_window="paused")
        await wait_until(lambda: follows.window == Window.paused)
        assert keeps.window == Window(3)
        await client.apply("orders", consumer_window="default")
        await wait_until(lambda: follows.window == Window(1000))


async def test_a_rate_of_the_settings_holds_for_who_names_none(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", consumer_rate=0.5)
    async with client.session("s") as session:
        await fill(session, 10)
        consumer = await session.consumer("orders")
        await receive(consumer)
        waiting = asyncio.create_task(receive(consumer))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await client.apply("orders", consumer_rate="default")
        await wait_until(lambda: consumer.pacing.rate is None)


@pytest.mark.parametrize(
    ("subscription", "durable", "window"),
    [("audit", True, Window(10)), ("audit", False, Window(10)), ("mail", True, Window(5)), ("mail", False, Window(50))],
)
async def test_a_subscriptions_own_window_goes_before_the_durable_and_the_common(
    subscription: str, durable: bool, window: Window
) -> None:
    fields = {"subscription_windows": "a%2Fb=3 audit=10/unlimited", "durable_window": "5/unlimited",
              "consumer_window": "50/unlimited"}  # fmt: skip
    assert Defaults.of(fields).consumer_window(subscription, durable=durable) == window


async def test_where_nothing_is_set_a_window_is_a_thousand_messages() -> None:
    assert Defaults.of({}).consumer_window("queue", durable=False) == Window(1000)


async def test_who_does_nothing_with_what_it_holds_gives_it_back_when_others_wait(client: headgate.Client) -> None:
    """Row F09: prefetched messages of an idle consumer go to one that waits."""
    async with client.session("s") as session:
        await fill(session, 20)
        idle = await session.consumer("orders")
        mine = await receive(idle)
        await wait_until(lambda: idle.held_messages == 20)
        busy = await session.consumer("orders")
        others = await drain(busy, 19)
        assert {message.delivery_count for message in others} == {0}
        assert idle.held_messages == 1
        await mine.accept(confirm=True)
        await fill(session, 1)
        await busy.close()
        await (await receive(idle)).accept(confirm=True)


async def test_it_keeps_what_it_holds_while_nobody_waits(client: headgate.Client) -> None:
    async with client.session("s", ttl=1) as session:
        await fill(session, 20)
        idle = await session.consumer("orders")
        await wait_until(lambda: idle.held_messages == 20)
        await asyncio.sleep(0.8)
        assert idle.held_messages == 20


async def test_what_one_without_room_was_woken_for_goes_to_another_that_waits(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: it lies beside another that waits, until that looks by itself."""
    monkeypatch.setattr("headgate.core.fetching.POLL", 3600)
    async with client.session() as one, other.session() as two, client.session() as out:
        producer = await out.producer("orders")
        pulls = await one.consumer("orders", window="pull")
        assert await pulls.receive(timeout=0.05) is None
        waits = await two.consumer("orders")
        getting = asyncio.ensure_future(receive(waits))
        await wait_until(lambda: found_nothing(waits))
        await producer.send("1")
        assert (await getting).body == "1"
        getting = asyncio.ensure_future(receive(pulls))
        await producer.send("2")
        assert (await getting).body == "2", "it looks again once somebody asks"
