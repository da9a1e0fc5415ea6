"""What a script is given, and what it adds up, is bounded: it costs little, and stays exact."""

from dataclasses import replace
from time import monotonic

import pytest

from headgate.errors import InvalidValue
from tests.lua.place import Place
from tests.model.credit import Amount


@pytest.mark.parametrize("number", [0, -1, 65, 2**31, 2**53, 2**63])
async def test_a_consumer_has_a_number_up_to_64(place: Place, number: int) -> None:
    """Mutant: any number is taken. Whoever ended that lease would look for as many, and Redis served nobody."""
    await place.create()
    with pytest.raises(InvalidValue, match=f"attach: number is {number}; use 1 to 64"):
        await place.store.attach(
            place.address, "ann", number=number, subscription="queue", durable=True, window="1/1", ttl_ms=1000
        )
    assert not (await place.look()).sessions


async def test_a_session_that_has_a_number_beyond_ends_in_a_moment(place: Place) -> None:
    """Mutant: the loop over a session's consumers has no bound. The record is as an earlier version wrote it."""
    await place.create()
    await place.consumer("ann")
    key = place.address.shared[1]
    record = (await place.server.command(key, "HGET", key, "ann")).replace(
        b"consumers=1 ", b"consumers=9007199254740992 "
    )
    await place.server.command(key, "HSET", key, "ann", record)
    began = monotonic()
    await place.store.acquire(place.address, place.producer("ann").account(), ttl_ms=1000, leave=True)
    assert monotonic() - began < 1.5
    assert not (await place.look()).sessions


async def test_what_is_in_use_without_a_limit_stays_exact(place: Place) -> None:
    """Mutant: without a limit there is no end to what is granted."""
    await place.create(limit="unlimited")
    producers = [place.producer(f"p{number}") for number in range(4)]
    for producer in producers:
        await producer.call(replace(producer.account(), want=2**53 - 1, want_m=2**53 - 1))
    seen = await place.look()
    assert seen.leased == Amount(2**52, 2**52)
    assert (await place.recount()).equal
    for producer in producers:
        await producer.leave()
    assert (await place.look()).leased == Amount()


async def test_an_account_is_opened_anew_before_its_totals_become_inexact(place: Place) -> None:
    """Mutant: `is_counted_out` says no."""
    await place.create(limit="unlimited")
    ann = place.producer("ann")
    ann.hear(await ann.call(replace(ann.account(), want=2**52, want_m=2**52)))
    answer = await ann.call(ann.account())
    assert answer.code == "EXPIRED"
    assert (await ann.publish_as(ann.account(), 1, 5)).code == "EXPIRED"
    ann.start_anew()
    assert (await ann.ask(10)).code == "OK"
    assert (await place.recount()).equal


async def test_the_clock_of_turns_goes_back_before_it_becomes_inexact(place: Place) -> None:
    """Mutant: `take_turn` only adds. Who waits keeps its place in line."""
    await place.full(100)
    waiting = [place.producer(name) for name in ("zoe", "bob", "ann")]
    for producer in waiting:
        await producer.ask(40)
    keys = place.address.shared
    await place.server.command(keys[0], "HSET", keys[0], "turns", 2**52)
    for number, producer in enumerate(waiting):
        await place.server.command(keys[3], "ZADD", keys[3], 2**52 - 10**9 + 10**8 * number, producer.session)
    await place.producer("h0").leave()
    seen = await place.look()
    assert seen.number("turns") < 2**40
    assert seen.line == ["ann"]
    await place.wait(1)
    assert (await place.recount()).equal
