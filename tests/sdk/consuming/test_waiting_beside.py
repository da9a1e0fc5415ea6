"""Who waits beside messages that another holds and has not begun gets some of them, with every default."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

import headgate
import headgate.sync
from headgate.core.fetching import POLL
from headgate.redis.shared_sweeps import BEAT, CALM
from tests.sdk.consuming.test_consumer import fill, receive
from tests.sdk.observing import GUARD, drain, feed_of, feeds_of, look
from tests.support.waiting import wait_for, wait_until

pytestmark = pytest.mark.one_server


class Unsure:
    """Hints that may be lost."""

    def sure(self, channels: tuple[str, ...]) -> bool:
        del channels
        return False


@pytest.fixture
async def sessions(client: headgate.Client, other: headgate.Client) -> AsyncIterator[tuple[headgate.Session, ...]]:
    """Two hosts with a session each, of which nothing is set."""
    async with client.session() as one, other.session() as another:
        yield one, another


async def test_who_waits_gets_half_of_what_a_busy_worker_holds_and_later_the_rest(
    sessions: tuple[headgate.Session, ...],
) -> None:
    here, there = sessions
    await fill(here, 20)
    busy = await here.consumer("orders")
    in_work = await receive(busy)
    await wait_until(lambda: busy.held_messages == 20)
    waiting = await there.consumer("orders")
    first = await receive(waiting)
    assert first.delivery_count == 0
    await wait_until(lambda: waiting.held_messages == 10, description="an equal part of what is held")
    assert busy.held_messages == 10
    await first.accept()
    await drain(waiting, 18)
    await in_work.accept(confirm=True)
    assert await busy.receive(timeout=0.05) is None


async def test_three_fast_workers_do_the_work_that_a_slow_one_holds(sessions: tuple[headgate.Session, ...]) -> None:
    here, there = sessions
    await fill(here, 40)
    slow = await here.consumer("orders")
    in_work = await receive(slow)
    await wait_until(lambda: slow.held_messages == 40)
    fast = [await there.consumer("orders") for _ in range(3)]
    first = await asyncio.gather(*(receive(consumer) for consumer in fast))  # each of those who wait gets some
    left = 36

    async def work(consumer: headgate.Consumer) -> None:
        nonlocal left
        while left:
            if message := await consumer.receive(timeout=0.1):
                left -= 1
                await message.accept()

    async with asyncio.timeout(GUARD):
        await asyncio.gather(*(work(consumer) for consumer in fast))
    for message in (in_work, *first):
        await message.accept()


async def test_who_takes_one_at_a_time_gets_its_turn_too(sessions: tuple[headgate.Session, ...]) -> None:
    here, there = sessions
    await fill(here, 5)
    idle = await here.consumer("orders", window="unlimited")
    await wait_until(lambda: idle.held_messages == 5)
    puller = await there.consumer("orders", window="pull")
    await drain(puller, 5)


@pytest.mark.one_server
async def test_who_waits_comes_before_many_idle_consumers(
    client: headgate.Client, sessions: tuple[headgate.Session, ...]
) -> None:
    """What one gives back does not go from idle consumer to idle consumer until each has had it."""
    here, there = sessions
    idle = [await here.consumer("orders") for _ in range(12)]
    await fill(here, 1)
    await wait_until(lambda: any(consumer.held_messages for consumer in idle))
    waiting = await there.consumer("orders")
    await (await receive(waiting)).accept(confirm=True)
    records = (await look(client, "orders")).consumers
    had = sum(int(records[consumer.id]["delivered"]) for consumer in idle)
    assert 1 <= had < len(idle) / 2  # one, unless others look again just then


async def test_both_work_and_nothing_goes_to_and_fro(sessions: tuple[headgate.Session, ...]) -> None:
    """Who waits for nothing asks nobody, whatever room its window has."""
    here, there = sessions
    await fill(here, 30)
    one = await here.consumer("orders")
    await wait_until(lambda: one.held_messages == 30)
    another = await there.consumer("orders")
    mine = await receive(another)
    await wait_until(lambda: another.held_messages == 15)
    await asyncio.sleep(1.2)  # longer than between looks
    assert (one.held_messages, another.held_messages) == (15, 15)
    await mine.accept()


async def test_consumers_of_a_shared_subscription_of_all_topics(sessions: tuple[headgate.Session, ...]) -> None:
    here, there = sessions
    one = await here.consumer("news.*", subscription="both", durable=True)
    producer = await here.producer("news.sport", kind="topic")
    for number in range(10):
        await producer.send(b"%d" % number)
    in_work = await receive(one)
    await wait_until(lambda: one.held_messages == 10)
    another = await there.consumer("news.*", subscription="both", durable=True)
    await drain(another, 9)
    await in_work.accept(confirm=True)


@pytest.mark.one_server
def test_a_thread_that_polls_without_waiting_gets_what_is_here(redis_url: str, cleanup_namespace: str) -> None:
    """What was fetched ahead, and what it had given back for another that has gone since."""
    with (
        headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client,
        client.session() as here,
        client.session() as there,
    ):
        producer = here.producer("orders")
        for number in range(4):
            producer.send(b"%d" % number)
        polls = here.consumer("orders")
        wait_for(lambda: polls.held_messages == 4, timeout=GUARD)
        first = polls.receive(timeout=0)
        assert first is not None
        first.accept(confirm=True)
        other = there.consumer("orders", window=1)
        assert other.receive(timeout=GUARD) is not None
        other.close()
        bodies = []
        for _ in range(3):
            message = wait_for(lambda: polls.receive(timeout=0), timeout=GUARD)
            assert message is not None
            bodies.append(message.body)
            message.accept(confirm=True)
        assert sorted(bodies) == [b"1", b"2", b"3"]


def test_a_thread_gives_back_what_it_took_over_and_has_not_begun(redis_url: str, cleanup_namespace: str) -> None:
    with (
        headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client,
        headgate.sync.connect(redis_url, namespace=cleanup_namespace) as other,
        client.session() as here,
        other.session() as there,
    ):
        producer = here.producer("orders")
        for number in range(20):
            producer.send(b"%d" % number)
        busy = here.consumer("orders")
        in_work = busy.receive(timeout=GUARD)
        assert in_work is not None
        bodies = [in_work.body]
        waiting = there.consumer("orders")
        for _ in range(19):
            message = waiting.receive(timeout=GUARD)
            assert message is not None
            bodies.append(message.body)
            message.accept()
        assert sorted(bodies) == sorted(b"%d" % number for number in range(20))
        in_work.accept(confirm=True)


async def test_a_consumer_looks_later_where_hints_are_certain_and_nobody_holds_anything(
    sessions: tuple[headgate.Session, ...],
) -> None:
    """Mutants: it looks late, too, where hints are not certain, or beside what another one may die with."""
    here, there = sessions
    await fill(here, 1)
    busy = await here.consumer("orders")
    held = await receive(busy)
    feed = feed_of(await there.consumer("orders"))

    def looks_after(least: float, most: float) -> Callable[[], bool]:
        return lambda: least < feed.machine.look_at - feed.machine._looked_at < most

    await wait_until(lambda: feed._wake_ups.sure(feed.address.channels(feed.session)), timeout=GUARD)
    feed.look()
    await wait_until(looks_after(0, POLL + CALM / 2), timeout=GUARD, description="soon, for a message is held")
    await held.accept(confirm=True)
    feed.look()
    await wait_until(looks_after(POLL + CALM / 2, POLL + CALM + BEAT), timeout=GUARD, description="later")
    hints, feed._wake_ups = feed._wake_ups, Unsure()  # type: ignore[assignment]  # as much of it as is needed
    feed.look()
    await wait_until(looks_after(0, POLL + CALM / 2), timeout=GUARD, description="soon, for a hint may be lost")
    feed._wake_ups = hints


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_what_was_given_back_is_fetched_again_though_another_slice_or_topic_leaves_nobody_waiting(
    client: headgate.Client, kind: str
) -> None:
    """Two share a window, and the other always brings something. Mutants: only one that waits; it is not woken."""
    for name in ("orders.1", "orders.2") if kind == "topic" else ("orders",):
        await client.apply(name, kind=kind, slices=1 if kind == "topic" else 2)
    async with client.session() as session, client.session() as one, client.session() as other:
        consumer = await session.consumer("orders.*" if kind == "topic" else "orders", kind=kind, window=4)
        for number, sender in enumerate((one, other), start=1):
            producer = await sender.producer(f"orders.{number}" if kind == "topic" else "orders", kind=kind)
            await asyncio.gather(*(producer.send(b"x", timeout=GUARD) for _ in range(60)))
        rests, other_feed = feeds_of(consumer)

        async def takes(what: Callable[[], object]) -> bool:
            for _ in range(50):
                if what():
                    return True
                await (await receive(consumer)).accept(confirm=True)
            return False

        assert await takes(lambda: rests.held_messages and other_feed.held_messages)
        for _ in range(2):  # nobody asked since the first: it gives all back
            rests._hear(["wanted", rests.id, "0"])
        await wait_until(lambda: not rests.held_messages)
        assert await takes(lambda: rests.held_messages)
