"""Active consumers: attached, not paused and not going. Limits that bind `with-consumers` hang on their number."""

import random

import pytest

from tests.lua.place import TTL_MS, Consumer, Place

pytestmark = pytest.mark.one_server


async def active(place: Place) -> int:
    """Return how many there are, recounted and found right."""
    count = await place.recount()
    assert count.equal, count
    return (await place.look()).number("active")


async def configure(consumer: Consumer, window: str) -> str:
    code, _ = await consumer.place.store.attach(
        consumer.place.address, consumer.session, number=1, subscription=consumer.subscription, durable=False,
        window=window, ttl_ms=TTL_MS,
    )  # fmt: skip
    return code


async def test_who_is_attached_counts_once_until_it_goes_and_not_while_paused(place: Place) -> None:
    """Mutants: a repeated call counts again; a consumer that goes still counts."""
    await place.create()
    ann, bob = await place.consumer("ann"), await place.consumer("bob")
    assert await active(place) == 2
    await ann.attach()
    for _ in range(3):
        await configure(bob, "paused")
        assert await active(place) == 1
    await configure(bob, "pull")
    await configure(bob, "5/unlimited")
    assert await active(place) == 2
    await bob.detach()
    await bob.detach()
    assert await active(place) == 1
    await configure(ann, "paused")
    await ann.detach()
    assert await active(place) == 0


async def test_a_consumer_that_goes_in_several_calls_stops_counting_with_the_first(place: Place) -> None:
    await place.create(limit=10_000)
    ann = place.producer("ann")
    for _ in range(13):
        await ann.send(*[10] * 8)
    bob = await place.consumer("bob")
    await bob.fetch()
    assert await bob.detach() == "MORE"
    assert await active(place) == 0
    await place.sweep(2 * TTL_MS)  # it dies half way
    assert await active(place) == 0
    assert not (await place.look()).consumers


async def test_the_dead_do_not_count(place: Place) -> None:
    """Mutant: a reclaimed session's consumers stay counted."""
    await place.create()
    await place.consumer("ann")
    await configure(await place.consumer("bob"), "paused")
    assert await active(place) == 1
    await place.sweep(2 * TTL_MS)
    assert await active(place) == 0


async def test_while_nobody_is_active_a_limit_with_consumers_does_not_bind(place: Place) -> None:
    """Mutants: the limits are not judged anew; nobody is served when they stop to bind."""
    await place.create(limit=100, enforce="with-consumers")
    ann = place.producer("ann")
    await ann.send(90)
    await ann.send(500)
    bob = await place.consumer("bob")
    cid = place.producer("cid")
    assert (await cid.ask(10)).place == 1, "enforcement binds again, and more is pending than the limit"
    assert (await place.look()).pending.bytes == 590
    await configure(bob, "paused")
    assert (await place.look()).number("blocked") == 0, "it was served at once"
    await configure(bob, "pull")
    dan = place.producer("dan")
    assert (await dan.ask(10)).place == 1
    await bob.detach()
    assert (await place.look()).number("blocked") == 0
    await place.consumer("eve")
    assert (await place.producer("flo").ask(10)).place == 1
    await place.wait(TTL_MS)
    await place.reap()
    await place.wait(TTL_MS)
    await place.reap()
    assert await active(place) == 0


async def test_credit_of_before_pays_for_nothing_above_a_limit_that_begins_to_bind(place: Place) -> None:
    """Mutant: what was granted while nothing bound goes on."""
    await place.create(limit=100, enforce="with-consumers")
    ann, bob = place.producer("ann"), place.producer("bob")
    for producer in (ann, bob):
        await producer.ask(10, window=500)
    await ann.publish(60)
    await place.consumer("cid")
    answer = await bob.publish_as(bob.account(), bob.seq, 41)
    assert (answer.code, (await place.look()).pending.bytes) == ("ABOVE", 60)
    await bob.publish(40)
    assert (await place.look()).pending.bytes == 100


