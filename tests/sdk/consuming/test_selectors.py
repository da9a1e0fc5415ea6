"""Consumers that want some of a topic: what their selector does not match never waits for them."""

import asyncio
import itertools
import time
from functools import partial

import pytest

import headgate
from headgate import InvalidValue, PolicyError, SubscriptionInUse
from headgate import message as stored_form
from headgate.core.selector.wanted import LONGEST, MOST_READ, TopicSelectors, word_of
from tests.sdk.observing import GUARD, counts, drain, field, look
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def none_pending(client: headgate.Client, topic: str) -> bool:
    return await field(client, topic, "pending_messages") == 0


@pytest.mark.parametrize("address", ["news.eu", "news.>"])
async def test_what_is_not_matched_takes_no_room_for_long(client: headgate.Client, address: str) -> None:
    """With room for ten messages, and two subscriptions of one topic. Mutant: it stays unsettled."""
    await client.apply("news.eu", kind="topic", limit_messages=10)
    async with client.session("s") as session:
        urgent = await session.consumer(address, selector="level > 7 AND kind LIKE 'alarm.%'")
        calm = await session.consumer(address, selector="level <= 7", window=1)
        producer = await session.producer("news.eu")
        for n in range(40):
            await producer.send(f"{n}", headers={"level": n % 10, "kind": f"alarm.{n}"}, timeout=GUARD)
            if n % 10 <= 7:
                (message,) = await drain(calm, 1)
                assert message.body == f"{n}"
            else:
                (message,) = await drain(urgent, 1)
                assert message.body == f"{n}"
        await wait_until(lambda: none_pending(client, "news.eu"), timeout=GUARD)


async def test_a_durable_subscription_keeps_what_comes_meanwhile_and_selects_then(client: headgate.Client) -> None:
    async with client.session("s") as session:
        reads = await session.consumer("paint", subscription="some", durable=True, selector="colour = 'red'")
        await reads.close()
        producer = await session.producer("paint")
        for colour in ("red", "blue", "green", "red"):
            await producer.send(colour, headers={"colour": colour}, timeout=GUARD)
        reads = await session.consumer("paint", subscription="some", durable=True, selector="colour = 'red'")
        assert [message.body for message in await drain(reads, 2)] == ["red", "red"]
        await wait_until(lambda: none_pending(client, "paint"), timeout=GUARD)


async def takes_no_room(client: headgate.Client, producer: headgate.Producer) -> bool:
    """Return whether a blue message is kept for nobody, as it is once its sender has heard of the selectors."""
    before = await field(client, producer.destination, "pending_messages")
    await producer.send("blue", headers={"colour": "blue"}, timeout=GUARD)
    return await field(client, producer.destination, "pending_messages") == before


async def test_what_a_durable_subscription_does_not_want_has_no_room_while_it_is_away(client: headgate.Client) -> None:
    """With room for four, and nobody there. Mutants: it is kept until somebody consumes; all is stored."""
    async with client.session("s") as session:
        producer = await session.producer("paint", kind="topic")
        reads = await session.consumer("paint", subscription="reds", durable=True, selector="colour = 'red'")
        await reads.close()
        await wait_until(partial(takes_no_room, client, producer), timeout=GUARD)
        await client.purge("paint")
        await client.apply("paint", limit_messages=4)
        for n in range(30):
            await producer.send(f"{n}", headers={"colour": "red" if n % 10 == 0 else "blue"}, timeout=GUARD)
        assert await field(client, "paint", "pending_messages") == 3
        reads = await session.consumer("paint", subscription="reds", durable=True, selector="colour = 'red'")
        assert [message.body for message in await drain(reads, 3)] == ["0", "10", "20"]
        await wait_until(lambda: none_pending(client, "paint"), timeout=GUARD)
    assert await counts(client, "paint") == (0, 0)


async def test_another_selector_begins_a_subscription_anew_and_is_refused_while_somebody_consumes(
    client: headgate.Client,
) -> None:
    """Mutants: it keeps what came before; it takes the subscription from those who are there."""
    async with client.session("s") as session:
        producer = await session.producer("paint", kind="topic")
        reads = await session.consumer("paint", subscription="some", durable=True, selector="colour = 'red'")
        await producer.send("red", headers={"colour": "red"}, timeout=GUARD)
        for selector in ("colour = 'blue'", None):
            with pytest.raises(SubscriptionInUse, match="'some' of 'paint' has consumers with another") as caught:
                await session.consumer("paint", subscription="some", durable=True, selector=selector)
            assert (caught.value.destination, caught.value.subscription) == ("paint", "some")
        beside = await session.consumer("paint", subscription="some", durable=True, selector="colour = 'red'")
        await asyncio.gather(reads.close(), beside.close())
        assert await field(client, "paint", "pending_messages") == 1
        reads = await session.consumer("paint", subscription="some", durable=True, selector="colour = 'blue'")
        await producer.send("blue", headers={"colour": "blue"}, timeout=GUARD)
        (message,) = await drain(reads, 1)
        assert message.body == "blue"
        await wait_until(lambda: none_pending(client, "paint"), timeout=GUARD)


