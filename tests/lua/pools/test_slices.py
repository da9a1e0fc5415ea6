"""Slices of a pool: what is kept, what goes back, and what is owed to whom."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.redis.stores.pools import PoolDraw, Share
from tests.lua.place import TTL_MS
from tests.lua.pool_world import PoolWorld, Runner, granted, held
from tests.lua.pools.pool_actions import ACTIONS, QUIET, act, sizes
from tests.lua.promises.hearing import Ear
from tests.model.pool import ModelSlice

pytestmark = pytest.mark.one_server

SLICE_CALLS = st.one_of(
    st.tuples(st.just("ask"), sizes),
    st.tuples(st.just("free"), sizes),
    st.tuples(st.just("look")),
    st.tuples(st.just("wait"), st.sampled_from([500, 1000, 2500])),
    st.tuples(
        st.just("hear"), st.sampled_from([0, 0, 20, 60]), sizes, st.sampled_from(["keep", "owe", "owe", "void", "idle"])
    ),
)


@QUIET
@given(calls=st.lists(SLICE_CALLS, min_size=5, max_size=30))
def test_a_slice_answers_as_the_model_does(runner: Runner, calls: list[tuple[Any, ...]]) -> None:
    async def compare() -> None:
        world, model = runner.world(), ModelSlice()
        await world.open()
        producer, place = world.producers["a"], world.places["a"]
        seen = await world.look("a")
        for what, *rest in calls:
            if not model.waits:
                await producer.renew()
            match what:
                case "ask":
                    await producer.ask(need=producer.held + rest[0])
                    model.ask(rest[0])
                case "free":
                    back = min(rest[0], model.used)
                    await producer.give_back(back)
                    model.free(back)
                case "wait":
                    if model.waits:  # it polls
                        await producer.ask(need=producer.held + model.waits)
                    await world.clock(rest[0])
                    model.now += rest[0]
                case "hear":
                    share = Share("a", seen.epoch, model.granted + rest[0], model.returned)
                    target, debt = (0, rest[2]) if rest[2] == "void" else (model.returned + rest[1], rest[2])
                    await world.store.slice(place.address, "memory", share=share, target=target, debt=debt)
                    model.hear(share.granted, share.returned, target, debt)
            seen = await world.look("a")
            model.look()
            assert (seen.granted, seen.returned, seen.used, seen.need) == (
                model.granted, model.returned, model.used, model.need,
            )  # fmt: skip
            assert seen.used <= seen.held
        await world.close()

    runner.runner.run(compare())


@QUIET
@given(actions=st.lists(ACTIONS, min_size=10, max_size=40), size=sizes)
def test_who_alone_waits_is_served_whatever_was_owed_before(
    runner: Runner, actions: list[tuple[Any, ...]], size: int
) -> None:
    """Mutant: the first in line pays before it is served."""

    async def serve() -> None:
        world = runner.world()
        await world.open()
        for action in actions:
            await act(world, action)
        for name in "bc":  # they wait no longer, and free what they have
            await world.producers[name].renew()
            await act(world, ("free", name))
            await world.pools.step(world.places[name].address, "memory", lambda *_: None, set())
            await world.pools.draw(world.pool, name, await world.look(name))
        await world.producers["a"].renew()
        await act(world, ("free", "a"))
        await world.producers["a"].ask(need=size)
        for _ in range(2):  # the first may ask the others for it
            if await world.pools.step(world.places["a"].address, "memory", lambda *_: None, set()):
                break
        assert await world.places["a"].usage() >= size
        await world.check()
        await world.close()

    runner.runner.run(serve())


async def test_who_owes_serves_nobody_until_it_has_paid(world: PoolWorld) -> None:
    """Mutant: what is owed may be used."""
    await world.open()
    await held(world, a=100)
    await world.producers["b"].ask(need=30)
    assert (await world.run("b")).lacks == 30
    share = (await world.store.members(world.pool))[0]
    await world.pools.ask_back(world.pool, share, 0, 30, debt="owe")
    assert (await world.slices())["a"] == 100
    await world.producers["a"].give_back(20)
    await world.producers["a"].ask(need=world.producers["a"].held + 20)
    await world.clock(1000)
    assert (await world.look("a")).used == 80, "what comes free is not handed out again"
    share = (await world.store.members(world.pool))[0]
    await world.pools.ask_back(world.pool, share, 0, 30, debt="owe")
    assert (await world.slices())["a"] == 80
    assert await granted(world) == 80


async def test_who_gives_up_while_its_pool_is_asked_stands_before_nobody(
    world: PoolWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: as nothing is lacking any more there is nothing left to do."""
    await world.open()
    await held(world, a=100)
    await world.producers["a"].renew()
    await world.producers["b"].ask(need=30)
    draw = world.pools.store.draw

    async def gives_up(*arguments: Any, **words: Any) -> PoolDraw:
        drawn = await draw(*arguments, **words)
        await world.producers["b"].renew()
        return drawn

    monkeypatch.setattr(world.pools.store, "draw", gives_up)
    assert await world.pools.step(world.places["b"].address, "memory", lambda *_: None, set()), "nobody lacks anything"
    monkeypatch.undo()
    await world.producers["c"].ask(need=30)
    assert (await world.pools.draw(world.pool, "c", await world.look("c"))).place == 1


