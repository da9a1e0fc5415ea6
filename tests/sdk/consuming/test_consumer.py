"""Consumers: windows in messages and bytes, live changes, every way to settle, subscriptions of a topic."""

import asyncio
from functools import partial
from typing import Any

import pytest

import headgate
from headgate import Closed, InvalidValue, PolicyError, SessionExpired, Window
from headgate.policy import loads
from headgate.redis.hints import PubSubWakeUps
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, counts, drain, feed_of, field, look
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def fill(session: headgate.Session, count: int, destination: str = "orders", size: int = 97) -> None:
    producer = await session.producer(destination)
    await asyncio.gather(*(producer.send(f"{number}".ljust(size)) for number in range(count)))
    await producer.close()


async def receive(consumer: headgate.Consumer) -> headgate.Message:
    message = await consumer.receive(timeout=GUARD)
    assert message is not None
    return message


def numbers(messages: list[headgate.Message]) -> list[int]:
    return [int(message.body) for message in messages]


async def only_d(client: headgate.Client) -> bool:
    await client.store.reap(Address.of(client.namespace, "news"))
    return set((await look(client, "news")).subscriptions) == {"d"}


async def test_it_never_holds_more_than_its_window_of_messages(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 100)
        consumer = await session.consumer("orders", window=10)
        for taken in range(0, 100, 10):
            await wait_until(lambda: consumer.held_messages == 10)
            messages = [await receive(consumer) for _ in range(10)]
            assert await consumer.receive(timeout=0) is None
            held = (await look(client, "orders")).consumers[consumer.id]
            assert int(held["delivered"]) - int(held["settled"]) == 10
            assert numbers(messages) == list(range(taken, taken + 10))
            for message in messages:
                await message.accept()
        await consumer.flush()


async def test_it_exceeds_its_window_of_bytes_by_one_message_at_most_and_always_gets_one(
    client: headgate.Client,
) -> None:
    async with client.session("s") as session:
        await fill(session, 30, size=97)  # 100 bytes each
        consumer = await session.consumer("orders", window=Window(bytes=350))
        received: list[headgate.Message] = []
        while len(received) < 30:
            message = await receive(consumer)
            assert consumer.held_bytes <= 350 + 100
            received.append(message)
            await message.accept()
        small = await session.consumer("orders", window=Window(bytes=10))
        await consumer.close()
        await fill(session, 3)
        for _ in range(3):
            message = await receive(small)
            assert small.held_messages == 1
            await message.accept()


async def test_pull_delivers_one_for_each_that_is_asked_for(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 5)
        consumer = await session.consumer("orders", window=Window.pull)
        assert consumer.held_messages == 0
        for expected in range(5):
            message = await receive(consumer)
            assert (int(message.body), consumer.held_messages) == (expected, 1)
            await message.accept()
            await consumer.flush()
        assert await consumer.receive(timeout=0.05) is None


async def test_paused_delivers_nothing_until_it_is_resumed(client: headgate.Client) -> None:
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window="paused")
        await fill(session, 5)
        assert await consumer.receive(timeout=0.05) is None
        assert consumer.held_messages == 0
        await consumer.configure(window="unlimited")
        assert numbers(await drain(consumer, 5)) == [0, 1, 2, 3, 4]
        await consumer.configure(window=Window.paused)
        await fill(session, 1)
        assert await consumer.receive(timeout=0.05) is None
        assert consumer.window == Window.paused
        assert (await look(client, "orders")).consumers[consumer.id]["window"] == "paused"


async def test_unlimited_holds_all_there_is(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 1500)
        consumer = await session.consumer("orders", window=Window.unlimited)
        messages = [await receive(consumer) for _ in range(1500)]
        assert consumer.held_messages == 1500
        assert numbers(messages) == list(range(1500))
        for message in messages:
            await message.accept()
        await consumer.flush(timeout=GUARD)
    assert await counts(client, "orders") == (0, 0)


async def test_a_window_lowered_below_what_is_held_delivers_nothing_until_enough_is_settled(
    client: headgate.Client,
) -> None:
    async with client.session("s") as session:
        await fill(session, 40)
        consumer = await session.consumer("orders", window=20)
        messages = [await receive(consumer) for _ in range(20)]
        await consumer.configure(window=5)
        for message in messages[:15]:
            await message.accept()
        await consumer.flush()
        assert await consumer.receive(timeout=0.05) is None
        assert consumer.held_messages == 5
        for message in messages[15:]:
            await message.accept()
        assert numbers(await drain(consumer, 20)) == list(range(20, 40))