async def test_one_that_is_too_long_to_be_listed_is_judged_by_its_consumers(client: headgate.Client) -> None:
    long = f"colour IN ('red', '{'x' * LONGEST}')"
    async with client.session("s") as session:
        producer = await session.producer("paint", kind="topic")
        reads = await session.consumer("paint", subscription="reds", durable=True, selector=long)
        for colour in ("blue", "red"):
            await producer.send(colour, headers={"colour": colour}, timeout=GUARD)
        (message,) = await drain(reads, 1)
        assert message.body == "red"
        with pytest.raises(SubscriptionInUse):
            await session.consumer("paint", subscription="reds", durable=True, selector=f"{long} ")
        assert "selectors" not in (await look(client, "paint")).fields


def stored(**headers: object) -> bytes:
    return stored_form.encode("x" * (2 * MOST_READ), headers)


def listed(*selectors: str) -> str:
    return " ".join(f"s{at}={at}7={word_of(selector)}" for at, selector in enumerate(selectors))


def test_a_bit_says_for_which_subscription_a_message_is_not() -> None:
    """Mutants: the bit of another one; one that cannot be read now shifts the others."""
    wanted = TopicSelectors(lambda: 0.0, lambda: None)
    assert not wanted.selectors
    wanted.adopt(listed("a = 1", "a = ", "a = 2", "a IS NULL"))
    assert wanted.selectors
    bodies = [stored(a=1), stored(a=2), stored(), b"\xff", stored(a=1, b="x" * MOST_READ)]
    assert wanted.unwanted(bodies) == "s0=07,s2=27,s3=37 6 5 3 0 0"
    assert wanted.unwanted(bodies[3:]) == ""
    wanted.adopt("")
    assert not wanted.selectors


def test_selectors_that_take_long_are_judged_no_more_until_others_are_listed() -> None:
    """A tenth of a millisecond each is allowed on average. Mutants: they go on; one slow message is too much."""
    told: list[str] = []
    ticks = iter([0.0, 0.04, *(0.0 for _ in range(2000)), *itertools.chain.from_iterable([(0.0, 0.01)] * 9)])
    wanted = TopicSelectors(lambda: next(ticks), lambda: told.append("over"))
    wanted.adopt(listed("a = 1"))
    for _ in range(1001):
        assert wanted.unwanted([stored(a=2)])
    assert not told
    assert wanted.unwanted([stored(a=2)] * 9) == ""
    assert told == ["over"]
    assert not wanted.selectors
    wanted.adopt(listed("a = 1"))
    assert not wanted.selectors
    wanted.adopt(listed("a = 2"))
    assert wanted.selectors


async def test_a_selector_of_a_queue_is_refused_and_takes_nothing(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await (await session.producer("orders")).send("one", headers={"a": 1}, timeout=GUARD)
        with pytest.raises(PolicyError, match="only topics have subscriptions and selectors"):
            await session.consumer("orders", selector="a = 2")
        with pytest.raises(InvalidValue, match="selector: a queue has none"):
            await session.consumer("orders", kind="queue", selector="a = 2")
        with pytest.raises(InvalidValue, match="selector"):
            await session.consumer("paint", selector="a = ")
        (message,) = await drain(await session.consumer("orders"), 1)
        assert message.body == "one"
    assert await client.destinations() == ["orders"]


def test_what_a_message_costs_to_be_judged_has_a_bound() -> None:
    """Sixteen patterns held the loop of whoever sent one message for 1.6 s. Mutants: no bound; that of one selector."""
    wanted, text = TopicSelectors(time.thread_time, lambda: None), "a" * (MOST_READ - 1000)
    wanted.adopt(listed(*(f"h LIKE '%{'_' * 1900}{at:02}%'" for at in range(16))))
    began = time.thread_time()
    assert wanted.unwanted([stored(h=text)]) == ""
    assert time.thread_time() - began < 0.2
    assert wanted.unwanted([stored(h="a")]).endswith(f" {2**16 - 1}"), "which is cheap for a short header"
    wanted.adopt(listed("a = 1", f"h LIKE '%{'_' * 1900}'"))
    assert wanted.unwanted([stored(h=text, a=2)]).endswith(" 1"), "those before it are judged"


def test_no_more_are_judged_than_a_topic_lists() -> None:
    wanted = TopicSelectors(lambda: 0.0, lambda: None)
    wanted.adopt(listed(*("a = 1" for _ in range(99))))
    assert wanted.unwanted([stored(a=2)]).endswith(f" {2**16 - 1}")
