"""Pools: whatever step is not made, made twice, late or out of order, the limit holds, and everything comes back."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.names import encode_name
from headgate.redis.stores.pools import Share, Slice
from tests.lua.place import TTL_MS
from tests.lua.pool_world import PoolWorld, Runner, granted, held
from tests.lua.pools.pool_actions import ACTIONS, LOSSES, QUIET, act, live, names
from tests.model.pool import ModelPool
from tests.support.extent import examples

pytestmark = pytest.mark.one_server


async def all_comes_back(world: PoolWorld) -> None:
    await world.clock(30_000)  # all leases and all learning are over, and everybody has stopped
    for place in world.places.values():
        for _ in range(4):
            await world.look(next(iter(world.places)))
            await place.reap()
            await world.clock(10_000)
        assert await world.used(place) == 0
    world.mail.clear()
    for _ in range(3):
        for name in world.places:
            await world.look(name)  # begins what a restart begins
        await world.clock(20_000)
        await world.rebuild()
    for place in world.places.values():
        await world.pools.give_back(place.address, encode_name(world.pool.name))
    await world.check()
    assert (await world.store.fields(world.pool))["granted_bytes"] == "0", "everything came back"


@QUIET
@given(actions=st.lists(ACTIONS, min_size=15, max_size=50))
def test_no_order_of_steps_makes_the_slices_exceed_the_limit(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(runner.world(), actions, act, all_comes_back))


@pytest.mark.whole
@QUIET
@given(actions=st.lists(LOSSES, min_size=15, max_size=50))
def test_nor_does_any_loss_of_state(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(runner.world(), actions, act, all_comes_back))


@settings(QUIET, max_examples=examples(12))
@given(actions=st.lists(LOSSES, min_size=15, max_size=40))
def test_nor_of_the_slices_of_one_queue(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(runner.sliced(), actions, act, all_comes_back))


@settings(QUIET, max_examples=examples(12))
@given(actions=st.lists(LOSSES, min_size=15, max_size=40))
def test_nor_those_of_messages_their_limit(runner: Runner, actions: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(runner.messages(), actions, act, all_comes_back))


@QUIET
@given(
    reserve=st.sampled_from([0, 10]),
    draws=st.lists(
        st.tuples(
            names,
            st.integers(-1, 3),
            st.integers(0, 40),
            st.integers(0, 60),
            st.booleans(),
            st.sampled_from([1, 1, 2, 7]),
        ),
        min_size=5,
        max_size=25,
    ),
)
def test_a_pool_answers_as_the_model_does(
    runner: Runner, reserve: int, draws: list[tuple[str, int, int, int, bool, int]]
) -> None:
    async def compare() -> None:
        world, model = runner.world(), ModelPool(100, reserve)
        await world.open(100, reserve)
        for name, late, back, more, reserved, weight in draws:
            known = model.members.get(name)
            granted = max(0, (known.granted if known else 0) - late)
            returned = min(granted, (known.returned if known else 0) + back)
            held = Slice("OK", 1, 0, granted, returned, granted + more, 0, reserved, 0, weight)
            drawn = await world.store.draw(world.pool, name, held)
            expected = model.draw(name, granted, returned, granted + more, reserved, weight)
            assert (drawn.code, drawn.granted, drawn.returned, drawn.place) == expected
            members = await world.store.members(world.pool)
            assert {share.member: (share.granted, share.returned) for share in members} == {
                other: (member.granted, member.returned) for other, member in model.members.items()
            }
        await world.close()

    runner.runner.run(compare())


async def test_what_is_drawn_serves_who_waits(world: PoolWorld) -> None:
    await world.open()
    answer = await world.producers["a"].ask(need=40)
    assert (answer.granted, answer.place) == (0, 1)
    await world.run("a")
    assert (await world.producers["a"].ask(need=40)).granted >= 40
    assert await granted(world) >= 40


async def restore(world: PoolWorld, kept: list[tuple[bytes, Any]]) -> None:
    """Have keys be what they were, as where a failover lost what came since."""
    for key, dump in kept:
        await world.server.command(key, "DEL", key)
        if dump is not None:
            await world.server.command(key, "RESTORE", key, 0, dump)


async def test_slack_is_given_back_and_what_is_used_is_not(world: PoolWorld) -> None:
    """Mutant: `slice` gives back what is in use."""
    await world.open()
    await world.producers["a"].ask(need=40)
    await world.run("a")
    await world.pools.give_back(world.places["a"].address, world.pool.name)
    assert await world.slices() == {"a": 40, "b": 0, "c": 0}
    assert await granted(world) == 40


async def test_a_destination_that_lacks_something_is_looked_at_again(world: PoolWorld) -> None:
    """Breaks when it counts as one that uses nothing: then what it was granted later would never go back."""
    await world.open()
    await held(world, a=80)
    await world.producers["b"].ask(need=50)
    assert (await world.run("b")).lacks > 0
    assert not await world.pools.give_back(world.places["b"].address, world.pool.name, idle=True)
    await world.producers["b"].give_back(0)
    assert await world.pools.give_back(world.places["b"].address, world.pool.name, idle=True)


async def test_who_had_bytes_of_a_lost_destination_gets_them_back_though_its_pool_lost_nothing(
    world: PoolWorld,
) -> None:
    """Mutant: a destination gives back what it does not use while its holders may still claim it."""
    await world.open()
    address = world.places["a"].address
    await world.producers["a"].ask(need=10)
    await world.run("a")
    await world.producers["a"].renew()
    behind = [(key, await world.server.command(key, "DUMP", key)) for key in address.shared]
    assert (await world.producers["a"].ask(need=40)).granted >= 40, "of what its slice has beyond what it needed"
    await restore(world, behind)
    world.server.run = b"another"
    lost = await world.look("a")
    world.server.run = None
    drawn = await world.store.draw(world.pool, "a", lost)
    assert drawn.code == "OK"
    world.server.run = b"another"
    share = Share("a", lost.epoch, drawn.granted, drawn.returned)
    for _ in range(2):
        await world.store.slice(address, "memory", share=share, pool_epoch=drawn.pool_epoch)
        await world.producers["a"].renew()
    assert (await world.look("a")).used >= 40


async def test_first_come_first_served(world: PoolWorld) -> None:
    """Mutant: `pool` serves whoever fits."""
    await world.open()
    await held(world, a=80)
    await world.producers["b"].ask(need=50)
    await world.producers["c"].ask(need=10)
    assert (await world.run("b")).lacks > 0
    assert (await world.run("c")).lacks > 0, "there is room for it, and it came later"
    await world.producers["a"].give_back(80)
    await world.pools.give_back(world.places["a"].address, world.pool.name)
    assert (await world.slices())["b"] >= 50, "delivered to who was first by who gave it back"
    assert (await world.slices())["c"] >= 10


async def test_first_come_first_served_and_at_once(world: PoolWorld) -> None:
    """Mutant: `slice` does not serve the line with what came."""
    await world.open()
    await world.producers["a"].ask(need=40)
    await world.run("a")
    assert (await world.places["a"].look()).leased.bytes >= 40, "without another call of its own"


async def test_after_a_restart_nothing_is_taken_of_a_slice_before_the_pool_confirms_it(world: PoolWorld) -> None:
    """Mutant: a slice is good in every epoch."""
    await world.open()
    await world.producers["a"].ask(need=40)
    await world.run("a")
    await world.producers["a"].give_back(40)
    world.server.run = b"another"
    for name in world.places:
        await world.look(name)
    await world.clock(TTL_MS + 1)
    answer = await world.producers["a"].ask(need=world.producers["a"].held + 40)
    assert answer.place == 1
    await world.rebuild()
    await world.run("a")
    await world.run("a")
    assert (await world.look("a")).used >= 40


async def test_what_was_given_back_before_a_loss_and_is_lent_to_another_is_not_used_again(world: PoolWorld) -> None:
    """Mutant: after a loss of state a destination keeps its slice, whatever of it it does not use."""
    await world.open()
    a = world.producers["a"]
    await a.ask(need=90)
    await world.run("a")
    await a.give_back(90)
    keys = [*world.places["a"].address.shared, *world.pool.keys]
    kept = [(key, await world.server.command(key, "DUMP", key)) for key in keys]
    await world.pools.give_back(world.places["a"].address, world.pool.name)
    await held(world, b=90)
    await restore(world, kept)
    world.server.run = b"another"
    await a.ask(need=a.held + 40)
    for name in world.places:
        await world.look(name)
    await world.clock(TTL_MS + 1)
    assert await world.rebuild()
    for _ in range(3):
        await world.run("a")
    assert (await world.look("a")).used == 0
    assert (await world.slices())["a"] == 0
    world.server.run = None


async def test_a_pool_serves_again_a_lease_after_the_clock_was_set_back(world: PoolWorld) -> None:
    """Mutant: one that began to learn does so until the clock has caught up."""
    await world.open()
    await world.producers["a"].ask(need=40)
    await world.run("a")
    world.server.run = b"another"
    await world.producers["b"].ask(need=10)
    await world.run("b")
    assert not await world.rebuild()
    await world.clock(-3_600_000)
    assert not await world.rebuild()
    await world.clock(TTL_MS)
    assert await world.rebuild()
    world.server.run = None


@pytest.mark.parametrize("passes_ms", [3001, -3_600_000])
async def test_a_member_that_nobody_asks_for_any_more_does_not_hold_up_the_line(
    world: PoolWorld, passes_ms: int
) -> None:
    """Mutants: the line never forgets, or not before a clock that was set back has caught up."""
    await world.open()
    await held(world, a=80)
    await world.producers["b"].ask(need=50)
    await world.producers["c"].ask(need=10)
    await world.run("b")
    await world.clock(passes_ms)
    await world.producers["c"].renew()
    await world.producers["c"].ask(need=10)
    assert (await world.run("c")).lacks <= 0


async def test_the_reserve_is_for_the_reserved_who_go_first(world: PoolWorld) -> None:
    """Mutant: everybody has the reserve."""
    await world.open(100, 20)
    await world.producers["a"].ask(need=81)
    assert (await world.run("a")).lacks > 0
    await world.producers["a"].ask(need=70)
    assert (await world.run("a")).lacks <= 0
    await world.producers["b"].ask(need=15)
    assert (await world.run("b")).lacks > 0
    await world.places["c"].change(reserved="yes")
    await world.producers["c"].ask(need=20)
    assert (await world.run("c")).lacks <= 0


async def test_a_late_answer_from_before_a_loss_is_refused(world: PoolWorld) -> None:
    """Mutant: `slice` does not look at the epoch."""
    await world.open()
    await world.producers["a"].ask(need=40)
    await world.run("a")
    late = (await world.store.members(world.pool))[0]
    await world.producers["a"].give_back(40)
    await world.pools.give_back(world.places["a"].address, world.pool.name)
    await act(world, ("lose", "a"))
    answer = await world.store.slice(world.places["a"].address, "memory", share=late)
    assert (answer.code, answer.granted) == ("EPOCH", 0)
    await world.check()


async def test_a_late_report_of_a_destination_that_was_lost_is_refused(world: PoolWorld) -> None:
    """Mutant: `pool` does not look at the destination's epoch."""
    await world.open()
    await world.producers["a"].ask(need=40)
    late = await world.run("a")
    await act(world, ("lose", "a"))
    await world.producers["a"].ask(need=10)
    assert (await world.run("a")).held >= 40, "it holds what the pool remembers"
    drawn = await world.store.draw(world.pool, "a", replace(late, returned=late.granted))
    assert drawn.code == "STALE"
    await world.check()


