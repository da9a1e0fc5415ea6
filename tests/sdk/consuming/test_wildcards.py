"""Wildcard subscriptions: every topic that matches, whenever it was made; one window; nothing lost or twice."""

import asyncio
from collections import Counter
from functools import partial

import pytest
import redis
from redis.crc import key_slot

import headgate
import headgate.sync
from headgate import Closed, InvalidName, PolicyError, TooManySubscriptions, Window
from headgate.consuming.wildcard import PatternFeeds
from headgate.core.addresses.pattern import Pattern
from headgate.namespace.topics import PLACEHOLDER, TopicIndex, WildcardSubscription
from headgate.redis.keys import Address
from headgate.redis.replies import record
from tests.sdk.observing import GUARD, counts, drain, learn_fast, look
from tests.sdk.workers import Worker
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

TTL = 2.0


async def topics(client: headgate.Client, *names: str) -> None:
    for name in names:
        await client.apply(name, kind="topic")


async def send(session: headgate.Session, *names: str, count: int = 1, size: int = 0) -> None:
    """Send that many messages to each, their body the topic's name and a number."""
    for name in names:
        producer = await session.producer(name)
        await asyncio.gather(*(producer.send(f"{name} {number}".ljust(size)) for number in range(count)))
        await producer.close()


async def wildcard(
    session: headgate.Session, pattern: str, subscription: str = "audit", **named: object
) -> headgate.Consumer:
    consumer = await session.consumer(pattern, subscription=subscription, **named)  # type: ignore[arg-type]
    assert isinstance(consumer._supply, PatternFeeds)
    return consumer


def bodies(messages: list[headgate.Message]) -> list[str]:
    return sorted(str(message.body).strip() for message in messages)


def named(*names: str, count: int = 1) -> list[str]:
    return sorted(f"{name} {number}" for name in names for number in range(count))


async def entries(client: headgate.Client) -> list[str]:
    return [entry.name for entry in await TopicIndex(client.store).entries(client.namespace)]


def held_in_state(url: str, namespace: str, *names: str) -> int:
    """Return what consumers of these topics hold together, as Redis has it at one instant."""
    with redis.Redis.from_url(url) as direct, direct.pipeline(transaction=True) as together:
        for name in names:
            together.hvals(f"{Address.of(namespace, name).key}:consumers")
        consumers = [record(text) for texts in together.execute() for text in texts]
    return sum(int(one["delivered"]) - int(one["settled"]) for one in consumers)


async def deserted(client: headgate.Client, name: str) -> bool:
    """Sweep, as whoever uses the topic would; return whether nobody subscribes to it any more."""
    await client.store.reap(Address.of(client.namespace, name))
    there = await look(client, name)
    return not (there.subscriptions or there.consumers)


async def test_topics_of_before_and_after_are_received_from_their_first_message_on(
    client: headgate.Client, other: headgate.Client
) -> None:
    await topics(client, "news.eu", "news.eu.sport", "weather")
    async with client.session("in") as into, other.session("out") as out:
        consumer = await wildcard(into, "news.*")
        await topics(other, "news.us")
        await send(out, "news.eu", "news.us", "news.eu.sport", "weather", count=20)
        messages = await drain(consumer, 40)
        assert bodies(messages) == named("news.eu", "news.us", count=20)
        assert {message.destination for message in messages} == {"news.eu", "news.us"}
        assert all(str(message.body).startswith(message.destination) for message in messages)
        assert await consumer.receive(timeout=0.05) is None
        assert consumer.topics == ["news.eu", "news.us"]
    for name in ("news.eu", "news.us", "news.eu.sport"):
        await wait_until(partial(deserted, client, name))
        assert await counts(client, name) == (0, 0)
    assert await entries(client) == []


@pytest.mark.parametrize(
    ("pattern", "matched"),
    [("a.#", {"a", "a.b", "a.b.c"}), ("a.>", {"a.b", "a.b.c"}), ("*", {"a"}), ("*.b.*", {"a.b.c"})],
)
async def test_what_a_pattern_matches(client: headgate.Client, pattern: str, matched: set[str]) -> None:
    async with client.session("s") as session:
        consumer = await wildcard(session, pattern)
        await topics(client, "a", "a.b", "a.b.c", "b.c")
        await wait_until(lambda: set(consumer.topics) == matched)
        await send(session, "a", "a.b", "a.b.c", "b.c")
        assert bodies(await drain(consumer, len(matched))) == named(*matched)


