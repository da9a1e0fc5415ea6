"""P1: no grant ever makes pending and leased exceed the limit."""

import pytest

from tests.lua.place import Place


async def test_a_grant_never_exceeds_the_room(place: Place) -> None:
    """Mutant: `raise` without `free`."""
    await place.create(limit=100)
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(window=70)
    credit = await bob.ask(window=70)
    assert (credit.granted, credit.place) == (30, 0)
    assert await place.usage() == 100


async def test_who_needs_more_than_the_room_waits(place: Place) -> None:
    """Mutant: `grant` without its look at `free`."""
    await place.create(limit=100)
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(window=80)
    credit = await bob.ask(need=60)
    assert (credit.granted, credit.place, credit.blocked) == (0, 1, 1)


async def test_messages_are_limited_like_bytes(place: Place) -> None:
    """Mutant: `grant` without its look at `free_m`."""
    await place.create(limit=1000, messages=3)
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(need=10)
    await ann.publish(10, window=10)
    await ann.ask(window=10)
    credit = await bob.ask(need=10)
    assert (credit.granted_m, credit.place) == (0, 1)
    assert (await place.look()).leased.messages == 2


async def test_what_is_pending_is_not_granted_again(place: Place) -> None:
    """Mutant: `room` without pending."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.send(90)
    credit = await ann.ask(need=20)
    assert (credit.granted, credit.place) == (90, 1)


async def test_a_message_above_the_limit_is_refused_and_not_put_in_line(place: Place) -> None:
    """Mutant: `acquire` without its look at the limit."""
    await place.create(limit=100, messages=5)
    ann = place.producer("ann")
    credit = await ann.ask(need=101)
    assert (credit.code, credit.granted, credit.granted_m) == ("TOO_LARGE", 100, 5)
    await ann.ask(window=50)
    assert (await ann.ask(need=120)).code == "TOO_LARGE", "with 50 in hand only 70 more are missing"
    assert (await place.look()).line == []


async def test_more_than_the_credit_held_is_not_published(place: Place) -> None:
    """Mutant: `publish` without its look at `held`."""
    await place.create(limit=100)
    ann = place.producer("ann")
    await ann.ask(window=20)
    credit = await ann.publish_as(ann.account(), 1, 21)
    assert (credit.code, credit.granted) == ("OVERUSE", 20)
    assert (await place.look()).messages == {}
    assert (await ann.publish_as(ann.account(), 1, *[1] * 9)).code == "OVERUSE", "nine messages, credit for eight"
    assert await place.usage() == 20


async def test_a_lowered_limit_grants_nothing_until_there_is_room_below_it(place: Place) -> None:
    """Mutant: `grant` without its look at `free`."""
    await place.create(limit=100)
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(window=80)
    await place.change(limit_bytes="50")
    assert (await bob.ask(need=10)).place == 1
    assert (await ann.ask(window=100)).granted == 80
    await ann.give_back(39)
    assert (await bob.ask(need=10)).place == 1
    await ann.give_back(1)
    assert (await bob.ask(need=10)).granted == 10
    assert await place.usage() == 50


@pytest.mark.parametrize("weights", [(1, 1), (1, 3)])
async def test_nobody_holds_more_than_its_share_unless_its_message_needs_it(
    place: Place, weights: tuple[int, int]
) -> None:
    """P7. Mutant: `share` is the whole limit."""
    await place.create(limit=120)
    ann, bob = place.producer("ann"), place.producer("bob")
    for producer, weight in zip((ann, bob), weights, strict=True):
        await producer.ask(weight=weight)
    fair = 120 * weights[0] // sum(weights)
    assert (await ann.ask(window=120, weight=weights[0])).granted == fair
    assert (await ann.ask(need=100, window=120, weight=weights[0])).granted == 100
    assert await place.usage() == 100
