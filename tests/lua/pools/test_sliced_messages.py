"""Slices of a queue share its limit in messages too, in a second pool, from the call on that sets it."""

from collections.abc import AsyncIterator

import pytest

from headgate.core.names import slice_name
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.pools import PoolStore, Share, Slice
from tests.lua.place import Place
from tests.lua.promises.hearing import Ear

pytestmark = pytest.mark.one_server


async def field(place: Place, name: str) -> str:
    found = await place.server.command(place.address.shared[0], "HGET", place.address.key, name)
    return (found or b"").decode()


async def lend(place: Place, amount: int, *, of: str = "m", back: int = 0) -> Slice:
    """Let the pool of messages, or with ``0`` of bytes, lend a slice so many in all."""
    store, pool = PoolStore(place.server), f"{place.address.whole.name}%.{of}"
    epoch = (await store.slice(place.address, pool)).epoch
    share = Share(place.address.name, epoch, amount, back)
    return await store.slice(place.address, pool, share=share, pool_epoch=epoch)


@pytest.fixture
async def third(place: Place) -> AsyncIterator[Place]:
    """The third slice of the place's queue."""
    address = place.address
    one = Place(place.server, Address.of(address.namespace, slice_name(address.name, 3)))
    yield one
    await place.server.forget(one.address, *one.sessions)


async def test_a_queue_with_slices_lends_no_message_that_its_pool_did_not(place: Place, third: Place) -> None:
    await place.create(limit="unlimited", messages=5)
    await place.change(messages_pool="memory")
    assert await field(place, "messages_pool") == ""
    assert (await place.producer("ann").ask(need=1)).granted_m == 5, "one without slices has no pool"
    await place.change(slices="4")
    await third.create(limit="unlimited", messages=5, of_slices="4")
    for one in (place, third):
        assert await field(one, "messages_pool") == f"{place.address.name}%.m"
        assert (await one.producer("bob").ask(need=1)).granted_m == 0
    await lend(third, 1000, of="0")
    bob = third.producer("bob")
    assert (await bob.ask(need=100)).place == 1, "bytes alone are not enough"
    await lend(third, 2)
    assert (await bob.renew()).granted_m == 1
    assert (await third.producer("cid").ask(need=1)).granted_m == 1
    assert (await third.producer("dan").ask(need=1)).granted_m == 0


async def test_nobody_takes_a_slice_out_of_it_who_leaves_the_limit(place: Place) -> None:
    await place.create(limit="unlimited", messages=5, slices="4")
    await lend(place, 1000, of="0")
    pool = f"{place.address.name}%.m"
    for settings in (
        {"messages_pool": ""},
        {"pools": "memory"},
        {"pools": ""},
        {"slices": "2"},
        {"limit_messages": "9"},
        {"message_ttl_ms": "5000"},  # a rule beside
    ):
        await place.change(**settings)
        assert await field(place, "messages_pool") == pool, settings
        assert (await place.producer("bob").ask(need=1)).granted_m == 0
    await lend(place, 50)
    await place.change(limit_messages="unlimited")
    assert await field(place, "messages_pool") == ""
    assert (await place.producer("bob").ask(need=1)).granted_m > 0
    await place.change(limit_messages="9")
    assert (await place.producer("cid").ask(need=1)).granted_m == 0, "what was lent before is none of the next pool"


async def test_a_slice_that_knows_of_no_such_limit_says_so(place: Place) -> None:
    """Mutant: a pool that asks what there is takes it for nothing, and lends others what is used here."""
    await place.create(limit="unlimited", slices="4")
    await lend(place, 1000, of="0")
    await place.producer("ann").send(10, 10)
    assert (await lend(place, 4)).code == "UNBOUND"
    await place.change(limit_messages="9")
    found = await lend(place, 0)
    assert found.used >= 2
    store = PoolStore(place.server)
    assert (await store.slice(place.address, "a.m")).code == "OK", "a pool that users called so lends bytes"