async def in_debt(world: PoolWorld) -> None:
    """Let a use half of the pool and b the other, and both owe 20 because c waits for them."""
    await world.open()
    await held(world, a=50, b=50)
    await world.producers["a"].renew()
    await world.producers["b"].renew()
    await world.producers["c"].ask(need=20)
    await world.clock(1000)
    assert (await world.run("c")).lacks == 20
    for share in await world.store.members(world.pool):
        if share.held:
            await world.pools.ask_back(world.pool, share, 0, 20, debt="owe")


async def test_a_debt_is_paid_by_whoever_looks(world: PoolWorld) -> None:
    """Mutant: a look pays nothing."""
    await in_debt(world)
    await world.producers["a"].give_back(20)
    await world.run("a")
    assert (await world.slices())["c"] == 20


async def test_who_waits_asks_again_before_the_debt_lapses(world: PoolWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many members, of whom few are asked at once."""
    monkeypatch.setattr("headgate.namespace.pool_slices.ASK_AT_ONCE", 1)
    await in_debt(world)
    asked = set[str]()
    for turn in range(6):
        await world.clock(2000)
        for name in "abc":
            await world.producers[name].renew()
        await world.producers["c"].ask(need=20)
        await world.pools.step(world.places["c"].address, "memory", lambda *_: None, asked)
        asked_at = max([(await world.slice_of(name))["asked"] for name in "ab"])
        assert turn < 2 or asked_at == world.now, "every time, once all were asked for what they do not use"


async def test_holders_learn_whether_others_wait_elsewhere(world: PoolWorld) -> None:
    """Mutant: who waits alone takes a recall for its own, and keeps what it has in hand."""
    await world.open()
    await held(world, a=60)
    await world.producers["b"].renew()
    share = next(one for one in await world.store.members(world.pool) if one.member == "a")
    epoch = (await world.look("a")).epoch
    async with Ear.at(world.places["a"]) as ear:

        async def recalled() -> list[str]:
            return [words.removeprefix("recall ") for _, words in await ear.heard() if words.startswith("recall")]

        await world.clock(1000)
        await world.producers["a"].ask(need=world.producers["a"].held + 90)
        assert await recalled() == [f"{1 << 52} {1 << 52} {epoch}"], "who waits here"
        await world.clock(1000)
        await world.pools.ask_back(world.pool, share, 0, 30, debt="owe")
        assert await recalled() == [f"30 {1 << 52} {epoch} owed"]
        await world.clock(1000)
        await world.producers["a"].ask(need=world.producers["a"].held + 90)
        assert await recalled() == [f"30 {1 << 52} {epoch} owed"], "they wait elsewhere still"


async def test_sessions_give_back_what_is_idle_also_where_nothing_is_owed(world: PoolWorld) -> None:
    """Mutant: whoever waits here drowns with its own recalls those for who waits elsewhere."""
    await world.open()
    await held(world, a=60)
    share = next(one for one in await world.store.members(world.pool) if one.member == "a")
    async with Ear.at(world.places["a"]) as ear:
        recalled = list[str]()
        for _ in range(10):
            await world.clock(100)
            await world.producers["a"].ask(need=world.producers["a"].held + 90)
            await world.pools.ask_back(world.pool, share, 0, 30, debt="idle")
            recalled += [words for _, words in await ear.heard() if words.startswith("recall")]
    assert 4 <= sum(words.endswith(" owed") for words in recalled) <= 5, "at most five times a second"
    record = await world.slice_of("a")
    assert record["owed"] == record["returned"]


async def test_what_the_dead_hold_goes_back_where_nobody_calls_any_more(world: PoolWorld) -> None:
    """Mutant: leases end at the next call of those who use the destination, and there is none."""
    await world.open()
    await held(world, a=60)
    share = next(one for one in await world.store.members(world.pool) if one.member == "a")
    for _ in range(2):  # two strikes
        await world.clock(2 * TTL_MS)
        assert (await world.look("a")).used == 60, "who looks asks for nothing"
        await world.pools.ask_back(world.pool, share, 0, 60)
    assert (await world.slices())["a"] == 0


async def test_who_is_first_owes_nothing(world: PoolWorld) -> None:
    """Mutant: a debt stays when its destination is first in line; what comes free goes round by the pool."""
    await in_debt(world)
    await world.producers["c"].give_back(0)
    await world.pools.draw(world.pool, "c", await world.look("c"))
    assert (await world.slice_of("b"))["owed"] == 20
    await world.producers["b"].ask(need=world.producers["b"].held + 10)
    await world.pools.step(world.places["b"].address, "memory", lambda *_: None, set())
    assert (await world.slice_of("b"))["owed"] == 0


async def test_who_was_granted_something_owes_nothing(world: PoolWorld) -> None:
    """Mutant: a debt outlives that its destination was first in line."""
    await in_debt(world)
    await world.producers["c"].give_back(0)
    await world.pools.draw(world.pool, "c", await world.look("c"))
    await world.store.set(world.pool, {"limit_bytes": "120"})
    await world.producers["b"].ask(need=world.producers["b"].held + 10)
    await world.run("b")
    assert (await world.look("b")).used == 60


async def test_a_debt_that_nobody_asks_for_any_more_is_none(world: PoolWorld) -> None:
    """Mutant: a debt is for ever."""
    await in_debt(world)
    await world.clock(3000)
    await world.producers["a"].give_back(20)
    assert (await world.producers["a"].ask(need=world.producers["a"].held + 20)).place == 0


@pytest.mark.parametrize("ms", [1000, -1000], ids=["later", "set back"])
async def test_what_was_drawn_for_the_first_in_line_stays_for_a_second(world: PoolWorld, ms: int) -> None:
    """Two pools: with the first in the alphabet in hand it cannot be robbed while it draws the second."""
    await world.open()
    await world.places["a"].change(pools="memory store")
    await world.producers["a"].ask(need=60)
    await world.run("a")
    share = (await world.store.members(world.pool))[0]
    before = await world.slices()
    assert before["a"] >= 60
    assert await world.pools.ask_back(world.pool, share, 0, share.held) == share.held - 60
    await world.producers["b"].ask(need=90)
    assert (await world.run("b")).lacks > 0
    await world.clock(ms)
    share = (await world.store.members(world.pool))[0]
    assert await world.pools.ask_back(world.pool, share, 0, 60) == 60
    assert await world.slices() == {"a": 0, "b": 90, "c": 0}


async def test_what_was_drawn_and_is_too_little_by_now_does_not_stay(world: PoolWorld) -> None:
    """The first in line would keep what others can use, and could not go with it."""
    await world.open()
    await world.places["a"].change(pools="memory store")
    await world.producers["a"].ask(need=60)
    await world.run("a")
    share = (await world.store.members(world.pool))[0]
    await world.pools.ask_back(world.pool, share, 0, share.held)
    assert (await world.slices())["a"] == 60
    await world.producers["a"].ask(need=90)
    share = (await world.store.members(world.pool))[0]
    assert await world.pools.ask_back(world.pool, share, 0, 60) == 60


async def test_a_pool_drawn_out_of_order_is_not_kept(world: PoolWorld) -> None:
    """Mutant: whoever waits for one pool keeps the others: a circle."""
    await world.open()
    await world.places["a"].change(pools="disk memory")
    await world.producers["a"].ask(need=60)
    await world.run("a")
    share = (await world.store.members(world.pool))[0]
    assert await world.pools.ask_back(world.pool, share, 0, share.held) == share.held, "it has nothing of disk"