async def test_a_durable_one_gets_once_what_was_sent_while_it_was_away(
    client: headgate.Client, other: headgate.Client
) -> None:
    await topics(client, "news.eu")
    async with other.session("out") as out:
        async with client.session("in") as into:
            consumer = await wildcard(into, "news.#", durable=True)
            await send(out, "news.eu", count=3)
            await drain(consumer, 3)
        await topics(other, "news.us")
        await send(out, "news.eu", "news.us", "news.asia.jp", count=5)  # the last one is a queue, and none of it
        await topics(other, "news.asia.cn")
        await send(out, "news.asia.cn", count=5)
        for name in ("news.eu", "news.us", "news.asia.cn"):
            there = await look(client, name)
            assert {name: one["durable"] for name, one in there.subscriptions.items()} == {"audit": "1"}
            assert (there.fields["consumers"], there.fields["pending_messages"]) == ("0", "5")
        async with client.session("in") as into:
            consumer = await wildcard(into, "news.#", durable=True)
            messages = await drain(consumer, 15)
            assert bodies(messages) == named("news.eu", "news.us", "news.asia.cn", count=5)
            assert await consumer.receive(timeout=0.05) is None
    assert await entries(client) == ["news.# audit"]


async def test_all_topics_share_one_window_of_messages(client: headgate.Client, redis_url: str) -> None:
    names = [f"news.{number}" for number in range(5)]
    await topics(client, *names)
    async with client.session("s") as session:
        consumer = await wildcard(session, "news.*", durable=True, window=6)
        await consumer.configure(window="paused")
        await send(session, *names, count=20)
        assert await consumer.receive(timeout=0.05) is None
        await consumer.configure(window=6)
        got: list[headgate.Message] = []
        while len(got) < 100:
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            assert consumer.held_messages <= 6
            assert held_in_state(redis_url, client.namespace, *names) <= 6
            got.append(message)
            await message.accept()
            if len(got) == 60:
                fair = Counter(message.destination for message in got)
                assert min(fair[name] for name in names) >= 6, fair
        assert bodies(got) == named(*names, count=20)
        await consumer.flush()
        assert (consumer.held_messages, consumer.held_bytes) == (0, 0)


async def test_all_topics_share_one_window_of_bytes_that_one_message_may_cross(client: headgate.Client) -> None:
    names = [f"news.{number}" for number in range(4)]
    await topics(client, *names)
    async with client.session("s") as session:
        consumer = await wildcard(session, "news.*", window=Window(bytes=250))
        await send(session, *names, count=10, size=97)  # 100 bytes each
        for _ in range(40):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            assert consumer.held_bytes <= 250 + 100
            await message.accept()
        await consumer.flush()
        await consumer.configure(window=Window(bytes=10))
        await send(session, *names, size=97)
        for _ in names:
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            assert consumer.held_messages == 1
            await message.accept()


async def test_pull_takes_one_message_of_all_topics_for_each_that_is_asked_for(
    client: headgate.Client, redis_url: str
) -> None:
    await topics(client, "news.eu", "news.us")
    async with client.session("s") as session:
        consumer = await wildcard(session, "news.*", window="pull")
        await send(session, "news.eu", "news.us", count=3)
        assert consumer.held_messages == 0
        for _ in range(6):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            assert held_in_state(redis_url, client.namespace, "news.eu", "news.us") == 1
            await message.accept()
            await consumer.flush()
        assert await consumer.receive(timeout=0.05) is None


async def test_unlimited_holds_all_there_is(client: headgate.Client) -> None:
    await topics(client, "news.eu", "news.us")
    async with client.session("s") as session:
        consumer = await wildcard(session, "news.*", window="unlimited")
        await send(session, "news.eu", "news.us", count=400)
        messages = [await consumer.receive(timeout=GUARD) for _ in range(800)]
        assert consumer.held_messages == 800
        for message in messages:
            assert message is not None
            await message.accept()
        await consumer.flush(timeout=GUARD)
    assert await counts(client, "news.eu") == (0, 0)