async def test_a_session_keeps_no_more_messages_in_hand_than_its_share_of_one_slice(place: Place) -> None:
    await place.create(limit="unlimited", messages=16, slices="4")
    await lend(place, 1000, of="0")
    await lend(place, 16)
    assert (await place.producer("bob").ask(window=100)).granted_m == 4


async def test_what_is_lacking_is_counted_in_messages(place: Place) -> None:
    await place.create(limit="unlimited", messages=3, slices="4")
    await lend(place, 1000, of="0")
    await lend(place, 1)
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(need=100)
    await ann.publish(100)
    await bob.ask(need=100)
    seen = await lend(place, 1)
    assert (seen.used, seen.need, seen.lacks) == (1, 2, 1)
    in_bytes = await lend(place, 1000, of="0")
    assert (in_bytes.used, in_bytes.lacks) == (100, 0)
    assert (await lend(place, 2)).lacks == 0
    assert (await bob.renew()).granted_m == 1


async def test_bytes_that_wait_for_messages_go_back_and_not_the_reverse(place: Place) -> None:
    """Mutant: whoever waits for one of the two keeps the other: a circle."""
    await place.create(limit=1000, messages=5, slices="4")
    bob = place.producer("bob")
    await bob.ask(need=60)
    await lend(place, 60, of="0")
    store, pool = PoolStore(place.server), f"{place.address.name}%.0"
    epoch = (await store.slice(place.address, pool)).epoch
    share = Share(place.address.name, epoch, 60, 0)
    kept = await store.slice(place.address, pool, share=share, target=60)
    assert kept.returned == 0, "it comes first, and what it has is for the first in line"
    await place.change(limit_messages="5", pools="disk")
    await place.wait(10)
    await lend(place, 1)
    pool = f"{place.address.name}%.m"
    given = await store.slice(place.address, pool, share=Share(place.address.name, epoch, 1, 0), target=1)
    assert given.returned == 1, "it has nothing of disk"


async def test_where_a_store_is_named_messages_come_first(place: Place) -> None:
    """It takes what finds no bytes, and each reference is a message. Mutant: who waits for bytes keeps none."""
    await place.create(limit=1000, messages=5, slices="4", when_full="spool", store="disk")
    await place.producer("bob").ask(need=60)
    store, name = PoolStore(place.server), place.address.name
    epoch = (await store.slice(place.address, f"{name}%.m")).epoch

    async def kept(of: str, amount: int) -> int:
        share = Share(name, epoch, amount, 0)
        await store.slice(place.address, f"{name}%.{of}", share=share, pool_epoch=epoch)
        return amount - (await store.slice(place.address, f"{name}%.{of}", share=share, target=amount)).returned

    assert await kept("0", 60) == 0, "it has no message yet"
    assert await kept("m", 1) == 1, "it comes first, and what it has is for the first in line"


async def test_holders_are_told_how_many_messages_are_owed(place: Place) -> None:
    await place.create(limit="unlimited", messages=50, slices="4")
    await lend(place, 1000, of="0")
    await lend(place, 12)
    await place.producer("ann").ask(need=1)
    store, pool = PoolStore(place.server), f"{place.address.name}%.m"
    async with Ear.at(place) as ear:
        epoch = (await store.slice(place.address, pool)).epoch
        share = Share(place.address.name, epoch, 12, 0)
        held = await store.slice(place.address, pool, share=share, target=12, debt="owe")
        assert held.returned == 12 - held.used > 0
        recalls = [words for _, words in await ear.heard() if words.startswith("recall")]
    assert recalls == [f"recall 1000 0 {epoch} owed"]


