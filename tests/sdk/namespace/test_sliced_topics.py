"""A topic over several slots: every subscription gets each session's messages in order, whatever N becomes."""

import asyncio
import random
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

import headgate
from headgate.consuming.feed import Feed
from headgate.consuming.wildcard import PatternFeeds
from headgate.core.names import slice_name
from headgate.namespace.topics import PLACEHOLDER, TopicIndex
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pools import PoolStore
from headgate.redis.stores.sliced_reads import every_slice
from tests.sdk.observing import GUARD, drain, field
from tests.support.extent import share_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


class Received:
    """What one subscription got, by the session that sent it."""

    def __init__(self) -> None:
        self.by_session: dict[str, list[int]] = {}
        self.count = 0

    def take(self, message: headgate.Message) -> None:
        assert message.destination == "events"
        self.by_session.setdefault(message.headers["from"], []).append(int(message.body))
        self.count += 1

    async def consume(self, consumer: headgate.Consumer) -> None:
        async for message in consumer:
            self.take(message)
            await message.accept()

    def in_order(self) -> bool:
        return all(before < after for numbers in self.by_session.values() for before, after in pairwise(numbers))


async def send(session: headgate.Session, count: int, *, begin: int = 0, **headers: str) -> int:
    """Send numbers; returns the slice where they went."""
    producer, slice_ = await session.producer("events", window=300), 0
    for number in range(begin, begin + count):
        receipt = await producer.send(f"{number}", headers={"from": session.id, **headers}, timeout=GUARD)
        slice_ = receipt.slice
    return slice_


async def subscriptions(client: headgate.Client, slices: int) -> list[set[str]]:
    """Return the subscriptions that each slice has."""
    parts = [Address.of(client.namespace, slice_name("events", number)) for number in range(slices)]
    return [set(await TopicIndex(client.store)._subscriptions(part)) for part in parts]