async def test_a_pool_that_was_lost_grants_nothing_before_all_have_been_asked(world: PoolWorld) -> None:
    """Mutant: a new pool does not learn."""
    await world.open()
    await held(world, a=60)
    await act(world, ("lose pool",))
    await world.producers["b"].ask(need=50)
    look = await world.look("b")
    assert (await world.store.draw(world.pool, "b", look)).code == "LEARNING"
    assert not await world.rebuild(), "holders may still claim"
    await world.clock(1001)
    assert await world.rebuild()
    assert await granted(world) == 60
    assert (await world.run("b")).lacks > 0
    await world.check()


async def test_a_restart_makes_a_pool_ask_all_again(world: PoolWorld) -> None:
    """Mutant: a pool does not notice another run of the server."""
    await world.open()
    await held(world, a=60)
    world.server.run = b"another"
    look = await world.look("a")
    assert (await world.store.draw(world.pool, "a", look)).code == "LEARNING"
    world.server.run = None


async def test_whoever_asked_too_early_asks_again_as_holders_have_claimed(world: PoolWorld) -> None:
    """Mutant: it does not, and nobody else for two seconds."""
    await world.open()
    await held(world, a=60)
    world.server.run = b"another"
    learning = max([(await world.look(name)).learning_ms for name in world.places])
    await world.clock(learning - 50)
    look = await world.look("a")
    assert (await world.pools.draw(world.pool, "a", look)).code == "LEARNING"
    await world.clock(50)
    await asyncio.sleep(0.05)
    await world.pools.draw(world.pool, "a", look)
    assert (await world.store.draw(world.pool, "a", await world.look("a"))).code == "OK"
    world.server.run = None