async def test_credit_of_before_a_lower_limit_pays_for_nothing_above_it(place: Place) -> None:
    await place.create(limit=1000)
    ann = place.producer("ann")
    await ann.ask(10, window=500)
    await ann.publish(90)
    await place.change(limit_bytes="100")
    assert (await ann.publish_as(ann.account(), ann.seq, 11)).code == "ABOVE"
    await ann.publish(10)
    await place.change(limit_bytes="1000", limit_messages="2")
    assert (await ann.publish_as(ann.account(), ann.seq, 5)).code == "ABOVE", "in messages too"


async def test_an_inactive_durable_subscription_does_not_count(place: Place) -> None:
    await place.create("topic", limit=100, enforce="with-consumers")
    bob = await place.consumer("bob", "audit", durable=True)
    await bob.detach()
    ann = place.producer("ann")
    await ann.send(90)
    await ann.send(90)
    assert (await place.look()).pending.bytes == 180


async def test_a_repair_makes_the_number_true_again(place: Place) -> None:
    """Mutant: `recount` does not write it."""
    await place.create(limit=100, enforce="with-consumers")
    await place.consumer("bob")
    key = place.address.shared[0]
    await place.server.command(key, "HSET", key, "active", 0)
    assert not (await place.recount()).equal
    await place.store.recount(place.address, repair=True)
    assert await active(place) == 1


async def test_it_stays_true_whatever_happens(place: Place) -> None:
    await place.create(limit=10_000)
    chance = random.Random(11)
    ann = place.producer("ann")
    for _ in range(25):
        await ann.send(*[10] * 8)
    sessions = [f"s{number}" for number in range(5)]
    place.sessions.update(sessions)
    consumers = {session: Consumer(place, session, "queue") for session in sessions}
    for _ in range(150):
        consumer = consumers[chance.choice(sessions)]
        match chance.randrange(6):
            case 0 | 1:
                await configure(consumer, chance.choice(("paused", "pull", "9/unlimited")))
            case 2:
                await consumer.detach(failed=chance.random() < 0.5)
            case 3:
                consumer.fetches += 1
                await consumer.call(fetch=consumer.fetches, max_messages=70, max_bytes=10_000)
            case 4:
                await place.wait(chance.choice((0, 100, TTL_MS // 2)))
                await place.reap()
            case _:
                await place.store.acquire(
                    place.address, place.producer(consumer.session).account(weight=0), ttl_ms=TTL_MS, leave=True
                )
        assert await active(place) >= 0


async def test_the_ledger_tells_when_limits_bind_and_what_may_go_above_them(place: Place) -> None:
    async def told() -> list[str]:
        snapshot = await place.store.snapshot(place.address, entries=1)
        assert snapshot is not None
        events = snapshot.ledger[0].split(",")[7].split(";")
        return [event for event in events if event.startswith(("binds", "above"))]

    await place.create(limit=100)
    assert await told() == ["binds:yes", "above:refuse:-"]
    await place.change(oversize="allow-one", hard_bytes="150", enforce="with-consumers")
    assert await told() == ["binds:no", "above:allow-one:150"]
    ann, bob = await place.consumer("ann"), await place.consumer("bob")
    assert await told() == [], "the second changes nothing"
    await bob.detach()
    await configure(ann, "paused")
    assert await told() == ["binds:no"]
    await configure(ann, "pull")
    assert await told() == ["binds:yes"]
    await place.server.command(place.address.shared[0], "HSET", place.address.key, "active", 0)
    await place.store.recount(place.address, repair=True)
    assert await told() == ["binds:yes"]
    await place.sweep(2 * TTL_MS)
    assert await told() == ["binds:no"], "it is dead"
    await place.change(enforce="off")
    assert await told() == ["binds:no", "above:allow-one:150"]


async def test_a_consumer_that_ends_in_a_call_that_names_it_is_not_counted_again(place: Place) -> None:
    """Mutant: the call saves what it knew of it before."""
    await place.create("topic")
    await place.consumer("ann", "news", durable=True)
    await place.wait(6000)
    await place.consumer("bob", "news", durable=True)
    await place.reap()
    await place.wait(3000)
    assert (await place.look()).fields["active"] == "2", "the second strike comes with the next call"
    await place.store.settle(place.address, "bob", "ann.1", ttl_ms=TTL_MS, fetch=1, max_messages=5, max_bytes=100)
    count = await place.recount()
    assert count.equal, count
