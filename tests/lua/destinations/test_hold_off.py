"""Hold-offs of gates and buckets: nothing for a while, by Redis' clock, and then slowly."""

from typing import Any

import pytest

from headgate.redis.stores.limiters import LimiterStore
from tests.lua.place import Place
from tests.lua.promises.test_p8_rates import take


async def pause(place: Place, ms: int) -> tuple[str, int]:
    return await LimiterStore(place.server).pause(place.address, "ann", ms=ms, reason="429")


async def field(place: Place, name: str) -> str | None:
    return (await place.look()).fields.get(name)


async def test_nobody_is_admitted_until_it_is_over_and_then_slowly(place: Place) -> None:
    """Mutants: it does not stop; what comes after it is the whole limit; it is not written that it is over."""
    await place.create("gate", limit=100)
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(need=10)
    assert await pause(place, 4000) == ("OK", 4000)
    assert (await bob.ask(need=10)).place == 1
    await place.wait(3999)
    assert (await bob.ask(need=10)).place == 1
    await place.wait(1)
    assert (await bob.ask(need=10)).place == 1, "10 of 100 are held, and one may be"
    assert (await field(place, "held_off"), await field(place, "rules")) == (None, "ramp")
    await place.wait(1000)
    assert (await bob.ask(need=10)).granted == 10, "25 may be"
    assert (await ann.ask(need=80)).place == 1
    await place.wait(3000)
    assert (await ann.ask(need=80)).granted == 80
    assert (await field(place, "ramp"), await field(place, "rules"), await field(place, "off_reason")) == (
        None,
        "",
        None,
    )


async def test_calls_come_back_one_by_one(place: Place) -> None:
    """Mutant: only bytes do."""
    await place.create("gate", limit="unlimited", messages=4)
    await pause(place, 4000)
    await place.wait(4001)
    callers = [place.producer(name) for name in ("ann", "bob", "cid", "dan")]
    places = [(await caller.ask(need=1)).place for caller in callers]
    assert places == [0, 1, 2, 3]
    await place.wait(4000)
    assert [(await caller.ask(need=1)).place for caller in callers] == [0, 0, 0, 0]


@pytest.mark.parametrize("limits", [{"limit": 8}, {"limit": "unlimited", "messages": 8}])
async def test_no_ticket_lets_in_more_than_the_slow_begin_does(place: Place, limits: dict[str, Any]) -> None:
    """Mutants: `resolve` looks at neither bytes nor calls; or does so when it is over, too."""
    await place.create("gate", **limits)
    ann, bob = place.producer("ann"), place.producer("bob")
    await pause(place, 4000)
    await place.wait(4001)
    assert (await ann.ask(need=1)).place == 0
    assert (await bob.ask(need=1)).place == 1
    since = int((await place.look()).sessions["bob"]["since"])
    assert await place.store.resolve(place.address, "bob", since=since, mode="ticket") == "REFUSED"
    await place.wait(4000)
    assert await place.store.resolve(place.address, "bob", since=since, mode="ticket") == "OK"


async def test_the_longer_of_two_counts_within_what_the_settings_allow_and_0_ends_it(place: Place) -> None:
    """Mutants: the later one counts; it is as long as asked for; it cannot be ended."""
    await place.create("gate", limit=100, hold_off_ms="5000")
    assert await pause(place, 90_000) == ("OK", 5000)
    await place.wait(1000)
    assert await pause(place, 1000) == ("OK", 4000)
    bob = place.producer("bob")
    assert (await bob.ask(need=100)).place == 1
    assert await pause(place, 0) == ("OK", 0)
    assert (await bob.ask()).granted == 100, "at once, and without a slow begin"


async def test_a_clock_that_is_set_back_ends_it(place: Place) -> None:
    """Mutant: it lasts until that moment comes again."""
    await place.create("gate", limit=100)
    await pause(place, 4000)
    await place.wait(-3_600_000)
    assert (await place.producer("bob").ask(need=10)).granted == 10
    assert await field(place, "held_off") is None


async def test_a_bucket_gives_no_slot_before_its_end_and_saves_nothing_up(place: Place) -> None:
    """Mutants: a slot is given before; the burst is there at the end, for who takes then, or comes only later."""
    await place.create("bucket", rate="10", burst="5")
    await pause(place, 2000)
    assert await take(place, "ann", 1, (1, 1000), (1, 3000)) == ["off:2100000", "2100000"]
    await pause(place, 0)
    await place.wait(10_000)
    await pause(place, 2000)
    await place.wait(2000)
    await place.reap()
    assert await take(place, "ann", 2, (1, 0), (1, 1000)) == ["late:100000", "100000"]


async def test_a_bucket_without_a_limit_is_held_off_too(place: Place) -> None:
    """Mutant: it has no rate, so nobody waits."""
    await place.create("bucket")
    await pause(place, 2000)
    assert await take(place, "ann", 1, (1, 0), (1, 2000)) == ["off:2000000", "2000000"]
    await place.wait(2000)
    assert await take(place, "ann", 2, (1, 0)) == ["0"]


async def test_queues_are_not_held_off(place: Place) -> None:
    await place.create("queue")
    assert await pause(place, 1000) == ("KIND", 0)