async def test_what_is_given_back_or_not_settled_comes_again(client: headgate.Client) -> None:
    await topics(client, "news.eu", "news.us")
    async with client.session("s") as session:
        consumer = await wildcard(session, "news.*", durable=True)
        await send(session, "news.eu", "news.us")
        for attempts in (0, 1, 2):
            messages = [await consumer.receive(timeout=GUARD) for _ in range(2)]
            for message in messages:
                assert message is not None
                assert message.delivery_count == attempts
                await message.modify()
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await consumer.close()
        with pytest.raises(Closed):
            await message.accept()
        with pytest.raises(Closed):
            await consumer.receive()
        again = await wildcard(session, "news.*", durable=True)
        assert bodies(await drain(again, 2)) == named("news.eu", "news.us")


async def test_two_patterns_that_meet_get_a_copy_each(client: headgate.Client) -> None:
    await topics(client, "news.eu")
    async with client.session("s") as session:
        one = await wildcard(session, "news.*", "one")
        two = await wildcard(session, "*.eu", "two")
        three = await session.consumer("#")  # a subscription of its own
        await topics(client, "news.us", "sport.eu")
        await send(session, "news.eu", "news.us", "sport.eu", count=4)
        assert bodies(await drain(one, 8)) == named("news.eu", "news.us", count=4)
        assert bodies(await drain(two, 8)) == named("news.eu", "sport.eu", count=4)
        assert bodies(await drain(three, 12)) == named("news.eu", "news.us", "sport.eu", count=4)
        for consumer in (one, two, three):
            assert await consumer.receive(timeout=0.05) is None


async def test_consumers_of_one_subscription_share_whatever_their_patterns_are(
    client: headgate.Client, other: headgate.Client
) -> None:
    await topics(client, "news.eu", "news.us", "sport.eu")
    async with client.session("one") as first, other.session("two") as second:
        consumers = [
            await wildcard(first, "news.*", window=5),
            await wildcard(second, "news.*", window=5),
            await wildcard(second, "*.eu", window=5),
        ]
        got: list[headgate.Message] = []

        async def consume(consumer: headgate.Consumer) -> None:
            async for message in consumer:
                got.append(message)
                await message.accept()

        consuming = [asyncio.ensure_future(consume(consumer)) for consumer in consumers]
        names = ("news.eu", "news.us", "sport.eu")
        await send(first, *names, count=100)
        await wait_until(lambda: len(got) >= 300)
        for consumer in consumers:
            await consumer.close()
        await asyncio.gather(*consuming)
        assert bodies(got) == named(*names, count=100)


async def test_a_removed_topic_is_left_and_not_made_again_and_a_new_one_of_its_name_is_joined(
    client: headgate.Client, other: headgate.Client
) -> None:
    await topics(client, "news.eu", "news.us")
    async with client.session("in") as into, other.session("out") as out:
        consumer = await wildcard(into, "news.*")
        await other.remove("news.eu")
        await wait_until(lambda: consumer.topics == ["news.us"])
        await send(out, "news.us")
        assert bodies(await drain(consumer, 1)) == named("news.us")
        assert await client.destinations() == ["news.us"]
        await topics(other, "news.eu")
        await send(out, "news.eu", count=3)
        assert bodies(await drain(consumer, 3)) == named("news.eu", count=3)