async def test_credit_of_before_the_limit_was_lent_is_covered_by_what_was_lent(place: Place) -> None:
    """Mutant: it goes on above what its slice has."""
    await place.create(limit="unlimited", messages=8, slices="4")
    await lend(place, 1000, of="0")
    await lend(place, 4)
    ann = place.producer("ann")
    await ann.ask(window=100)
    await ann.ask(need=10, window=100)
    assert ann.granted_m >= 2
    epoch = (await PoolStore(place.server).slice(place.address, f"{place.address.name}%.m")).epoch
    key = f"{place.address.key}:slices"
    text = f"granted=4 returned=3 owed=3 asked=0 epoch={epoch} pool={epoch} drawn=0"
    await place.server.command(place.address.shared[0], "HSET", key, f"{place.address.name}%.m", text)
    credit = await ann.publish_as(ann.account(ahead=(20, 2)), 1, 10, 10)
    assert credit.code == "ABOVE"


async def test_slices_of_a_gate_admit_again_one_by_one_together(place: Place) -> None:
    """Mutant: after a hold-off each of them admits as many calls as all may."""
    await place.create("gate", limit="unlimited", messages=80, slices="4")
    await lend(place, 1000, of="0")
    await lend(place, 80)
    await LimiterStore(place.server).pause(place.address, "ann", ms=4000, reason="")
    await place.wait(6000)
    free = [(await place.producer(f"s{number}").ask(need=1)).granted_m for number in range(20)]
    assert sum(free) == 10, "half of it, and a quarter of that"


async def test_holders_of_permits_are_told_their_share_of_what_the_slice_has(place: Place) -> None:
    """They take them up again at once. Mutant: their share of the whole limit, so that nobody else has any."""
    await place.create("gate", limit="unlimited", messages=80, slices="4")
    await lend(place, 1000, of="0")
    await lend(place, 4)
    ann, bob = place.producer("ann"), place.producer("bob")
    assert (await ann.ask(need=1)).granted_m == 4
    async with Ear.at(place) as ear:
        assert (await bob.ask(need=1)).place == 1
        recalls = [words for _, words in await ear.heard() if words.startswith("recall")]
    assert [words.split()[2] for words in recalls] == ["2"]


@pytest.mark.parametrize("kind", ["gate", "queue"])
async def test_a_slice_that_uses_nothing_gives_all_back_where_its_first_needs_more(place: Place, kind: str) -> None:
    """So it stands in the pool's line as one that has nothing: others take their permits again, or hold as little.

    Mutants: it keeps that; or gives back while something is used; or a queue keeps it.
    """
    await place.create(kind, limit=100, slices="4")
    await lend(place, 25, of="0")
    ann, bob = place.producer("ann"), place.producer("bob")
    await bob.ask(need=10)

    async def seen() -> tuple[int, int]:
        slice_ = await PoolStore(place.server).slice(place.address, f"{place.address.name}%.0")
        return slice_.returned, slice_.lacks

    assert (await ann.ask(need=20)).place == 1
    await bob.give_back(10)
    assert (await ann.renew()).granted == 20
    await ann.give_back(20)
    assert await seen() == (0, 0), "it is enough"
    await bob.ask(need=10)
    await ann.ask(need=60)
    assert await seen() == (0, 45)
    await bob.give_back(10)
    assert await seen() == (25, 60)


@pytest.mark.parametrize("kind", ["gate", "queue"])
async def test_holders_of_permits_hear_at_once_that_a_slice_owes_more(place: Place, kind: str) -> None:
    """Whoever waits elsewhere looks again half a second later. Mutants: 0.2 s after the last; each time it owes."""
    await place.create(kind, limit=100, slices="4")
    await lend(place, 40, of="0")
    await place.producer("ann").ask(need=40)
    async with Ear.at(place) as ear:
        epoch = (await place.producer("bob").ask(need=10)).epoch
        for owed, heard in ((20, kind == "gate"), (20, False), (30, kind == "gate")):
            await ear.heard()
            pool = f"{place.address.name}%.0"
            share = Share(place.address.name, epoch, 40, 0)
            await PoolStore(place.server).slice(
                place.address, pool, share=share, pool_epoch=epoch, target=owed, debt="owe"
            )
            assert any(words.endswith(" owed") for _, words in await ear.heard()) == heard
