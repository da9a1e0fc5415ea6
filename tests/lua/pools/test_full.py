"""Over all slices of a queue, too, nobody is served once it was full until pending is down to where it resumes."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.names import encode_name
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pools import Share, is_odd
from tests.lua.place import Place
from tests.lua.pool_world import Counted, Runner, SlicedWorld
from tests.lua.pools.pool_actions import ACTIONS, LOSSES, QUIET, act, live
from tests.support.extent import examples
from tests.support.rewriting import RewritingServer, virtual_clock

pytestmark = pytest.mark.one_server

FIRST, SECOND, THIRD = "orders", "orders%.1", "orders%.2"
LIMIT, RESUME = 100, 40


class ResumeWorld(SlicedWorld):
    """A queue over three slots, with a limit of 100, that resumes at 40 once it was full."""

    unit = "bytes"

    async def open(self, limit: int | str = LIMIT, reserve: int = 0) -> None:
        self.settings |= {"resume_bytes": str(RESUME)}
        self.was_full, self.sent, self.epoch = False, 0, ""
        await super().open(limit, reserve)
        await self.store.set(self.pool, {"resume_bytes": str(RESUME)})

    async def make(self, place: Place) -> None:
        await place.create(limit=LIMIT, resume_bytes=str(RESUME))
        await place.change(**{"slices" if place is self.places[FIRST] else "of_slices": "3"})

    async def steps_for(self, name: str) -> None:
        """Take the steps that the client of whoever waits there takes in three rounds."""
        asked = set[str]()
        for _ in range(3):
            await self.pools.step(self.places[name].address, encode_name(self.pool.name), lambda *_: None, asked)

    async def asks(self, name: str, size: int) -> bool:
        """Ask there for so much, and return whether it is granted."""
        return (await self.producers[name].ask(need=size)).place == 0

    async def wants(self, name: str, size: int) -> bool:
        """The same, with the steps that its client takes."""
        await self.clock(300)
        if await self.asks(name, size):
            return True
        await self.steps_for(name)
        return await self.asks(name, size)

    async def sends(self, name: str, *sizes: int) -> None:
        for size in sizes:
            assert await self.wants(name, size)
            await self.publishes(name, size)

    async def publishes(self, name: str, size: int) -> None:
        producer = self.producers[name]
        await producer.publish(*self.messages_of(size))
        self.sent += size

    def messages_of(self, size: int) -> list[int]:
        """Return the bytes of each message that together are so much of what the pool lends."""
        return [size]

    async def settles(self, name: str, size: int = 0) -> None:
        """Settle all that is there, or so much of what was sent first."""
        consumer = await self.places[name].consumer("zoe")
        await consumer.accept(*await consumer.fetch(len(self.messages_of(size)) if size else 256))
        await consumer.detach()

    async def is_full(self) -> bool:
        return is_odd(int((await self.store.fields(self.pool)).get("full", 0)))

    async def pending(self) -> list[int]:
        """Return what is pending at each slice."""
        return [getattr((await place.look()).pending, self.unit) for place in self.places.values()]

    async def check(self) -> None:
        """Nothing is above the limit; as it resumes, no more is pending than the level, and what was sent meanwhile."""
        await super().check()
        full = await self.is_full()
        epoch, self.epoch = self.epoch, (await self.store.fields(self.pool))["epoch"]
        if self.was_full and not full and epoch == self.epoch:
            assert sum(await self.pending()) <= RESUME + self.sent
        if full and not self.was_full:
            self.sent = 0
        self.was_full = full


class ResumeMessagesWorld(ResumeWorld):
    """The same in messages, of which all have one size."""

    unit = "messages"

    def __init__(self, server: RewritingServer, namespace: str) -> None:
        super().__init__(server, namespace)
        self.pool = PoolAddress.of(namespace, "orders#m")

    async def make(self, place: Place) -> None:
        await place.create(limit="unlimited", messages=LIMIT, resume_messages=str(RESUME))
        await place.change(**{"slices" if place is self.places[FIRST] else "of_slices": "3"})

    def messages_of(self, size: int) -> list[int]:
        return [0] * size

    def producer(self, place: Place) -> Counted:
        place.sessions.add("s")
        return Counted(place, "s")


WORLDS: Final = (ResumeWorld, ResumeMessagesWorld)


@pytest.fixture(params=WORLDS)
async def sliced(request: pytest.FixtureRequest, redis_url: str, namespace: str) -> AsyncIterator[ResumeWorld]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    world = request.param(server, namespace)
    await world.open()
    yield world
    await world.close()
    await server.close()


async def test_once_full_nobody_is_served_at_any_slice_until_pending_of_all_is_down(sliced: ResumeWorld) -> None:
    for name in (FIRST, SECOND, THIRD):
        await sliced.sends(name, 30)
    assert not await sliced.is_full()
    assert not await sliced.wants(FIRST, 20)
    assert await sliced.is_full()
    await sliced.settles(THIRD)
    assert not await sliced.asks(THIRD, 5), "not even of what came free there"
    assert (await sliced.look(THIRD)).held == 0
    assert not await sliced.wants(FIRST, 20), "60 are pending, 40 are free"
    assert not await sliced.wants(THIRD, 5), "what came free there is not for who waits there"
    await sliced.settles(SECOND)
    assert await sliced.wants(THIRD, 5), "30 are pending"
    assert await sliced.asks(FIRST, 20), "those behind it are served by that"
    assert await sliced.wants(SECOND, 5)
    assert await sliced.pending() == [30, 0, 0]


async def test_one_slice_that_has_the_whole_limit_is_full_too(sliced: ResumeWorld) -> None:
    """Mutants: it asks nobody, for it could have no more; it goes on as soon as something is free there."""
    await sliced.sends(FIRST, 50, 45)
    assert not await sliced.wants(FIRST, 20)
    assert await sliced.is_full()
    await sliced.settles(FIRST, 50)
    assert not await sliced.wants(FIRST, 20), "45 are pending"
    assert not await sliced.wants(SECOND, 1)
    await sliced.settles(FIRST, 45)
    assert await sliced.wants(SECOND, 1)
    assert await sliced.asks(FIRST, 20)


async def test_it_is_not_full_where_others_have_what_they_do_not_use(sliced: ResumeWorld) -> None:
    """Mutant: a pool is full that has lent all, used or not."""
    await sliced.sends(FIRST, 45)
    assert await sliced.wants(SECOND, 50)
    await sliced.producers[SECOND].give_back(45)
    assert await sliced.wants(THIRD, 40)
    assert not await sliced.is_full()


async def test_it_is_not_full_while_what_others_have_in_hand_is_all_that_is_short(sliced: ResumeWorld) -> None:
    """Mutant: credit counts as pending as a pool becomes full."""
    await sliced.sends(FIRST, 30)
    assert await sliced.wants(SECOND, 60)
    assert not await sliced.wants(THIRD, 20)
    await sliced.store.draw(sliced.pool, THIRD, await sliced.look(THIRD), short=True)
    assert not await sliced.is_full()
    await sliced.publishes(SECOND, 60)
    assert not await sliced.wants(THIRD, 20)
    assert await sliced.is_full()


async def test_credit_in_hand_keeps_nobody_waiting(sliced: ResumeWorld) -> None:
    """Mutant: what is leased counts as pending, so that those who wait with a part in hand wait for ever."""
    await sliced.sends(FIRST, 45)
    assert await sliced.wants(SECOND, 50)
    assert not await sliced.wants(THIRD, 20)
    assert await sliced.is_full()
    await sliced.settles(FIRST)
    assert await sliced.wants(THIRD, 20)
    assert sliced.producers[SECOND].held == 50


async def test_a_slice_that_has_not_heard_of_it_counts_with_all_that_it_has(sliced: ResumeWorld) -> None:
    """Mutant: a report counts that was made before; what is free there would be used."""
    await sliced.sends(FIRST, 50)
    await sliced.sends(SECOND, 5)
    assert await sliced.wants(SECOND, 41)
    before = await sliced.look(SECOND)
    assert not await sliced.wants(THIRD, 20)
    await sliced.settles(FIRST)
    await sliced.store.draw(sliced.pool, SECOND, before)
    await sliced.store.draw(sliced.pool, FIRST, await sliced.look(FIRST))
    assert await sliced.is_full(), "5 were pending, and 46 may be"


async def test_late_answers_open_no_slice_and_shut_none(sliced: ResumeWorld) -> None:
    """Mutant: a slice goes by the answer that came last."""
    place, encoded = sliced.places[FIRST], encode_name(sliced.pool.name)
    held = await sliced.look(FIRST)
    own = Share(FIRST, held.epoch, held.granted, held.returned)

    async def hears(full: int, pool_epoch: int = held.pool_epoch) -> int | None:
        return (await sliced.store.slice(place.address, encoded, share=own, pool_epoch=pool_epoch, full=full)).full

    assert [await hears(3), await hears(2), await hears(4), await hears(3)] == [3, 3, 4, 4]
    assert await hears(1, held.pool_epoch + 1) == 1, "a pool that lost state counts anew"
    assert (await sliced.store.slice(place.address, encoded, pool_epoch=held.pool_epoch + 2)).full == 0


async def test_whoever_is_first_in_line_and_gone_keeps_nobody_waiting(sliced: ResumeWorld) -> None:
    """Mutant: a pool that is full leaves the dead in its line, and nobody asks the slices any more."""
    await sliced.sends(FIRST, 45)
    await sliced.sends(SECOND, 45)
    assert not await sliced.wants(THIRD, 20)
    await sliced.asks(FIRST, 20)
    await sliced.settles(FIRST)
    await sliced.settles(SECOND)
    await sliced.clock(3100)
    await sliced.producers[FIRST].renew()
    assert await sliced.wants(FIRST, 20)


async def test_whoever_is_served_after_all_leaves_it_open(sliced: ResumeWorld) -> None:
    """Mutant: a pool is full as soon as somebody asked all, though there is room now."""
    await sliced.sends(FIRST, 50)
    await sliced.sends(SECOND, 40)
    await sliced.asks(THIRD, 20)
    await sliced.settles(SECOND)
    held = await sliced.look(SECOND)
    await sliced.pools.ask_back(
        sliced.pool, Share(SECOND, held.epoch, held.granted, held.returned), held.pool_epoch, held.held
    )
    assert (await sliced.store.draw(sliced.pool, THIRD, await sliced.look(THIRD), short=True)).granted >= 20
    assert not await sliced.is_full()


async def test_settings_open_it_and_a_level_in_percent_is_of_the_limit_in_force(sliced: ResumeWorld) -> None:
    """Mutants: a pool stays full whatever is set; it goes by the limit that there was."""
    await sliced.sends(FIRST, 70)
    for level in ("90", "", "90%"):
        await sliced.store.set(sliced.pool, {"resume_bytes": str(RESUME)})
        assert not await sliced.wants(SECOND, 35)
        assert await sliced.is_full()
        await sliced.store.set(sliced.pool, {"resume_bytes": level})
        assert not await sliced.is_full()
        assert await sliced.wants(SECOND, 20)
        await sliced.producers[SECOND].give_back(20)
    await sliced.store.set(sliced.pool, {"resume_bytes": "70%"})
    assert not await sliced.wants(SECOND, 35)
    assert not await sliced.is_full(), "70 are pending"
    await sliced.store.set(sliced.pool, {"limit_bytes": "90"})
    assert not await sliced.wants(SECOND, 35)
    assert await sliced.is_full(), "63 are 70 percent now"


@pytest.mark.parametrize(("size", "weight", "parts"), [(10, 3, [25, 75]), (60, 1, [60, 40])])
async def test_as_it_resumes_all_that_wait_have_their_parts_at_once(
    sliced: ResumeWorld, size: int, weight: int, parts: list[int]
) -> None:
    """Mutants: they have what they asked for; all have the same; a message waits that is larger than a part."""
    await sliced.sends(FIRST, 95)
    assert not await sliced.wants(SECOND, size)
    await sliced.producers[THIRD].ask(need=10, weight=weight)
    await sliced.steps_for(THIRD)
    assert await sliced.is_full()
    await sliced.settles(FIRST)
    await sliced.steps_for(SECOND)
    slices = [await sliced.look(name) for name in (SECOND, THIRD)]
    assert [one.granted - one.returned for one in slices] == parts


@pytest.mark.parametrize("sliced", [ResumeWorld], indirect=True)
async def test_whoever_lacks_nothing_of_a_full_pool_and_waits_has_it_asked(sliced: ResumeWorld) -> None:
    """Mutants: it is asked for those alone that lack some of it; only the first in its line has the others report."""
    first = sliced.producers[FIRST]
    assert await sliced.wants(FIRST, 5)
    await sliced.sends(SECOND, 60)
    assert not await sliced.wants(THIRD, 40)
    assert await sliced.is_full()
    await sliced.producers[THIRD].leave()
    await sliced.clock(3100)
    await sliced.places[FIRST].change(limit_messages="10")  # of which no pool lends any
    waits = replace(first.account(need=5), need_m=first.granted_m + 1, want_m=first.granted_m + 1)
    assert (await first.call(waits)).place == 1
    await sliced.settles(SECOND)
    assert await sliced.is_full()
    await sliced.steps_for(FIRST)
    assert not await sliced.is_full()


async def test_a_pool_that_is_made_again_knows_its_level(sliced: ResumeWorld) -> None:
    """Mutant: whoever remembers it forgot that."""
    await sliced.pools.remember(sliced.pool)
    await sliced.server.command(sliced.pool.keys[0], "DEL", *sliced.pool.keys)
    await sliced.wants(FIRST, 20)
    assert (await sliced.store.fields(sliced.pool))["resume_bytes"] == str(RESUME)


SIZES = st.integers(1, 90)
MORE = st.one_of(
    st.tuples(st.just("wants"), st.sampled_from("abc"), SIZES),
    st.tuples(st.just("wants"), st.sampled_from("abc"), SIZES),
    st.tuples(st.just("steps"), st.sampled_from("abc")),
    st.tuples(st.just("send"), st.sampled_from("abc")),
    st.tuples(st.just("send"), st.sampled_from("abc")),
    st.tuples(st.just("settle"), st.sampled_from("abc")),
)


async def do(world: ResumeWorld, action: tuple[Any, ...]) -> None:
    what, *rest = action
    name = list(world.places)["abc".index(rest[0])] if rest and rest[0] in ("a", "b", "c") else ""
    match what:
        case "wants":
            await world.wants(name, rest[1])
        case "steps":
            await world.steps_for(name)
        case "send":
            world.sent += await world.producers[name].send_held()
        case "settle":
            await world.settles(name)
        case _:
            await act(world, action)


async def who_waits_is_served(world: ResumeWorld) -> None:
    """Once all is settled, whoever waits is served, whatever was before."""
    for name in world.places:
        await world.settles(name)
    await world.clock(20_000)
    await world.rebuild()
    for name, place in world.places.items():
        one = place.producer("last")
        for _ in range(4):  # whoever has some in hand is dead by now
            await world.clock(3100)
            await one.ask(need=20)
            await world.steps_for(name)
        assert (await one.ask(need=20)).granted >= 20
        await one.leave()


@settings(QUIET, max_examples=examples(25))
@given(actions=st.lists(st.one_of(MORE, MORE, ACTIONS), min_size=15, max_size=50))
def test_no_order_of_steps_resumes_early_or_never(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(ResumeWorld(runner.server, runner.another()[1]), actions, do, who_waits_is_served))


@settings(QUIET, max_examples=examples(15))
@given(actions=st.lists(st.one_of(MORE, LOSSES), min_size=15, max_size=40))
def test_nor_does_any_loss_of_state(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(ResumeWorld(runner.server, runner.another()[1]), actions, do, who_waits_is_served))