async def test_a_topic_whose_hint_is_lost_is_found_by_looking(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.consuming.wildcard.LOOK_EVERY", 0.05)
    monkeypatch.setattr(PatternFeeds, "_hear", lambda _, __: None)
    async with client.session("in") as into, other.session("out") as out:
        consumer = await wildcard(into, "news.*")
        await topics(other, "news.eu")
        await send(out, "news.eu", count=3)
        assert bodies(await drain(consumer, 3)) == named("news.eu", count=3)


async def test_a_subscription_whose_consumer_never_comes_goes_with_its_lease(client: headgate.Client) -> None:
    """Its host died between the topic's being made and its joining it."""
    entry = WildcardSubscription(Pattern.parse("news.*"), "audit", durable=False, ttl_ms=200)
    await TopicIndex(client.store).keep(client.namespace, entry, "dead~1")
    await topics(client, "news.eu")
    async with client.session("s") as session:
        await send(session, "news.eu", count=3)
    there = await look(client, "news.eu")
    assert there.fields["pending_messages"] == "3"
    assert [one.startswith(PLACEHOLDER) for one in there.consumers] == [True]
    await wait_until(lambda: deserted(client, "news.eu"))
    assert await counts(client, "news.eu") == (0, 0)


async def test_a_killed_one_gives_back_what_it_held_and_leaves_the_index(
    client: headgate.Client, redis_url: str
) -> None:
    await topics(client, "news.eu", "news.us")
    async with client.session("s") as session:
        with Worker("wildcard", redis_url, client.namespace, "news.*", TTL, 4, "audit") as worker:
            await asyncio.to_thread(worker.ready)
            await send(session, "news.eu", "news.us", count=2)
            assert len(await asyncio.to_thread(worker.next_line)) == 4
            worker.kill9()
            consumer = await wildcard(session, "news.*")
            messages = await drain(consumer, 4)
            assert bodies(messages) == named("news.eu", "news.us", count=2)
            assert {message.delivery_count for message in messages} == {1}
            await consumer.close()

        async def forgotten() -> bool:
            await TopicIndex(client.store).announce(Address.of(client.namespace, "news.eu"))
            return await entries(client) == []

        await wait_until(forgotten)
    for name in ("news.eu", "news.us"):
        assert await counts(client, name) == (0, 0)


async def test_a_killed_one_that_was_alone_takes_its_subscriptions_along(
    client: headgate.Client, redis_url: str
) -> None:
    await topics(client, "news.eu")
    async with client.session("s") as session:
        with Worker("wildcard", redis_url, client.namespace, "news.*", TTL, 4, "audit") as worker:
            await asyncio.to_thread(worker.ready)
            worker.kill9()
            await send(session, "news.eu", count=2)
        await wait_until(lambda: deserted(client, "news.eu"))
    assert await counts(client, "news.eu") == (0, 0)


async def test_after_redis_lost_everything_it_goes_on(server: RedisServer) -> None:
    async with (
        headgate.connect(server.url, namespace="shop") as client,
        headgate.connect(server.url, namespace="shop") as other,
        client.session("in", ttl=3) as into,
        other.session("out", ttl=3) as out,
    ):
        learn_fast(client, other)
        await topics(client, "news.eu", "news.us")
        consumer = await wildcard(into, "news.*", durable=True)
        await send(out, "news.eu", "news.us")
        await drain(consumer, 2)
        with redis.Redis.from_url(server.url) as direct:
            direct.flushall()

        async def missing() -> list[object]:
            known = await TopicIndex(client.store).topics("shop", Pattern.parse("#"))
            there = (known == {"news.eu", "news.us"}, await entries(client) == ["news.* audit"])
            return [] if all(there) and consumer.topics == sorted(known) else [known, consumer.topics, there]

        async def back() -> bool:
            return not await missing()

        try:
            await wait_until(back, timeout=60)
        except AssertionError as error:
            error.add_note(f"not as it was: {await missing()}")
            raise
        await topics(other, "news.asia")
        await send(out, "news.eu", "news.us", "news.asia", count=2)
        assert bodies(await drain(consumer, 6)) == named("news.eu", "news.us", "news.asia", count=2)


async def test_unsubscribing_removes_it_everywhere_but_where_another_pattern_keeps_it(client: headgate.Client) -> None:
    await topics(client, "news.eu", "news.us")
    async with client.session("s") as session:
        consumer = await wildcard(session, "news.*", durable=True)
        await (await wildcard(session, "*.eu", durable=True)).close()
        with pytest.raises(PolicyError, match="has consumers; close them first"):
            await client.unsubscribe("news.*", "audit")
        await consumer.close()
        await send(session, "news.eu", "news.us")
        await client.unsubscribe("news.*", "audit")
        await client.unsubscribe("news.*", "never was")
        assert [list((await look(client, name)).subscriptions) for name in ("news.eu", "news.us")] == [["audit"], []]
        await client.unsubscribe("news.eu", "audit")
        assert (await look(client, "news.eu")).subscriptions == {}
        assert await entries(client) == ["*.eu audit"]


@pytest.mark.parametrize("name", ["news.*", "#", "a.>"])
async def test_only_consumers_may_name_a_pattern(client: headgate.Client, name: str) -> None:
    async with client.session("s") as session:
        for call in (session.producer, session.gate, session.bucket, client.apply, client.remove):
            with pytest.raises(InvalidName, match="a pattern is for consumers of topics"):
                await call(name)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("news*", "a wildcard is a whole word"),
        ("#.eu", "'#' stands for the rest, so it can only be the last word"),
        ("news.>.eu", "'>' stands for the rest"),
        ("news..*", "empty word"),
        (".#", "empty word"),
        ("n[ws.*", "'\\[' at position 1"),
        ("{news}.*", "cannot be part of a name"),
        ("x" * 255 + ".*", "at most 255 bytes"),
    ],
)
async def test_what_is_no_pattern_is_refused(client: headgate.Client, pattern: str, text: str) -> None:
    async with client.session("s") as session:
        with pytest.raises(InvalidName, match=text):
            await session.consumer(pattern)
        with pytest.raises(InvalidName, match=r"^subscription "):
            await session.consumer("news.*", subscription="a*")
    assert await entries(client) == []


