"""Slices announce what is worth a look to whoever waits at another: so nobody looks again and again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.lua.place import Place
from tests.lua.pool_world import PoolWorld, SlicedWorld
from tests.lua.promises.hearing import Ear
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = pytest.mark.one_server

FIRST, SECOND, THIRD = "orders", "orders%.1", "orders%.2"


@pytest.fixture
async def sliced(redis_url: str, namespace: str) -> AsyncIterator[SlicedWorld]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    world = SlicedWorld(server, namespace)
    await world.open()
    yield world
    await world.close()
    await server.close()


@asynccontextmanager
async def announced(world: PoolWorld) -> AsyncIterator[Ear]:
    """Hear what slices announce on the channel of their pool."""
    async with Ear.on(world.server, world.pool.channel) as ear:
        yield ear


async def words(ear: Ear) -> list[str]:
    return [said for _, said in await ear.heard()]


async def asked_back(world: PoolWorld, name: str, size: int = 30) -> None:
    """Have a member asked for what it does not use."""
    share = next(one for one in await world.store.members(world.pool) if one.member == name)
    await world.pools.ask_back(world.pool, share, 0, size)


async def test_a_slice_that_was_asked_announces_what_comes_free(sliced: SlicedWorld) -> None:
    """Mutants: it does not; it does so whether it was asked or not, and for ever; or as more is in use."""
    holder = sliced.producers[SECOND]
    await holder.ask(need=60)
    await sliced.run(SECOND)
    await holder.renew()
    async with announced(sliced) as ear:
        await holder.give_back(5)
        assert await words(ear) == [], "nobody waits elsewhere"
        await asked_back(sliced, SECOND)
        await holder.publish(10)
        assert await words(ear) == [], "as much is in use as before"
        await holder.give_back(5)
        assert await words(ear) == ["free"]
        await asked_back(sliced, SECOND)
        await sliced.clock(1500)
        await holder.renew()
        await asked_back(sliced, SECOND)
        await sliced.clock(1500)
        await holder.give_back(5)
        assert await words(ear) == ["free"], "it was asked again"
        await sliced.clock(2000)
        await holder.give_back(5)
        assert await words(ear) == [], "nobody asks any more"


async def test_what_comes_free_for_those_who_wait_there_is_announced_where_it_is_owed(sliced: SlicedWorld) -> None:
    """Mutants: a slice announces what its own are to have; or not what it owes."""
    place = sliced.places[SECOND]
    holder, waiter = sliced.producers[SECOND], place.producer("waiter")
    await holder.ask(need=60)
    await sliced.run(SECOND)
    await waiter.ask(need=50)
    await asked_back(sliced, SECOND)
    async with announced(sliced) as ear:
        await holder.give_back(5)
        assert await words(ear) == []
        share = next(one for one in await sliced.store.members(sliced.pool) if one.member == SECOND)
        await sliced.pools.ask_back(sliced.pool, share, 0, 30, debt="owe")
        await words(ear)
        await holder.give_back(5)
        assert await words(ear) == ["free"]


async def test_whoever_is_first_hears_it_from_the_pool(sliced: SlicedWorld) -> None:
    """Mutants: nobody hears it; the caller does, who knows; or each time anew."""
    await sliced.producers[FIRST].ask(need=100)
    await sliced.run(FIRST)
    for name in (SECOND, THIRD):
        await sliced.producers[name].ask(need=60)
    async with announced(sliced) as ear:
        for name in (SECOND, THIRD):
            assert (await sliced.run(name)).lacks == 60
        assert await words(ear) == []
        await sliced.producers[SECOND].renew()
        await sliced.pools.draw(sliced.pool, SECOND, await sliced.look(SECOND))
        assert await words(ear) == [f"first {THIRD}"]
        assert (await sliced.run(THIRD)).lacks == 60
        assert await words(ear) == []


async def test_a_session_that_is_first_now_hears_it(sliced: SlicedWorld) -> None:
    """Mutants: it does not; it hears it although nobody left."""
    place = sliced.places[FIRST]
    ann, bob = place.producer("ann"), place.producer("bob")
    await ann.ask(need=50)
    await bob.ask(need=50)
    async with Ear.at(place) as ear:
        await bob.ask(need=60)
        assert "first" not in await words(ear)
        await ann.renew()
        assert ("bob", "first") in await ear.heard()


@pytest.mark.parametrize("since_recall", [100, 200])
async def test_where_there_are_no_pools_it_hears_it_if_others_hold_credit(place: Place, since_recall: int) -> None:
    """Mutants: it does not; whatever they hold; or more than five times a second."""
    await place.create(limit=100)
    zoe, ann, bob = (place.producer(name) for name in ("zoe", "ann", "bob"))
    await zoe.ask(need=100)
    await ann.ask(need=50)
    await bob.ask(need=50)
    await place.wait(since_recall)
    async with Ear.at(place) as ear:
        await ann.renew()
        assert (("bob", "first") in await ear.heard()) == (since_recall == 200)
        await bob.renew()
        await zoe.publish(100)
        await place.wait(1000)
        await ann.ask(need=50)
        await bob.ask(need=50)
        await place.wait(200)
        await ear.heard()
        await ann.renew()
        assert ("bob", "first") not in await ear.heard(), "what waits is to be settled"
