"""P8 of deliveries: in any window T at most rate*T + burst reach all consumers together, by Redis' clock."""

import random
from typing import Any

import pytest

from headgate.redis.replies import Deliveries
from tests.lua.place import Consumer, Place
from tests.lua.promises.test_p8_rates import most_beyond

pytestmark = pytest.mark.one_server


async def stock(place: Place, count: int, **settings: Any) -> None:
    await place.create(limit=1 << 30, **settings)
    ann = place.producer("ann")
    for _ in range(count // 8):
        await ann.send(*[10] * 8)


async def fetch(consumer: Consumer, most: int = 256) -> Deliveries:
    """Fetch, and accept what came."""
    consumer.fetches += 1
    answer = await consumer.call(fetch=consumer.fetches, max_messages=most, max_bytes=1 << 20)
    await consumer.accept(*(id_ for id_, _, _ in answer.messages))
    return answer


@pytest.mark.parametrize(("rate", "burst"), [("10", "5"), ("1000", "1"), ("3", "20"), ("3", "1"), ("0.7", "2")])
async def test_no_window_delivers_more_than_its_rate_and_burst(place: Place, rate: str, burst: str) -> None:
    """Mutants: the rate is not asked; what was delivered is forgotten."""
    await stock(place, 400, delivery_rate=rate, delivery_burst=burst)
    consumers = [await place.consumer(name) for name in ("bob", "cid", "dan")]
    chance = random.Random(5)
    delivered: list[tuple[int, int]] = []
    for _ in range(60):
        answer = await fetch(chance.choice(consumers), chance.choice((1, 3, 256)))
        delivered.append((place.now * 1000, len(answer.messages)))
        await place.wait(chance.choice((0, 1, 10, 200, 1500, answer.again_ms)))
    assert most_beyond(delivered, float(rate), int(burst)) <= 0  # type: ignore[arg-type]
    total = sum(count for _, count in delivered)
    assert total >= min(400, int(burst))


async def test_what_comes_back_counts_again_when_it_is_delivered_again(place: Place) -> None:
    await stock(place, 8, delivery_rate="10", delivery_burst="3")
    bob = await place.consumer("bob")
    ids = await bob.fetch()
    assert len(ids) == 3
    await bob.call(released=ids)
    assert await bob.fetch() == []
    await place.wait(100)
    assert await bob.fetch() == ids[:1]


async def test_who_is_held_back_is_told_when_to_look_again(place: Place) -> None:
    """Mutant: it is told nothing."""
    await stock(place, 8, delivery_rate="10", delivery_burst="3")
    bob = await place.consumer("bob")
    answer = await fetch(bob)
    assert (len(answer.messages), answer.again_ms) == (3, 100)
    await place.wait(answer.again_ms - 1)
    answer = await fetch(bob)
    assert (len(answer.messages), answer.again_ms) == (0, 1)
    await place.wait(answer.again_ms)
    assert len((await fetch(bob)).messages) == 1
    await place.wait(10_000)
    assert [len((await fetch(bob)).messages) for _ in range(2)] == [3, 0]
    await place.wait(10_000)
    answer = await fetch(bob)
    assert (len(answer.messages), answer.again_ms) == (1, 0), "there was no more, so it waits for a hint"


async def test_at_a_high_rate_a_call_brings_more_than_one(place: Place) -> None:
    await stock(place, 304, delivery_rate="1000", delivery_burst="100")
    bob = await place.consumer("bob")
    answer = await fetch(bob)
    assert (len(answer.messages), answer.again_ms) == (100, 20)
    await place.wait(answer.again_ms)
    assert len((await fetch(bob)).messages) == 20


async def test_a_clock_that_was_set_back_does_not_stop_delivery(place: Place) -> None:
    """Mutant: the burst is owed for as long as the clock was set back."""
    await stock(place, 80, delivery_rate="10", delivery_burst="5")
    bob = await place.consumer("bob")
    assert len((await fetch(bob)).messages) == 5
    await place.wait(-3_600_000)
    assert len((await fetch(bob)).messages) == 0, "nothing is given twice"
    await place.wait(500)
    assert len((await fetch(bob)).messages) == 5


async def test_the_rate_can_be_changed_and_taken_away(place: Place) -> None:
    await stock(place, 80, delivery_rate="1", delivery_burst="1")
    bob = await place.consumer("bob")
    assert len((await fetch(bob)).messages) == 1
    await place.change(delivery_rate="1000", delivery_burst="10")
    assert len((await fetch(bob)).messages) == 0, "the new rate begins with nothing"
    await place.wait(10)
    assert len((await fetch(bob)).messages) == 10
    await place.change(delivery_rate="", delivery_burst="")
    assert len((await fetch(bob)).messages) == 69
