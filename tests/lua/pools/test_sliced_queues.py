"""Slices of a queue are members of a pool of their own, from the call on that makes them so, whatever callers say."""

from collections.abc import AsyncIterator

import pytest

from headgate.core.names import slice_name
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.pools import PoolStore, Share
from tests.lua.place import Place

pytestmark = pytest.mark.one_server


async def fields(place: Place, *names: str) -> list[str]:
    found = await place.server.command(place.address.shared[0], "HMGET", place.address.key, *names)
    return [(value or b"").decode() for value in found]


@pytest.fixture
async def third(place: Place) -> AsyncIterator[Place]:
    """The third slice of the place's queue."""
    address = place.address
    one = Place(place.server, Address.of(address.namespace, slice_name(address.name, 3)))
    yield one
    await place.server.forget(one.address, *one.sessions)


async def test_a_queue_with_slices_lends_nothing_that_its_pool_did_not(place: Place, third: Place) -> None:
    await place.create(limit=1000)
    assert (await place.producer("ann").ask(need=100)).granted == 100, "one without slices has no pool"
    assert await fields(place, "slices_pool", "rules") == ["", ""]
    await place.change(slices="4")
    pool = f"{place.address.name}%.0"
    assert await fields(place, "slices_pool", "sliced", "of_slices") == [pool, "4", "4"]
    assert (await place.producer("bob").ask(need=100)).granted == 0
    await third.create(limit=1000, of_slices="4")
    assert await fields(third, "slices_pool", "slices", "sliced", "of_slices") == [pool, "", "", "4"]
    assert (await third.producer("ann").ask(need=100)).granted == 0


async def test_nobody_takes_a_slice_out_of_the_pool(place: Place, third: Place) -> None:
    await place.create(limit=1000, slices="4")
    await third.create(limit=1000)
    pool = f"{place.address.name}%.0"
    for one in (place, third):
        for settings in (
            {"slices_pool": "memory"},
            {"pools": "memory"},
            {"pools": ""},
            {"message_ttl_ms": "5000"},  # a rule beside
            {"slices": "2"},
            {"slices": "1"},
            {"slices": ""},
        ):
            await one.change(**settings)
            assert await fields(one, "slices_pool") == [pool], settings
            assert (await one.producer("bob").ask(need=100)).granted == 0
    assert await fields(place, "sliced", "slices") == ["4", ""], "consumers stay at all there ever were"


async def test_a_session_keeps_no_more_in_hand_than_its_share_of_one_slice(place: Place) -> None:
    await place.create(limit=1000, slices="4")
    address, pool = place.address, f"{place.address.name}%.0"
    store = PoolStore(place.server)
    epoch = (await store.slice(address, pool)).epoch
    await store.slice(address, pool, share=Share(place.address.name, epoch, 1000, 0), pool_epoch=epoch)
    bob = place.producer("bob")
    assert (await bob.ask(window=1000)).granted == 250
    assert (await bob.ask(need=600)).granted == 600, "what it needs it gets"


async def test_slices_of_a_gate_begin_slowly_together(place: Place) -> None:
    """Mutant: after a hold-off each of them admits what all may."""
    await place.create("gate", limit=1000, slices="4")
    address, pool, store = place.address, f"{place.address.name}%.0", PoolStore(place.server)
    epoch = (await store.slice(address, pool)).epoch
    await store.slice(address, pool, share=Share(place.address.name, epoch, 1000, 0), pool_epoch=epoch)
    await LimiterStore(place.server).pause(address, "ann", ms=4000, reason="")
    await place.wait(6000)
    assert (await place.producer("ann").ask(need=1, window=1000)).granted == 125, "half of it, and a quarter of that"
    await place.wait(2001)
    assert (await place.producer("bob").ask(need=875)).granted == 875


async def test_sessions_are_placed_in_turn(place: Place) -> None:
    await place.create(slices="3")
    assert [await place.store.place(place.address) for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    await place.change(slices="2")
    assert {await place.store.place(place.address) for _ in range(4)} == {0, 1}
    await place.change(slices="1")
    assert await place.store.place(place.address) == 0
