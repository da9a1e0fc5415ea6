"""Messages that expire: not delivered any more, freed on both sides, each exactly once."""

import random

import pytest

from headgate.errors import CoordinatorUnavailable
from tests.lua.place import TTL_MS, Consumer, Place, Producer
from tests.support.extent import WHOLE

pytestmark = pytest.mark.one_server


async def expiring(place: Place) -> dict[bytes, bytes]:
    key = place.address.shared[11]
    flat = await place.server.command(key, "ZRANGE", key, 0, -1, "WITHSCORES")
    return dict(zip(flat[::2], flat[1::2], strict=True))


async def truth(place: Place) -> None:
    """Compare every counter with what is really there."""
    count, seen = await place.recount(), await place.look()
    assert count.equal, count
    assert seen.number("returned") == seen.returned
    stored = {f"{seq}-{len(body)}".encode() for seq, body in seen.messages.items()}
    assert set(await expiring(place)) <= stored
    for consumer in seen.consumers:
        record = seen.consumers[consumer]
        held = [seq for by in seen.holders.values() for seq, who in by.items() if who == consumer]
        assert int(record["delivered"]) - int(record["settled"]) == len(held)
        assert set(held) <= set(seen.messages)
    for subscription, holders in seen.holders.items():
        assert set(holders) <= set(seen.messages), f"{subscription} holds what is gone"
    assert set(seen.references) <= set(seen.messages)


async def test_what_expires_frees_its_bytes(place: Place) -> None:
    """Mutant: nobody looks."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.send(60, expires_ms=1000)
    await ann.send(40, expires_ms=1001)
    bob = place.producer("bob")
    assert (await bob.ask(50)).place == 1
    await place.wait(1000)
    await place.reap()
    assert (await place.look()).line == [], "the room that it made was handed over"
    assert sorted((await place.look()).messages) == [2]
    await place.wait(1)
    consumer = await place.consumer("cid")
    assert await consumer.fetch() == []
    await truth(place)
    assert await expiring(place) == {}


async def test_the_shorter_of_the_senders_and_the_destinations_time_holds(place: Place) -> None:
    """Mutant: the sender's holds alone."""
    await place.create(message_ttl_ms="500")
    ann = place.producer("ann")
    await ann.send(10)
    await ann.send(20, expires_ms=100)
    await ann.send(30, expires_ms=1000)
    ends = {id_: int(float(at)) - place.now for id_, at in (await expiring(place)).items()}
    assert ends == {b"1-10": 500, b"2-20": 100, b"3-30": 500}


async def test_what_a_consumer_has_in_hand_stays_until_it_lets_go(place: Place) -> None:
    """Mutants: it is freed under its hands; given back, it is delivered again."""
    await place.create()
    ann, bob, cid = place.producer("ann"), await place.consumer("bob"), await place.consumer("cid")
    await ann.send(10, 20, 30, 40, expires_ms=1000)
    ids = await bob.fetch()
    await place.wait(1000)
    await place.reap()
    assert (await place.look()).pending.bytes == 100
    await bob.accept(ids[0])
    await bob.call(released=[ids[1]])
    await bob.call(failed=[ids[2]])
    assert (await place.look()).pending.bytes == 40
    assert await cid.fetch() == []
    await truth(place)
    await bob.detach()
    assert await cid.fetch() == []
    assert (await place.usage(), await expiring(place)) == (0, {})
    await truth(place)


async def test_what_a_dead_consumer_had_in_hand_expires(place: Place) -> None:
    await place.create()
    bob = await place.consumer("bob")
    await place.producer("ann").send(10, 20, expires_ms=1000)
    await bob.fetch()
    await place.sweep(2 * TTL_MS)
    assert (await place.usage(), (await place.look()).failures) == (0, {})
    await truth(place)


async def test_what_awaits_redelivery_expires(place: Place) -> None:
    """Mutant: it is still counted as awaiting redelivery."""
    await place.create()
    bob = await place.consumer("bob")
    await place.producer("ann").send(10, 20, expires_ms=1000)
    await bob.call(failed=await bob.fetch())
    assert (await place.look()).number("returned") == 2
    await place.wait(1000)
    assert await bob.fetch() == []
    assert ((await place.look()).number("returned"), (await place.look()).failures) == (0, {})
    assert await place.usage() == 0
    await truth(place)


async def test_what_expires_is_swept_in_pieces_and_not_delivered_meanwhile(place: Place) -> None:
    """Mutants: a call sweeps all; delivery does not look at the time."""
    await place.create(limit=10_000)
    ann, bob = place.producer("ann"), await place.consumer("bob")
    for _ in range(25):
        await ann.send(*[10] * 8, expires_ms=1000)
    await ann.send(77)
    await place.wait(1000)
    await place.reap()
    assert len((await place.look()).messages) == 201 - 64
    ids = await bob.fetch(messages=1)
    assert ids == []
    answer = await bob.call(fetch=2, max_messages=1, max_bytes=1000)
    assert (answer.messages, answer.again_ms) == ((), 1), "there is more behind what expired"
    bob.fetches = 2
    while not ids:
        ids = await bob.fetch(messages=1)
    assert ids == [b"201-77"]
    await truth(place)