async def test_a_pool_whose_server_handed_it_over_whole_goes_on(world: PoolWorld) -> None:
    """Mutant: it learns all the same."""
    await world.open()
    await held(world, a=60)
    look = await world.look("a")
    run = (await world.server.command(world.pool.keys[0], "HGET", world.pool.keys[0], "run_id")).decode()
    world.server.run = f"another.7<{run}".encode()
    assert (await world.store.draw(world.pool, "a", look)).code == "OK"
    assert (await world.store.draw(world.pool, "a", look)).code == "OK"
    told = await world.server.command(world.pool.keys[0], "HMGET", world.pool.keys[0], "run_id", "promotion")
    assert told == [b"another", b"7"]
    world.server.run = None


async def test_a_grant_of_before_the_pool_was_lost_comes_too_late(world: PoolWorld) -> None:
    """Mutant: `slice` does not look at the pool's epoch."""
    await world.open()
    await held(world, a=60)
    epoch = int((await world.store.fields(world.pool))["epoch"])
    late = replace((await world.store.members(world.pool))[0], granted=100)
    await act(world, ("lose pool",))
    await world.clock(1001)
    await world.rebuild()
    answer = await world.store.slice(world.places["a"].address, "memory", share=late, pool_epoch=epoch)
    assert (answer.code, answer.held) == ("EPOCH", 60)