async def test_slices_are_one_topic_to_everybody(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("events", kind="topic", limit=100_000, slices=4)
    received = [Received() for _ in range(3)]
    async with AsyncExitStack() as stack, other.session("in") as into:
        consumers = [
            await into.consumer("events", window=50),
            await into.consumer("events", window=50, subscription="audit", durable=True),
            await into.consumer("*", window=50),
        ]
        assert [consumer.topics for consumer in consumers] == [["events"]] * 3
        sessions = [await stack.enter_async_context(client.session(f"s{number}")) for number in range(8)]
        consuming = [asyncio.ensure_future(one.consume(c)) for one, c in zip(received, consumers, strict=True)]
        placed = await asyncio.gather(*(send(session, 20) for session in sessions))
        assert Counter(placed) == {0: 2, 1: 2, 2: 2, 3: 2}, "each in turn"
        await wait_until(lambda: [one.count for one in received] == [160] * 3, timeout=GUARD)
        assert all(one.in_order() for one in received)
        await asyncio.gather(*(consumer.close() for consumer in consumers), *consuming)
        assert await subscriptions(client, 4) == [{"audit"}] * 4, "the others went with their consumers"
        await asyncio.gather(*(send(session, 3, begin=50) for session in sessions))
        told = await client.explain("events")
        assert told.limits[0].limit == 100_000
        assert [backlog.messages for backlog in told.backlogs if backlog.subscription == "audit"] == [24]
        assert len([message async for message in client.browse("events")]) == 24
        assert (await client.recount("events")).equal
        assert await client.destinations() == ["events"]
        again = await into.consumer("events", window=50, subscription="audit", durable=True)
        assert Counter(message.headers["from"] for message in await drain(again, 24)) == Counter(
            {session.id: 3 for session in sessions}
        )
        await again.close()
    await client.unsubscribe("events", "audit")
    assert await subscriptions(client, 4) == [set()] * 4
    await client.remove("events")
    assert await every_slice(client.store.server, client.namespace) == []


async def test_the_limit_is_of_all_slices(client: headgate.Client) -> None:
    await client.apply("events", kind="topic", limit=1000, slices=4)
    async with client.session("a") as a, client.session("b") as b, client.session("in") as into:
        consumer = await into.consumer("events", window=1)
        first, second = await a.producer("events", window=10), await b.producer("events", window=10)
        await first.send(b"x" * 600, timeout=GUARD)
        with pytest.raises(headgate.CreditTimeout):
            await second.send(b"x" * 600, timeout=0.5)
        sending = asyncio.ensure_future(second.send(b"x" * 600, timeout=GUARD))
        await drain(consumer, 1)
        await sending
        fields = await PoolStore(client.store.server).fields(PoolAddress.of(client.namespace, "events#0"))
        assert int(fields["peak_bytes"]) <= 1000


async def test_more_and_fewer_while_it_runs_and_nobody_misses_anything(
    client: headgate.Client, other: headgate.Client
) -> None:
    """One subscription has consumers, one by pattern too, one is durable and nobody is there."""
    received, by_pattern = Received(), Received()
    await client.apply("events", kind="topic", limit=200_000)
    async with AsyncExitStack() as stack, other.session("in") as into:
        await (await into.consumer("events", subscription="later", durable=True)).close()
        consumers = [await into.consumer("events", window=20), await into.consumer("#", window=20)]
        consuming = [
            asyncio.ensure_future(one.consume(consumer))
            for one, consumer in zip((received, by_pattern), consumers, strict=True)
        ]
        sessions, total = list[headgate.Session](), 0
        for slices in (1, 5, 48, 1, 12):
            await client.apply("events", slices=slices)
            sessions += [await stack.enter_async_context(client.session(f"n{slices}-{number}")) for number in range(3)]
            await asyncio.gather(*(send(session, 20, begin=total) for session in sessions))
            total += 20
        expected = sum(20 * (5 - at // 3) for at in range(15))
        await wait_until(lambda: min(received.count, by_pattern.count) >= expected, timeout=GUARD)
        assert (received.count, by_pattern.count) == (expected, expected)
        assert received.in_order()
        assert by_pattern.in_order()
        later = Received()
        late = await into.consumer("events", window=100, subscription="later", durable=True)
        for message in await drain(late, expected):
            later.take(message)
        assert later.in_order()
        assert await field(client, "events", "pending_bytes") == 0
        await asyncio.gather(*(consumer.close() for consumer in (*consumers, late)), *consuming)


@pytest.mark.parametrize("seed", share_of(range(3), 3))
async def test_who_subscribes_as_slices_are_made_misses_nothing_that_is_sent_afterwards(
    client: headgate.Client, other: headgate.Client, seed: int
) -> None:
    """Mutant: a new slice has no subscriptions. The next test has the one that no chance finds."""
    dice = random.Random(seed)
    await client.apply("events", kind="topic", limit=200_000)
    opened, missed = list[tuple[headgate.Consumer, dict[str, int]]](), list[str]()
    sent: dict[str, int] = {}
    stop = asyncio.Event()

    async def publish(session: headgate.Session) -> None:
        producer = await session.producer("events", window=300)
        while not stop.is_set():
            number = sent.get(session.id, -1) + 1
            await producer.send(f"{number}", headers={"from": session.id}, timeout=GUARD)
            sent[session.id] = number
            await asyncio.sleep(dice.random() / 100)

    async with AsyncExitStack() as stack:
        publishing = list[asyncio.Task[None]]()
        for slices in (1, 3, 6, 9):
            await asyncio.sleep(dice.random() / 50)

            async def grow(slices: int = slices) -> None:
                await asyncio.sleep(dice.random() / 50)
                await client.apply("events", slices=slices)
                for number in range(3):
                    session = await stack.enter_async_context(client.session(f"p{slices}-{number}"))
                    publishing.append(asyncio.ensure_future(publish(session)))

            async def subscribe() -> None:
                await asyncio.sleep(dice.random() / 50)
                into = await stack.enter_async_context(other.session())
                consumer = await into.consumer(dice.choice(("events", "*")), window="unlimited")
                opened.append((consumer, dict(sent)))

            await asyncio.gather(grow(), subscribe(), subscribe())
        await asyncio.sleep(0.1)
        stop.set()
        await asyncio.gather(*publishing)
        for consumer, before in opened:
            wanted = {(by, number) for by, last in sent.items() for number in range(before.get(by, -1) + 1, last + 1)}
            while wanted and (message := await consumer.receive(timeout=2)) is not None:
                wanted.discard((message.headers["from"], int(message.body)))
                await message.accept()
            missed += [f"{by} {number}" for by, number in wanted]
    assert missed == []


@pytest.mark.parametrize("name", ["events", "*"])
async def test_slices_that_were_made_just_before_who_subscribes_was_there_are_found(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Mutant: who subscribes goes by what it had read before, and its hints come late."""
    await client.apply("events", kind="topic")
    start = Feed.start
    async with AsyncExitStack() as stack:
        producers = list[headgate.Producer]()

        async def after_others(feed: Feed) -> None:
            if not producers:
                await client.apply("events", slices=3)
                for _ in range(3):
                    session = await stack.enter_async_context(client.session())
                    producers.append(await session.producer("events"))
            await start(feed)

        monkeypatch.setattr(Feed, "start", after_others)
        monkeypatch.setattr(other.parts.registry, "_doubt", lambda *_: None)
        consumer = await (await stack.enter_async_context(other.session())).consumer(name)
        for producer in producers:
            await producer.send("x", timeout=GUARD)
        await drain(consumer, 3)


async def test_a_slice_that_a_consumer_comes_to_after_a_lease_has_kept_what_was_sent(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes to one slice after another. Mutant: whoever stands in for it there has a lease like its own."""
    await client.apply("events", kind="topic")
    start, sent, clock = Feed.start, asyncio.Event(), f"{client.namespace}:clock".encode()
    server = client.store.server

    async def late(feed: Feed) -> None:
        if feed.address.name == "events#1":
            await sent.wait()
            await server.command(clock, "SET", clock, "", "PX", 2500)
            await wait_until(partial(is_over, feed.address), description="more than a lease passed")
        await start(feed)

    async def is_over(part: Address) -> bool:
        await client.store.reap(part)
        return not await server.command(clock, "EXISTS", clock)

    monkeypatch.setattr(Feed, "start", late)
    async with AsyncExitStack() as stack, other.session("in", ttl=1) as into:
        consumer = await into.consumer("events")
        await client.apply("events", slices=2)
        for number in range(2):
            assert await send(await stack.enter_async_context(client.session()), 1) == number
        sent.set()
        assert len(await drain(consumer, 2)) == 2


async def test_a_subscription_that_ends_as_a_slice_is_made_is_not_left_there(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: it is copied to the slice from what the topic had, and stays with what nobody will receive."""
    await client.apply("events", kind="topic", slices=2)
    async with client.session() as first, other.session() as second, client.session("in") as into:
        await (await into.consumer("events", subscription="audit", durable=True)).close()
        await first.producer("events")
        part = Address.of(client.namespace, "events#1")
        assert await client.store.remove(part, everything=True) is not None
        subscribe = TopicIndex._subscribe

        async def late(self: TopicIndex, address: Address, one: Any, what: str) -> None:
            await client.unsubscribe("events", "audit")
            await subscribe(self, address, one, what)

        monkeypatch.setattr(TopicIndex, "_subscribe", late)
        await second.producer("events")
        assert await subscriptions(client, 2) == [set(), set()]


async def test_a_selector_is_of_all_slices(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("events", kind="topic", slices=2)
    async with AsyncExitStack() as stack, other.session("in") as into:
        options = {"subscription": "eu", "durable": True, "selector": "region = 'EU'"}
        await (await into.consumer("events", **options)).close()  # type: ignore[arg-type]
        for slices in (2, 4):
            await client.apply("events", slices=slices)
            for number in range(4):
                session = await stack.enter_async_context(client.session(f"{slices}-{number}"))
                await send(session, 1, region="EU")
                await send(session, 3, begin=1, region="US")
        assert await field(client, "events", "pending_messages") == 8, "what nobody wants is not kept"
        consumer = await into.consumer("events", **options)  # type: ignore[arg-type]
        assert {message.body for message in await drain(consumer, 8)} == {"0"}
        with pytest.raises(headgate.PolicyError, match="has consumers"):
            await client.unsubscribe("events", "eu")
        await consumer.close()
        await client.unsubscribe("events", "eu")
        assert await subscriptions(client, 4) == [set()] * 4


async def test_a_change_that_is_heard_as_a_consumer_opens_opens_no_slice_twice(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: what opens and who hears of a change both open what is missing, and one of two feeds is nobody's."""
    await client.apply("events", kind="topic", slices=3)
    start, opened = Feed.start, list[str]()
    followers, key = other.parts.registry._followers, Address.of(client.namespace, "events").key

    async def heard(feed: Feed) -> None:
        opened.append(feed.address.name)
        for follower in tuple(followers[key][1]) if key in followers else ():
            follower({})
        await start(feed)

    monkeypatch.setattr(Feed, "start", heard)
    async with other.session("in") as into:
        consumer = await into.consumer("events", subscription="eu", durable=True)
        await asyncio.sleep(0)
        assert sorted(opened) == [slice_name("events", number) for number in range(3)]
        await consumer.close()
        assert not await field(client, "events", "consumers")


async def test_a_consumer_that_is_closed_as_it_comes_to_a_slice_leaves_nobody_there(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: what was attached, and not yet the consumer's, goes on fetching what nobody receives."""
    await client.apply("events", kind="topic")
    async with other.session("in") as into:
        consumer = await into.consumer("events", subscription="eu", durable=True)
        monkeypatch.setattr(other.parts.registry.index, "relieve_copy", lambda *_: asyncio.Event().wait())
        await client.apply("events", slices=2)
        await wait_until(lambda: attached(client, 2), timeout=GUARD)
        await consumer.close()
        assert not await field(client, "events", "consumers")


async def test_nobody_stands_in_longer_than_the_consumer_lives(client: headgate.Client) -> None:
    """A subscription that is not durable ends at each slice with its consumers."""
    await client.apply("events", kind="topic")
    async with client.session("in") as into, client.session("out") as out:
        consumer = await into.consumer("events")
        await client.apply("events", slices=3)
        await wait_until(lambda: attached(client, 3), timeout=GUARD)
        await send(out, 3)
        await drain(consumer, 3)
        await consumer.close()
    assert await subscriptions(client, 3) == [set()] * 3


async def attached(client: headgate.Client, slices: int) -> bool:
    """Return whether each slice has a consumer, and nobody stands in for one."""
    found = []
    for number in range(slices):
        part = Address.of(client.namespace, slice_name("events", number))
        key = f"{part.key}:consumers".encode()
        found.append([name.decode() for name in await client.store.server.command(key, "HKEYS", key)])
    return all(names and not any(name.startswith(PLACEHOLDER) for name in names) for names in found)


async def test_a_pattern_is_at_slices_that_nobody_has_used_yet_as_soon_as_it_is_open(client: headgate.Client) -> None:
    """Mutant: it waits for others to make them, and looks for them a quarter of its lease later."""
    await client.apply("a.1", kind="topic", slices=3)
    async with client.session("s") as session:
        topics = (await session.consumer("a.*"))._supply
        assert isinstance(topics, PatternFeeds)
        assert set(topics.feeds) == {slice_name("a.1", number) for number in range(3)}