async def test_what_is_settled_in_time_leaves_nothing_behind(place: Place) -> None:
    """Mutants: a settled message, or a purged one, is still waited for."""
    await place.create()
    ann, bob = place.producer("ann"), await place.consumer("bob")
    await ann.send(10, 20, expires_ms=1000)
    await bob.accept(*await bob.fetch())
    assert await expiring(place) == {}
    await ann.send(10, 20, expires_ms=1000)
    await place.store.remove(place.address, everything=False)
    assert await expiring(place) == {}
    await truth(place)


async def test_a_clock_that_was_set_back_revives_nothing(place: Place) -> None:
    """Mutant: what was swept is judged by the clock again."""
    await place.create("topic")
    red, blue = await place.consumer("red", "r"), await place.consumer("blue", "b")
    await place.producer("ann").send(10, expires_ms=1000)
    ids = await red.fetch()
    await place.wait(1000)
    await place.reap()
    await place.wait(-5000)
    assert await blue.fetch() == []
    await red.call(released=ids)
    assert await red.fetch() == []
    assert await place.usage() == 0
    await truth(place)


async def test_a_sweep_says_when_the_next_one_expires(place: Place) -> None:
    """Mutant: it says when the next lease ends, however long that is."""
    await place.create()
    ann = place.producer("ann")
    await ann.send(10, expires_ms=300)
    assert await place.store.reap(place.address) == ("OK", 300)
    await place.wait(300)
    await place.reap()
    assert (await place.store.reap(place.address))[1] > 1000


async def test_in_a_full_redis_attaching_is_refused_whole(place: Place) -> None:
    """Mutant: what expired is freed first, and then Redis lets everything go on."""
    await place.create()
    await place.producer("ann").send(10, expires_ms=100)
    await place.wait(100)
    before = await place.look()
    place.sessions.add("bob")
    await place.server.command(b"", "CONFIG", "SET", "maxmemory", 1)
    try:
        with pytest.raises(CoordinatorUnavailable):
            await Consumer(place, "bob", "queue").attach()
    finally:
        await place.server.command(b"", "CONFIG", "SET", "maxmemory", 0)
    assert await place.look() == before


async def send(place: Place, chance: random.Random, ann: Producer, consumer: Consumer) -> None:
    sizes = [chance.randint(1, 9) for _ in range(chance.randint(1, 8))]
    await ann.send(*sizes, expires_ms=chance.choice((0, 1, 50, 400, 2000)))


async def fetch(place: Place, chance: random.Random, ann: Producer, consumer: Consumer) -> None:
    consumer.fetches += 1
    answer = await consumer.call(fetch=consumer.fetches, max_messages=chance.randint(1, 9), max_bytes=50)
    if answer.code == "EXPIRED":
        consumer.fetches, consumer.held = 0, []
        await consumer.attach(durable=chance.random() < 0.5)
    consumer.held += [id_ for id_, _, _ in answer.messages]


async def settle(place: Place, chance: random.Random, ann: Producer, consumer: Consumer) -> None:
    fate = chance.choice(("accepted", "released", "rejected", "failed"))
    going = chance.sample(consumer.held, k=min(len(consumer.held), chance.randint(0, 6)))
    await consumer.call(**{fate: going})
    consumer.held = [id_ for id_ in consumer.held if id_ not in going]


async def let_time_pass(place: Place, chance: random.Random, ann: Producer, consumer: Consumer) -> None:
    await place.wait(chance.choice((0, 1, 60, 500, -300, TTL_MS // 3)))
    await place.reap()


async def go(place: Place, chance: random.Random, ann: Producer, consumer: Consumer) -> None:
    if chance.random() < 0.2:
        await place.store.remove(place.address, everything=False)
    else:
        await consumer.detach(failed=chance.random() < 0.5)
        consumer.held = []


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("seed", range(4 if WHOLE else 1))
async def test_all_is_freed_once_whatever_happens(place: Place, kind: str, seed: int) -> None:
    """Mutant: what the sweep already took from a subscription is taken again when it is read."""
    await place.create(kind, limit=1 << 30)
    chance = random.Random(seed)
    ann = place.producer("ann")
    names = ("queue",) if kind == "queue" else ("r", "g", "b")
    consumers = [Consumer(place, f"s{number}", chance.choice(names)) for number in range(5)]
    place.sessions.update(consumer.session for consumer in consumers)
    for _ in range(200):
        await chance.choice((settle, settle, let_time_pass, go, send, send, send, fetch, fetch, fetch))(
            place, chance, ann, chance.choice(consumers)
        )
        await truth(place)
    await place.store.remove(place.address, everything=False)
    await truth(place)
    for consumer in consumers:
        while await consumer.detach() == "MORE":
            pass
    for name in names:
        while await place.store.detach(place.address, "s0", f"!{name}", failed=False) == "MORE":
            pass
    await place.wait(10_000)
    await place.sweep(10_000)
    await truth(place)
    if kind == "topic":
        assert (await place.look()).pending.messages == 0
