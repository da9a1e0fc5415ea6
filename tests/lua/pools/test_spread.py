"""By what messages go to slices changes once nobody may send, and all that was sent is settled; see lua/spread.lua."""

from collections.abc import AsyncIterator

import pytest

from headgate.core.limits.spread import Spread
from headgate.core.names import slice_name
from headgate.redis.keys import Address
from headgate.redis.stores.spreads import SpreadStore
from tests.lua.place import Place
from tests.lua.spool.test_spool import refer, referred

pytestmark = pytest.mark.one_server
BY = "header:customer"


@pytest.fixture
async def second(place: Place) -> AsyncIterator[Place]:
    """The second slice of the place's queue."""
    address = place.address
    one = Place(place.server, Address.of(address.namespace, slice_name(address.name, 1)))
    yield one
    await place.server.forget(one.address, *one.sessions)


@pytest.fixture
async def spread(place: Place, second: Place) -> SpreadStore:
    """The steps at a queue of two slices, whose limits do not bind: no pool has to lend."""
    await place.create(slices="2", order_by=BY, enforce="off")
    await second.create(of_slices="2", order_by=BY, enforce="off")
    return SpreadStore(place.server)


async def test_each_change_of_slices_or_values_has_a_number_of_its_own(place: Place, spread: SpreadStore) -> None:
    assert await spread.in_force(place.address) == (Spread(1, 2, BY), ""), "nothing was sent to a new one"
    await place.change(slices="3")
    assert await spread.in_force(place.address) == (Spread(1, 2, BY), f"2 3 {BY}")
    await place.change(slices="3", order_by=BY)
    assert (await spread.in_force(place.address))[1] == f"2 3 {BY}"
    await place.change(order_by="")
    assert (await spread.in_force(place.address))[1] == "3 3 -"
    await place.change(slices="2", order_by=BY)
    assert await spread.in_force(place.address) == (Spread(4, 2, BY), ""), "taken back"
    await place.change(limit_bytes="5", spread=f"9 9 {BY}", slices="4")
    assert await spread.in_force(place.address) == (Spread(4, 2, BY), f"5 4 {BY}"), "callers do not put it in force"
    await place.change(spread=f"5 4 {BY}")
    assert (await spread.in_force(place.address))[1] == f"5 4 {BY}"


async def test_one_without_values_is_spread_by_nothing(place: Place) -> None:
    await place.create(slices="2")
    await place.change(slices="3")
    store = SpreadStore(place.server)
    assert await store.in_force(place.address) == (None, "")
    assert await store.step(place.address, f"1 3 {BY}", "change") == ("OLD", 0)
    await place.change(order_by=BY)
    assert await store.in_force(place.address) == (None, f"1 3 {BY}"), "sessions send to it by producer"


async def test_nobody_sends_to_a_slice_that_is_held(second: Place, place: Place, spread: SpreadStore) -> None:
    await place.change(slices="3")
    ann, bob = second.producer("ann"), second.producer("bob")
    await ann.ask(10, window=100)
    assert await spread.step(second.address, f"2 3 {BY}", "hold") == ("OK", ann.granted_m)
    assert (await ann.publish_as(ann.account(), 1, 10)).code == "STOPPED"
    assert (await bob.ask(10)).place == 1
    await ann.give_back(ann.held, ann.granted_m)
    assert await spread.step(second.address, f"2 3 {BY}", "hold") == ("OK", 0)
    assert await spread.step(second.address, "2 ", "go") == ("OK", 0)
    assert (await bob.renew()).granted >= 10
    assert (await second.recount()).equal


async def test_it_changes_when_nothing_is_left_that_was_sent_before(place: Place, spread: SpreadStore) -> None:
    """Messages for later do not count: they are delivered as they are due, in no order."""
    ann, eva = place.producer("ann"), await place.consumer("eva")
    await ann.ask(100, window=100)
    await ann.publish(10, 10, later="- 60000")
    await place.change(slices="3")
    to = f"2 3 {BY}"
    assert await spread.step(place.address, to, "change") == ("OK", 1 + ann.granted_m - 2)
    await ann.give_back(ann.held, ann.granted_m - 2)
    assert await spread.step(place.address, to, "change") == ("OK", 1), "stored, and not settled"
    (one,) = await eva.fetch()
    assert await spread.step(place.address, to, "change") == ("OK", 1), "in hand, and not settled"
    assert (await spread.in_force(place.address))[0] == Spread(1, 2, BY)
    await eva.accept(one)
    assert await spread.step(place.address, to, "change") == ("OK", 0)
    assert await spread.in_force(place.address) == (Spread(2, 3, BY), "")
    assert (await ann.ask(10)).granted > 0, "and all may send again"


async def test_it_waits_for_claims_of_what_may_be_lost(place: Place, spread: SpreadStore) -> None:
    await place.create(slices="2", order_by=BY)
    await place.change(slices="3")
    await place.forget()
    await place.create(mode="recover", slices="2", order_by=BY, spread=f"1 2 {BY}")
    await place.change(slices="3")
    code, busy = await spread.step(place.address, f"2 3 {BY}", "change")
    assert code == "OK"
    assert busy > 0
    assert (await spread.in_force(place.address))[1] == f"2 3 {BY}"


async def test_a_segment_that_was_written_for_an_earlier_spread_is_refused(
    place: Place, second: Place, spread: SpreadStore
) -> None:
    """It takes no credit, so no change waits for whoever has written it. Older clients do not say what they saw."""
    senders, to = [at.producer("ann") for at in (place, second)], f"2 3 {BY}"
    seen = [await spread.seen(place.address), await spread.seen(second.address)]
    for ann, one in zip(senders, seen, strict=True):
        await ann.renew()
        assert one == f"{ann.epoch}-0"
        for other in (f"{ann.epoch - 1}-0", f"{ann.epoch}-1", f"{ann.epoch}"):
            assert (await refer(ann, "s1", 9, seen=other)).code == "STALE"
        for number, same in enumerate((one, "")):
            await referred(ann, f"s{number}", 9, seen=same)
        eva = await ann.place.consumer("eva")
        await eva.accept(*await eva.fetch())
    await place.change(slices="3")
    assert (await refer(senders[0], "s2", 9, seen=seen[0])).code == "STOPPED"
    assert await spread.step(second.address, to, "hold") == ("OK", 0)
    assert await spread.step(place.address, to, "change") == ("OK", 0)
    assert await spread.step(second.address, to, "go") == ("OK", 0)
    for ann, one in zip(senders, seen, strict=True):
        assert (await refer(ann, "s2", 9, seen=one)).code == "STALE"
        await referred(ann, "s2", 9, seen=await spread.seen(ann.place.address))


async def test_a_late_step_of_an_earlier_change_does_nothing(place: Place, second: Place, spread: SpreadStore) -> None:
    await place.change(slices="3")
    await place.change(slices="4")
    assert await spread.step(place.address, f"2 3 {BY}", "change") == ("OLD", 0)
    assert await spread.step(place.address, f"7 3 {BY}", "change") == ("OLD", 0), "nobody has it come"
    assert await spread.step(second.address, f"3 4 {BY}", "hold") == ("OK", 0)
    assert await spread.step(second.address, "7 ", "go") == ("OLD", 0)
    assert await spread.step(second.address, f"2 3 {BY}", "hold") == ("OLD", 0)
    assert await spread.step(second.address, f"2 3 {BY}", "go") == ("OLD", 0)
    assert await spread.held(second.address) == "3"
    assert await spread.step(second.address, "no number", "hold") == ("OLD", 0)