async def test_forgetting_frees_what_a_removed_destination_held_unless_it_is_back(world: PoolWorld) -> None:
    """Mutant: `pool_forget` forgets the living."""
    await world.open()
    await held(world, a=60)
    epoch = (await world.look("a")).epoch
    code, _ = await world.store.forget(world.pool, "a", epoch - 1)
    assert (code, await granted(world)) == ("STALE", 60)
    await world.places["a"].store.remove(world.places["a"].address, everything=True)
    await world.producers["b"].ask(need=80)
    await world.run("b")
    code, served = await world.store.forget(world.pool, "a", epoch)
    assert (code, [share.member for share in served]) == ("OK", ["b"])
    assert await granted(world) == 80
    await world.places["a"].create(limit="unlimited", pools="memory")


async def test_a_raised_limit_serves_those_who_wait(world: PoolWorld) -> None:
    """Mutant: `pool_set` leaves the line alone."""
    await world.open()
    await held(world, a=80)
    await world.producers["b"].ask(need=50)
    await world.run("b")
    _, _, _, served = await world.store.set(world.pool, {"limit_bytes": "200"})
    assert [(share.member, share.held) for share in served] == [("b", 50)]


async def test_a_lowered_limit_takes_nothing_and_grants_nothing(world: PoolWorld) -> None:
    await world.open()
    await held(world, a=80)
    world.lowered = True
    await world.store.set(world.pool, {"limit_bytes": "50"})
    await world.producers["b"].ask(need=1)
    assert (await world.run("b")).lacks > 0
    assert await granted(world) == 80


async def test_an_older_policy_is_refused(world: PoolWorld) -> None:
    await world.open()
    assert (await world.store.set(world.pool, {"policy_version": "3", "limit_bytes": "70"}))[0] == "OK"
    assert (await world.store.set(world.pool, {"policy_version": "2", "limit_bytes": "60"}))[0] == "OLD"
    assert (await world.store.fields(world.pool))["limit_bytes"] == "70"
