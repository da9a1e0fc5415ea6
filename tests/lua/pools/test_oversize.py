"""Over all slices of a queue, too, a message above the limit goes while nothing else is there, and has its turn."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.names import encode_name
from tests.lua.place import Consumer, Place, Producer
from tests.lua.pool_world import PoolWorld, Runner, SlicedWorld
from tests.lua.pools.pool_actions import ACTIONS, LOSSES, QUIET, act, live
from tests.lua.promises.hearing import Ear
from tests.support.extent import examples
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = pytest.mark.one_server

FIRST, SECOND, THIRD = "orders", "orders%.1", "orders%.2"


class OversizeWorld(SlicedWorld):
    """A queue over three slots, with a limit of 100 bytes, that lets a message above it go alone."""

    async def make(self, place: Place) -> None:
        if place is self.places[FIRST]:
            await place.create(limit=100, oversize="allow-one", slices="3")
        else:
            await place.create(limit=100, oversize="allow-one", of_slices="3")

    async def step_for(self, name: str) -> bool:
        """Take the steps that the client of who waits there takes once."""
        return await self.pools.step(self.places[name].address, encode_name(self.pool.name), lambda *_: None, set())

    async def turn(self, *names: str) -> None:
        """Let all who wait ask again, and take their steps twice: the first may have to ask the others."""
        for _ in range(2):
            await self.clock(300)
            for name in names:
                asked = set[str]()
                for _ in range(3):
                    await self.pools.step(
                        self.places[name].address, encode_name(self.pool.name), lambda *_: None, asked
                    )

    async def levels(self) -> list[int]:
        """Return what is pending and leased at each slice; checks that nothing is beside what is above the limit."""
        levels = [await place.usage() for place in self.places.values()]
        assert sum(levels) <= 100 or sorted(levels)[:2] == [0, 0], levels
        return levels

    async def check(self) -> None:
        """Nothing is lent twice, nor anything beside what is above the limit."""
        held = await self.slices()
        assert sum(held.values()) <= 100 or sorted(held.values())[:2] == [0, 0], held
        await self.levels()
        fields = await self.store.fields(self.pool)
        members = {share.member: share for share in await self.store.members(self.pool)}
        assert int(fields["granted_bytes"]) == sum(share.held for share in members.values())


@pytest.fixture
async def sliced(redis_url: str, namespace: str) -> AsyncIterator[OversizeWorld]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    world = OversizeWorld(server, namespace)
    await world.open()
    yield world
    await world.close()
    await server.close()


async def settled(consumer: Consumer) -> None:
    await consumer.accept(*await consumer.fetch())


async def waits(producer: Producer, size: int) -> bool:
    return (await producer.ask(need=size)).place > 0


async def test_it_goes_once_no_slice_has_anything(sliced: OversizeWorld) -> None:
    """Mutants: a pool never lends beyond its limit; what went beyond comes back bit by bit."""
    large, small = sliced.producers[FIRST], sliced.producers[SECOND]
    eater = await sliced.places[SECOND].consumer("zoe")
    await small.ask(need=30)
    await sliced.run(SECOND)
    await small.renew()
    await small.publish(30)
    assert await waits(large, 300)
    await sliced.turn(FIRST)
    assert await sliced.levels() == [0, 30, 0]
    await settled(eater)
    assert await waits(small, 10), "nobody goes on meanwhile"
    assert await waits(large, 300)
    await sliced.turn(FIRST, SECOND)
    assert (await large.renew()).granted == 300
    await large.publish(300)
    await sliced.turn(SECOND)
    assert await sliced.levels() == [300, 0, 0]
    await settled(await sliced.places[FIRST].consumer("zoe"))
    await waits(small, 10)
    assert await sliced.step_for(SECOND), "what went beyond the limit comes back at once"
    assert await sliced.levels() == [0, 10, 0]
    await sliced.check()


async def test_what_was_lent_for_one_is_for_no_other(sliced: OversizeWorld) -> None:
    """Mutant: who sends nothing else keeps its turn for ever."""
    large, reader = sliced.producers[FIRST], await sliced.places[FIRST].consumer("zoe")
    await waits(large, 300)
    await sliced.turn(FIRST)
    assert (await large.renew()).granted == 300
    await large.publish(300, need=250)
    await settled(reader)
    assert await sliced.levels() == [0, 0, 0]
    assert (await sliced.look(FIRST)).held == 0
    await waits(large, 250)
    await sliced.turn(FIRST)
    assert await sliced.levels() == [250, 0, 0]


async def test_two_at_two_slices_take_turns_also_with_a_small_one_at_a_third(sliced: OversizeWorld) -> None:
    """Mutant: a pool lends beyond its limit beside others."""
    sizes = {FIRST: 300, SECOND: 250, THIRD: 20}
    served = dict.fromkeys(sizes, 0)
    eaters = {name: await sliced.places[name].consumer("zoe") for name in sizes}
    for name, size in sizes.items():
        await waits(sliced.producers[name], size)
    for _ in range(18):
        for name, size in sizes.items():
            producer = sliced.producers[name]
            await producer.ask(need=max(size, producer.held))
            await sliced.turn(name)
            await producer.renew()
            if producer.held >= size:
                await producer.publish(size, need=size)
                served[name] += 1
            await sliced.check()
        for eater in eaters.values():
            await settled(eater)  # whoever waits at its slice is served at once, from what this has
    assert min(served.values()) >= 5, served


async def test_whoever_needs_all_has_its_turn_although_it_has_something(sliced: OversizeWorld) -> None:
    """Mutant: it is behind all that have less, as if a share were enough for it."""
    for name, size in ((FIRST, 40), (SECOND, 30)):
        await sliced.producers[name].ask(need=size)
        await sliced.run(name)
        await sliced.pools.give_back(sliced.places[name].address, encode_name(sliced.pool.name))
        await sliced.producers[name].renew()
    assert await sliced.levels() == [40, 30, 0]
    await waits(sliced.producers[SECOND], 80)
    await sliced.run(SECOND)
    await waits(sliced.producers[FIRST], 300)
    drawn = await sliced.store.draw(sliced.pool, FIRST, await sliced.look(FIRST))
    assert drawn.place == 1


async def test_others_that_go_on_with_little_give_it_all_back(sliced: OversizeWorld) -> None:
    """Mutant: they owe no more than what they have above its level."""
    large, small = sliced.producers[FIRST], sliced.producers[SECOND]
    eater = await sliced.places[SECOND].consumer("zoe")
    for producer, name, size in ((large, FIRST, 40), (small, SECOND, 30)):
        await producer.ask(need=size)
        await sliced.run(name)
        await sliced.pools.give_back(sliced.places[name].address, encode_name(sliced.pool.name))
        await producer.renew()
    assert await sliced.levels() == [40, 30, 0]
    for _ in range(6):
        await waits(large, 300)
        await small.renew()
        if small.held >= 30:
            await small.publish(30, need=30)  # and so it waits where room comes free
        await sliced.turn(FIRST)
        await sliced.check()
        await settled(eater)
    assert (await large.renew()).granted == 300


async def test_others_go_on_until_nothing_is_left_where_it_waits(sliced: OversizeWorld) -> None:
    """Mutant: it keeps them waiting for what it cannot use yet."""
    ann, bob = sliced.producers[FIRST], sliced.places[FIRST].producer("bob")
    await bob.ask(need=20)
    await sliced.run(FIRST)
    await bob.renew()
    await bob.publish(20)
    await waits(ann, 300)
    assert (await sliced.look(FIRST)).lacks == 0
    await settled(await sliced.places[FIRST].consumer("zoe"))
    held = await sliced.look(FIRST)
    assert held.need - held.returned == 300


async def test_once_nothing_is_left_here_its_session_hears_that_the_others_are_to_be_asked(
    sliced: OversizeWorld,
) -> None:
    """Mutants: it hears nothing, and waits for its next look; it hears it again with each call."""
    ann, place = sliced.producers[FIRST], sliced.places[FIRST]
    bob, cid, reader = place.producer("bob"), place.producer("cid"), await place.consumer("zoe")
    for producer in (bob, cid):
        await producer.ask(need=20)
        await sliced.run(FIRST)
        await producer.renew()
    await bob.publish(20)
    async with Ear.at(place) as ear:

        async def hears() -> list[str]:
            return [session for session, words in await ear.heard() if words == "again"]

        await waits(ann, 300)
        await settled(reader)
        assert await hears() == [], "some is left"
        await cid.give_back(20)
        assert await hears() == ["s"]
        await sliced.look(FIRST)
        await bob.renew()
        assert await hears() == []


async def test_a_session_that_settles_the_last_itself_hears_it_too(sliced: OversizeWorld) -> None:
    """Mutant: only what others settle is told to it."""
    ann, place = sliced.producers[FIRST], sliced.places[FIRST]
    reader = await place.consumer("s")
    await ann.ask(need=20)
    await sliced.run(FIRST)
    await ann.renew()
    await ann.publish(20)
    await waits(ann, 300)
    async with Ear.at(place) as ear:
        await settled(reader)
        assert ("s", "again") in await ear.heard()


async def test_what_was_in_hand_when_the_limit_was_lowered_is_not_alone(sliced: OversizeWorld) -> None:
    """Mutant: nothing is pending here, so it goes, whatever is at other slices."""
    ann = sliced.producers[FIRST]
    await ann.ask(need=80)
    await sliced.run(FIRST)
    await ann.renew()
    assert ann.held == 80
    await sliced.places[FIRST].change(limit_bytes="50")
    credit = await ann.publish_as(ann.account(ahead=(80, 1)), 1, 80)
    assert credit.code == "ABOVE"


async def test_what_was_lent_for_one_that_gave_up_is_not_for_several(sliced: OversizeWorld) -> None:
    """Mutants: a batch goes by what was lent for one message; so does one message after another."""
    ann = sliced.producers[FIRST]
    await waits(ann, 300)
    await sliced.turn(FIRST)
    assert (await ann.renew()).granted == 300
    assert (await ann.publish_as(ann.account(ahead=(180, 2)), 1, 90, 90)).code == "ABOVE"
    await ann.publish(90)
    assert (await ann.publish_as(ann.account(ahead=(90, 1)), 2, 90)).code == "ABOVE"
    await sliced.check()


async def test_a_pool_of_many_destinations_is_asked_for_all_that_it_needs(world: PoolWorld) -> None:
    """Mutant: it goes only where the pool has lent as much by chance."""
    await world.open(limit=1000)
    await world.places["a"].change(limit_bytes="50", oversize="allow-one")
    ann = world.producers["a"]
    assert await waits(ann, 300)
    assert (await world.run("a")).lacks <= 0
    assert (await ann.renew()).granted == 300
    assert sum((await world.slices()).values()) <= 1000


async def test_there_its_session_hears_that_the_pool_is_to_be_asked(world: PoolWorld) -> None:
    """Mutant: only that of a slice hears it."""
    await world.open(limit=400)
    ann, place = world.producers["a"], world.places["a"]
    await place.change(limit_bytes="50", oversize="allow-one")
    await ann.ask(need=20)
    await world.run("a")
    await ann.renew()
    await ann.publish(20)
    assert await waits(ann, 300)
    async with Ear.at(place) as ear:
        await settled(await place.consumer("zoe"))
        assert ("s", "again") in await ear.heard()


SIZES = st.one_of(st.integers(1, 90), st.integers(101, 250))
MORE = st.one_of(
    st.tuples(st.just("ask"), st.sampled_from("abc"), SIZES),
    st.tuples(st.just("ask"), st.sampled_from("abc"), SIZES),
    st.tuples(st.just("refill"), st.sampled_from("abc")),
    st.tuples(st.just("steps"), st.sampled_from("abc")),
    st.tuples(st.just("send"), st.sampled_from("abc")),
    st.tuples(st.just("eat"), st.sampled_from("abc")),
)


async def do(world: OversizeWorld, action: tuple[Any, ...]) -> None:
    what, *rest = action
    name = list(world.places)["abc".index(rest[0])] if what in ("steps", "send", "eat") else ""
    if what == "steps":
        await world.turn(name)
    elif what == "send":
        await world.producers[name].send_held()
    elif what == "eat":
        consumer = await world.places[name].consumer("zoe")
        await settled(consumer)
        await consumer.detach()
    else:
        await act(world, action)


@settings(QUIET, max_examples=examples(25))
@given(actions=st.lists(st.one_of(MORE, MORE, ACTIONS), min_size=15, max_size=50))
def test_no_order_of_steps_has_anything_beside_it(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(OversizeWorld(runner.server, runner.another()[1]), actions, do))


@settings(QUIET, max_examples=examples(15))
@given(actions=st.lists(st.one_of(MORE, LOSSES), min_size=15, max_size=40))
def test_nor_does_any_loss_of_state(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(OversizeWorld(runner.server, runner.another()[1]), actions, do))