async def test_queues_are_not_consumed_by_pattern(client: headgate.Client) -> None:
    await client.apply("orders.eu")
    async with client.session("s") as session:
        with pytest.raises(PolicyError, match=r"'orders\.\*' matches 'orders\.eu', which is a queue"):
            await session.consumer("orders.*")
        assert await entries(client) == []
        consumer = await wildcard(session, "orders.eu.*")
        assert consumer.topics == []


async def test_on_a_cluster_topics_are_on_every_master(cluster_url: str, cleanup_namespace: str) -> None:
    names = [f"news.{number}" for number in range(9)]
    async with (
        headgate.connect(cluster_url, namespace=cleanup_namespace) as client,
        headgate.connect(cluster_url, namespace=cleanup_namespace) as other,
        client.session("in") as into,
        other.session("out") as out,
    ):
        slots = {key_slot(Address.of(client.namespace, name).key.encode()) * 3 // 16384 for name in names}
        assert slots == {0, 1, 2}
        await topics(client, *names[:4])
        consumer = await wildcard(into, "news.*", durable=True, window=10)
        await topics(other, *names[4:])
        await send(out, *names, count=10)
        assert bodies(await drain(consumer, 90)) == named(*names, count=10)
        await consumer.close()
        await send(out, *names, count=2)
        consumer = await wildcard(into, "news.*", durable=True, window=10)
        assert bodies(await drain(consumer, 18)) == named(*names, count=2)
        for name in names:
            assert (await counts(client, name))[0] == 0


def test_for_threads_it_is_the_same(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        consumer = session.consumer("news.*", subscription="audit", durable=True, window=5)
        for name in ("news.eu", "news.us"):
            client.apply(name, kind="topic")
            producer = session.producer(name)
            for number in range(10):
                producer.send(f"{name} {number}")
        got = []
        for message in consumer:
            got.append((message.destination, message.body))
            assert consumer.held_messages <= 5
            message.accept(confirm=len(got) % 2 == 0)
            if len(got) == 20:
                break
        consumer.flush()
        expected = [(name, f"{name} {number}") for name in ("news.eu", "news.us") for number in range(10)]
        assert sorted(got) == sorted(expected)
        assert consumer.receive(timeout=0.05) is None
        consumer.configure(window="paused")
        consumer.close()
        client.unsubscribe("news.*", "audit")


async def test_a_topic_that_is_full_refuses_a_new_pattern_whole_and_ends_no_open_one(client: headgate.Client) -> None:
    await topics(client, "news.eu", "news.us")
    async with client.session("s") as session:
        early = await wildcard(session, "news.*", subscription="early", durable=True)
        await client.apply("news.full", kind="topic", max_subscriptions=2)
        await wait_until(lambda: early.topics == ["news.eu", "news.full", "news.us"])
        await session.consumer("news.full", subscription="last")
        with pytest.raises(TooManySubscriptions, match=r"'news\.full' has 2"):
            await wildcard(session, "news.*", subscription="late", durable=True)
        assert await entries(client) == ["news.* early"]
        for name in ("news.eu", "news.us"):
            assert list((await look(client, name)).subscriptions) == ["early"], "nothing is half made"

        await client.remove("news.full")
        late = await wildcard(session, "news.*", subscription="late", durable=True)
        await client.apply("news.narrow", kind="topic", max_subscriptions=1)
        await client.apply("news.more", kind="topic")
        await wait_until(lambda: {"news.more"} <= set(early.topics) & set(late.topics))
        await wait_until(lambda: ("news.narrow" in early.topics) is not ("news.narrow" in late.topics))
        await send(session, "news.more")
        assert bodies(await drain(early, 1)) == bodies(await drain(late, 1)) == named("news.more")
        with pytest.raises(TooManySubscriptions):
            await wildcard(session, "news.*", subscription="early2", durable=True)
        assert sorted(await entries(client)) == ["news.* early", "news.* late"]
