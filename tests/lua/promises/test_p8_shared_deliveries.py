"""P8 over slices: a slice delivers what it has in hand of the rate, and says what it lacks for what is there."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate.redis.replies import Deliveries
from headgate.redis.stores.links import LinkStore
from tests.lua.destinations.test_delivery_rate import fetch
from tests.lua.place import Consumer, Place
from tests.lua.promises.test_p8_shared_rates import RateWorld, bring, parts_of

RATE: dict[str, Any] = {"delivery_rate": "10.0", "delivery_burst": "4"}


@pytest.fixture
async def world(place: Place) -> AsyncIterator[RateWorld]:
    places = [Place(place.server, part) for part in parts_of(place.address.namespace)]
    yield RateWorld(places, "delivery")
    place.server.run = None
    for one in places:
        await one.server.forget(one.address, *one.sessions)


async def store(world: RateWorld, number: int, messages: int) -> None:
    producer = world.at(number).producer(f"p{number}{len(world.places[number].sessions)}")
    for sent in range(0, messages, 8):  # a batch
        await producer.send(*[1] * min(8, messages - sent))


async def found(consumer: Consumer, most: int = 256) -> tuple[int, tuple[int, ...], int]:
    """Fetch and accept; returns how many came, what is lacked, and when to look again."""
    answer: Deliveries = await fetch(consumer, most)
    return len(answer.messages), answer.lacks, answer.again_ms


async def test_a_slice_delivers_what_it_has_in_hand_and_tells_what_it_lacks(world: RateWorld) -> None:
    """Mutants: it has a rate of its own; what it delivers is not spent; it asks for what is not there."""
    await world.open(**RATE)
    bob = await world.at(1).consumer("bob")
    assert await found(bob) == (0, (), 0), "nothing is there, so it waits for a hint"
    await store(world, 1, 6)
    assert await found(bob) == (0, (1, 6), 1000)
    assert await found(bob, 2) == (0, (1, 2), 1000)
    assert (await bring(world, 1, want=3)).granted == 3
    assert await found(bob) == (3, (1, 3), 1000)
    assert (await bring(world, 2, want=9)).granted == 1
    assert (await bring(world, 1, want=3)).code == "SHORT"
    await world.wait(300)
    assert (await bring(world, 1, want=3)).code == "OK"
    assert await found(bob) == (3, (), 0), "all are delivered"
    await store(world, 1, 1)
    assert await found(bob) == (0, (1, 1), 1000)


async def test_what_came_back_is_there_too(world: RateWorld) -> None:
    """Mutant: only what is new is counted."""
    await world.open(**RATE)
    bob = await world.at(0).consumer("bob")
    await store(world, 0, 2)
    await bring(world, 0, want=2)
    ids = await bob.fetch()
    assert len(ids) == 2
    await bob.call(released=ids)
    assert await found(bob) == (0, (1, 2), 1000)
    await bring(world, 0, want=2)
    assert (await found(bob))[0] == 2


async def test_what_becomes_due_is_there_too(world: RateWorld) -> None:
    await world.open(**RATE)
    producer = world.at(0).producer("p")
    bob = await world.at(0).consumer("bob")
    await bring(world, 0, want=1)
    await producer.send(1)
    await bob.fetch()
    await bob.call(released=[bob.held[0] + b"+500"])
    assert (await found(bob))[:2] == (0, ())
    await world.wait(500)
    assert await found(bob) == (0, (1, 1), 1000)
    await bring(world, 0, want=1)
    assert (await found(bob))[0] == 1


async def test_at_a_high_rate_it_asks_for_more_than_one(world: RateWorld) -> None:
    await world.open(delivery_rate="1000.0", delivery_burst="100")
    bob = await world.at(1).consumer("bob")
    await store(world, 1, 50)
    assert await found(bob) == (0, (20, 50), 1000)
    assert await found(bob, 5) == (0, (5, 5), 1000)


async def test_each_subscription_of_a_topic_lacks_what_is_there_for_it(world: RateWorld) -> None:
    """Mutant: one that is made again is taken to have read what the earlier one did."""
    for number in range(len(world.places)):
        kinds: dict[str, Any] = {"slices": "3"} if number == 0 else {"of_slices": "3"}
        await world.at(number).create("topic", limit="unlimited", enforce="off", **kinds, **RATE)
    place = world.at(1)
    bob, cid = await place.consumer("bob", "B", durable=True), await place.consumer("cid", "C", durable=True)
    await store(world, 1, 3)
    await bring(world, 1, want=3)
    assert await found(bob) == (3, (), 0)
    assert await found(bob) == (0, (), 0)
    assert await found(cid) == (0, (1, 3), 1000)
    await bob.detach()
    assert await place.store.detach(place.address, "-", "!B", failed=False) == "OK"
    while await place.server.command(place.address.shared[0], "HEXISTS", place.address.shared[5], "B"):
        await place.store.reap(place.address)
    again = await place.consumer("bob", "B", durable=True)
    fields = await place.server.command(place.address.shared[0], "HKEYS", place.address.shared[0])
    assert not [name for name in fields if name.startswith(b"read_to|")], "the other has read nothing"
    await store(world, 1, 1)
    assert (await found(again))[1] == (1, 1)


async def test_a_link_is_told_what_its_slice_lacks(world: RateWorld) -> None:
    await world.open(**RATE)
    place = world.at(1)
    links = LinkStore(place.server)
    opened = await links.open(place.address, "link", fence=1, window="10/1000", copies=False)
    await store(world, 1, 2)
    read = await links.read(place.address, "link", fence=1, born=opened.born, mark=0, after=0, messages=9, size=1000)
    assert (read.entries, read.lacks) == ((), (1, 2))
    await bring(world, 1, want=2)
    read = await links.read(place.address, "link", fence=1, born=opened.born, mark=0, after=0, messages=9, size=1000)
    assert len(read.entries) == 2
    assert read.lacks == ()