async def test_what_is_released_comes_again_first_and_untried(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 4)
        consumer = await session.consumer("orders", window=2)
        first, second = await receive(consumer), await receive(consumer)
        await first.release()
        await second.accept()
        again = await receive(consumer)
        assert (again.id, again.body, again.delivery_count) == (first.id, first.body, 0)
        await again.accept()
        assert numbers(await drain(consumer, 2)) == [2, 3]


async def test_failed_attempts_are_counted_and_modified_without_failure_are_not(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 1)
        consumer = await session.consumer("orders", window=1)
        for attempts in range(3):
            message = await receive(consumer)
            assert message.delivery_count == attempts
            await message.modify()
        for _ in range(2):
            message = await receive(consumer)
            assert message.delivery_count == 3
            await message.modify(failed=False)
        message = await receive(consumer)
        assert message.delivery_count == 3
        await message.accept(confirm=True)
    assert await counts(client, "orders") == (0, 0)


async def test_what_is_rejected_is_gone(client: headgate.Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="headgate")
    async with client.session("s") as session:
        await fill(session, 1)
        consumer = await session.consumer("orders")
        message = await receive(consumer)
        await message.reject("no such customer", confirm=True)
        assert "no such customer" in caplog.text
        assert await consumer.receive(timeout=0.05) is None
    assert await counts(client, "orders") == (0, 0)


async def test_a_delivery_is_settled_once(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 2)
        consumer = await session.consumer("orders")
        message = await receive(consumer)
        await message.accept()
        for settle in (message.accept, message.release, message.reject, message.modify):
            with pytest.raises(InvalidValue, match="cannot be settled twice"):
                await settle()
        other = await receive(consumer)
        await consumer.close()
        with pytest.raises(Closed):
            await other.accept()


async def test_closing_gives_everything_unsettled_back_untried_and_in_order(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 150)
        consumer = await session.consumer("orders")
        messages = [await receive(consumer) for _ in range(30)]
        for message in messages[:10]:
            await message.accept()
        await consumer.close()
        assert await field(client, "orders", "pending_messages") == 140
        again = await drain(await session.consumer("orders"), 140)
        assert numbers(again) == list(range(10, 150))
        assert {message.delivery_count for message in again} == {0}
    assert await counts(client, "orders") == (0, 0)


async def test_closing_ends_whoever_waits_for_a_message(client: headgate.Client) -> None:
    async with client.session("s") as session:
        consumer = await session.consumer("orders")

        async def iterate() -> int:
            return len([message async for message in consumer])

        iterating = asyncio.ensure_future(iterate())
        receiving = asyncio.ensure_future(consumer.receive())
        await wait_until(lambda: consumer.inbox.asked == 2)
        await consumer.close()
        async with asyncio.timeout(GUARD):
            assert await iterating == 0
            with pytest.raises(Closed):
                await receiving


async def test_a_waiting_consumer_gets_a_message_as_soon_as_it_is_sent(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.core.fetching.POLL", 3600)  # a hint that is lost is never made up for
    async with client.session("in") as into, other.session("out") as out:
        consumer, producer = await into.consumer("orders", window=1), await out.producer("orders")
        for number in range(20):
            receiving = asyncio.ensure_future(receive(consumer))
            await producer.send(f"{number}")
            message = await receiving
            assert message.body == f"{number}"
            await message.accept()


def found_nothing(consumer: headgate.Consumer) -> bool:
    """Whether it has looked, and now waits to be told."""
    return feed_of(consumer).machine.look_at > asyncio.get_running_loop().time()


async def test_a_consumer_that_was_just_opened_misses_no_hint(
    redis_url: str, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = PubSubWakeUps._connect

    async def connect_slowly(self: PubSubWakeUps) -> Any:
        await asyncio.sleep(0.05)
        return await connect(self)

    monkeypatch.setattr("headgate.core.fetching.POLL", 3600)
    async with other.session("out") as out:
        producer = await out.producer("orders")
        monkeypatch.setattr(PubSubWakeUps, "_connect", connect_slowly)
        for number in range(5):
            async with (
                headgate.connect(redis_url, namespace=other.namespace) as fresh,
                fresh.session("in") as into,
            ):
                consumer = await into.consumer("orders", window=1)
                receiving = asyncio.ensure_future(receive(consumer))
                await wait_until(partial(found_nothing, consumer))
                await producer.send(f"{number}")
                message = await receiving
                assert message.body == f"{number}"
                await message.accept()


async def test_consumers_of_a_queue_share_its_messages(client: headgate.Client, other: headgate.Client) -> None:
    async with client.session("one") as one, other.session("two") as two, client.session("out") as out:
        consumers = [await one.consumer("orders", window=10), await two.consumer("orders", window=10)]
        got: list[list[int]] = [[], []]

        async def consume(number: int) -> None:
            async for message in consumers[number]:
                got[number].append(int(message.body))
                await message.accept()

        consuming = [asyncio.ensure_future(consume(number)) for number in (0, 1)]
        await fill(out, 500)
        await wait_until(lambda: len(got[0]) + len(got[1]) == 500)
        for consumer in consumers:
            await consumer.close()
        await asyncio.gather(*consuming)
        assert sorted(got[0] + got[1]) == list(range(500))
        assert all(got)


async def test_each_subscription_of_a_topic_gets_every_message_and_the_last_frees_it(client: headgate.Client) -> None:
    await client.apply("news", kind="topic", limit=10_000)
    async with client.session("s") as session:
        one = await session.consumer("news", subscription="one")
        two = await session.consumer("news", subscription="two")
        await fill(session, 10, "news")
        assert numbers(await drain(one, 10)) == list(range(10))
        assert await counts(client, "news") == (1000, 0)
        assert numbers(await drain(two, 10)) == list(range(10))
        assert await counts(client, "news") == (0, 0)


async def test_consumers_of_one_subscription_share_and_nameless_ones_do_not(client: headgate.Client) -> None:
    async with client.session("s") as session:
        shared = [await session.consumer("news", subscription="shared") for _ in range(2)]
        own = [await session.consumer("news") for _ in range(2)]
        await fill(session, 10, "news")
        for consumer in own:
            assert numbers(await drain(consumer, 10)) == list(range(10))
        got: list[int] = []
        async with asyncio.timeout(GUARD):
            while len(got) < 10:
                for consumer in shared:
                    if (message := await consumer.receive(timeout=0)) is not None:
                        got.append(int(message.body))
                        await message.accept()
        assert sorted(got) == list(range(10))


async def test_a_durable_subscription_keeps_its_messages_and_another_goes_with_its_last_consumer(
    client: headgate.Client,
) -> None:
    await client.apply("news", kind="topic")
    async with client.session("s") as session:
        durable = await session.consumer("news", subscription="d", durable=True)
        passing = await session.consumer("news", subscription="p")
        await durable.close()
        await passing.close()
        await fill(session, 5, "news")
        await wait_until(lambda: only_d(client), description="the other one's removal, a piece at every call")
        durable = await session.consumer("news", subscription="d", durable=True)
        passing = await session.consumer("news", subscription="p")
        assert numbers(await drain(durable, 5)) == list(range(5))
        assert await passing.receive(timeout=0.05) is None
    assert await counts(client, "news") == (0, 0)


async def test_what_belongs_to_a_topic_is_refused_at_a_queue_and_changes_nothing(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue")
    await client.apply_policy(loads("[[destination]]\nmatch = 'jobs'\nkind = 'queue'\n"))
    async with client.session("s") as session:
        await fill(session, 3)
        for name in ("orders", "jobs"):
            with pytest.raises(PolicyError, match=r"a queue.*only topics have subscriptions"):
                await session.consumer(name, subscription="audit", durable=True)
        with pytest.raises(InvalidValue, match=r"^subscription: a queue has none"):
            await session.consumer("new", subscription="audit", kind="queue")
        for name in ("orders", "news", "news.*"):
            with pytest.raises(InvalidValue, match=r"^durable: .* needs a name"):
                await session.consumer(name, durable=True)
        with pytest.raises(PolicyError, match=r"'orders' is a queue, which has no subscriptions"):
            await client.unsubscribe("orders", "queue")
        assert await client.destinations() == ["orders"]
        assert numbers(await drain(await session.consumer("orders"), 3)) == [0, 1, 2]


async def test_a_receive_timeout_gives_none_and_loses_nothing(client: headgate.Client) -> None:
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        for timeout in (0, 0.05, "10ms"):
            async with asyncio.timeout(GUARD):
                assert await consumer.receive(timeout=timeout) is None
        with pytest.raises(InvalidValue):
            await consumer.receive(timeout=-1)
        await fill(session, 1)
        assert (await receive(consumer)).body.strip() == "0"


async def test_settlements_of_an_expired_session_are_refused_and_its_deliveries_go_to_others(
    client: headgate.Client, redis_url: str, cleanup_namespace: str
) -> None:
    async with client.session("late", ttl=1) as late, client.session("s") as session:
        await fill(session, 3)
        consumer = await late.consumer("orders")
        message = await receive(consumer)
        feed = feed_of(consumer)
        # The lease ends without its consumer noticing, as after a long pause of its process.
        assert feed._task is not None
        feed._task.cancel()
        taken = await drain(await session.consumer("orders"), 3)
        assert {m.delivery_count for m in taken} == {1}
        feed._task = asyncio.create_task(feed._keep())
        with pytest.raises(SessionExpired):
            async with asyncio.timeout(GUARD):
                await message.accept(confirm=True)
        await fill(session, 1)


async def test_gates_and_buckets_have_nothing_to_consume(client: headgate.Client) -> None:
    await client.apply("bucket", rate=1)
    async with client.session("s") as session:
        with pytest.raises(PolicyError, match="'bucket' is a bucket"):
            await session.consumer("bucket")
        for window in (0, -1, "many", 1.5):
            with pytest.raises(InvalidValue, match="window"):
                await session.consumer("orders", window=window)  # type: ignore[arg-type]


async def test_a_session_has_as_many_consumers_of_one_destination_as_it_can_number(client: headgate.Client) -> None:
    async with client.session("s") as session:
        consumers = [await session.consumer("orders", window=1) for _ in range(64)]
        assert len({consumer.id for consumer in consumers}) == 64
        with pytest.raises(InvalidValue, match="at most 64 consumers"):
            await session.consumer("orders")
        await consumers[0].close()
        await session.consumer("orders", window=1)


async def test_producers_and_consumers_are_configured_alike_with_and_without_await(client: headgate.Client) -> None:
    await client.apply("news.one", kind="topic")
    async with client.session("s") as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        wildcard = await session.consumer("news.*", subscription="audit")
        for window in (1, 2):
            producer.configure(window=window * 1000)
            consumer.configure(window=window)
            wildcard.configure(window=window)
            assert (producer._account.state.window, consumer.window, wildcard.window) == (
                window * 1000,
                Window(messages=window),
                Window(messages=window),
            )
        await producer.configure(window=3000)
        await consumer.configure(window=3)
        await wildcard.configure(window=3)
        assert (await look(client, "orders")).consumers[consumer.id]["window"].startswith("3/")
        for one in (producer, consumer, wildcard):
            with pytest.raises(InvalidValue):
                one.configure(window=-1)
            await one.close()
            with pytest.raises(Closed):
                one.configure(window=5)


async def test_a_topic_that_is_removed_while_its_consumer_compares_what_it_holds_is_not_damaged(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a group that is gone, between the removal and the next look, ends the consumer for good."""
    await client.apply("news", kind="topic")
    async with client.session("s") as session:
        consumer = await session.consumer("news", subscription="a")
        feed = feed_of(consumer)
        ask, asked = client.store.server.command, []

        async def removed_first(key: bytes, *words: Any) -> Any:
            if words[0] == "XPENDING":
                asked.append(words)
                await other.remove("news")
            return await ask(key, *words)

        monkeypatch.setattr(client.store.server, "command", removed_first)
        feed._strays.after = b""  # as after a failover
        feed._wake.set()
        await wait_until(lambda: asked)
        await other.apply("news", kind="topic")
        producer = await session.producer("news")

        async def comes_again() -> bool:
            await producer.send("again")
            return await consumer.receive(timeout=0.1) is not None

        await wait_until(comes_again)
