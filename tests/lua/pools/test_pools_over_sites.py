"""A pool over sites: whatever letter is lost, late or repeated, and whatever either side loses, the one limit holds."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
import redis.asyncio as plain
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from headgate.namespace import pool_sites
from headgate.namespace.pool_sites import REFUSED, TROUBLES, site_parts
from headgate.redis.stores.pool_sites import Letter, PoolSiteStore
from headgate.redis.stores.pools import PoolStore
from tests.lua.place import BEGIN_MS, TTL_MS
from tests.lua.pool_world import Runner, granted
from tests.lua.pools.pool_actions import QUIET, act
from tests.lua.pools.site_world import EVENTS, LIMIT, LOSSES, MOST, OF, SiteWorld
from tests.support.extent import examples
from tests.support.waiting import wait_until

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""Each event is several calls: to find a shorter list of them takes minutes."""


@pytest.fixture
async def two(redis_url: str, namespace: str) -> AsyncIterator[SiteWorld]:
    two = await SiteWorld.of(redis_url, namespace)
    await two.open()
    yield two
    await two.close()


async def live(url: str, namespace: str, events: list[tuple[Any, ...]], least: int = 0) -> None:
    two = await SiteWorld.of(url, namespace)
    try:
        await two.open(least=least)
        for event in events:
            await two.act(event)
            await two.check()
        await come_to_rest(two, least)
    finally:
        await two.close()


async def come_to_rest(two: SiteWorld, least: int = 0) -> None:
    """Have all leases and all learning be over: then everything has come back."""
    two.mail.clear()
    for world in (two.hq, two.eu):
        await world.clock(30_000)
        world.mail.clear()
    for _ in range(4):
        for world in (two.hq, two.eu):
            for name, place in world.places.items():
                await world.look(name)
                await place.reap()
            await world.clock(10_000)
            await world.rebuild()
        await two.settle()
    for world in (two.eu, two.hq):
        for place in world.places.values():
            assert await place.usage() == 0
            await world.pools.give_back(place.address, world.pool.name)
    await two.hear(Letter(), idle=1000)
    await two.settle()
    await two.check()
    for world in (two.hq, two.eu):
        assert await granted(world) == (least if world is two.hq else 0), "everything came back"
    held = await two.look()
    assert held.granted - held.returned == least


@settings(QUIET, max_examples=examples(60), phases=PHASES)
@given(events=st.lists(EVENTS, min_size=15, max_size=50))
def test_no_order_of_letters_makes_both_sites_exceed_the_limit(runner: Runner, events: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(*runner.another(), events))


@settings(QUIET, max_examples=examples(120), phases=PHASES)
@given(events=st.lists(LOSSES, min_size=15, max_size=50))
def test_nor_does_any_loss_at_either_side(runner: Runner, events: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(*runner.another(), events))


async def test_a_site_draws_what_it_lacks_and_gives_back_what_nobody_has_there(two: SiteWorld) -> None:
    """Mutant: `pool_share` gives back what members have."""
    await two.obtain("eu", "a", 30)
    assert (await two.eu.slices())["a"] >= 30
    await two.eu.pools.give_back(two.eu.places["a"].address, "memory")
    await two.hear(Letter(), idle=1000)
    await two.settle()
    assert await granted(two.hq) == await granted(two.eu) == 30


async def test_a_site_has_no_more_than_the_pool_names_for_it(two: SiteWorld) -> None:
    """Mutant: it gets some more than it asked for, as others do."""
    await two.obtain("eu", "a", 55)
    held = await two.settle()
    assert 55 <= held.granted <= MOST
    await two.obtain("eu", "b", 6)
    held = await two.settle()
    assert held.granted - held.returned <= MOST
    assert (await two.eu.look("b")).lacks > 0


async def test_after_a_loss_all_is_kept_that_a_site_may_have_until_it_was_heard_of(two: SiteWorld) -> None:
    """Mutants: `pool` keeps nothing for it; or what it holds is taken for given back."""
    await two.obtain("eu", "a", 30)
    drawn = (await two.settle()).granted
    await act(two.hq, ("lose pool",))
    await two.hq.clock(1001)
    await two.hq.rebuild()
    await two.obtain("hq", "a", LIMIT - MOST + 1)
    assert (await two.hq.look("a")).lacks > 0
    await two.settle()
    (held,) = [share.held for share in await two.hq.store.members(two.hq.pool) if share.site]
    assert 30 <= held <= drawn
    assert (await two.hq.look("a")).lacks == 0
    await two.check()


async def test_what_was_granted_before_a_loss_and_comes_late_is_within_what_is_kept(two: SiteWorld) -> None:
    """Mutant: a report from before the loss counts as heard."""
    late = await grant_on_its_way(two)
    await two.report(two.stamped(await two.look()))
    await two.obtain("hq", "a", 75)
    await two.hear(late)
    await two.check()
    assert (await two.hq.look("a")).lacks > 0


async def test_what_was_granted_before_a_loss_comes_too_late_once_the_loss_was_heard_of(two: SiteWorld) -> None:
    """Mutant: `pool_share` does not look at the epoch there."""
    late = await grant_on_its_way(two)
    await two.settle()
    await two.obtain("hq", "a", 75)
    assert (await two.hq.look("a")).lacks == 0
    assert (await two.hear(late)).code == "EPOCH"
    await two.check()


async def grant_on_its_way(two: SiteWorld) -> Letter:
    """Have a site be granted 30 more than 20, and the pool lose that before the answer has come."""
    await two.eu.producers["a"].ask(need=20)
    await two.eu.run("a")
    await two.settle()
    await two.hear(Letter(), idle=1000)
    await two.settle()
    assert await granted(two.hq) == 20
    await two.eu.producers["b"].ask(need=30)
    await two.eu.run("b")
    letter = await two.report(two.stamped(await two.look()))
    assert letter.granted - letter.returned >= 50
    await two.eu.producers["b"].give_back(0)
    await two.eu.run("b")
    await act(two.hq, ("lose pool",))
    await two.hq.clock(1001)
    await two.eu.clock(1002)
    await two.hq.rebuild()
    return letter


async def test_a_part_that_came_back_with_a_failover_lends_nothing_before_the_other_side_confirms_it(
    two: SiteWorld,
) -> None:
    """Mutant: it is good in every epoch."""
    await two.obtain("eu", "a", 30)
    await two.eu.producers["a"].give_back(30)
    await two.eu.pools.give_back(two.eu.places["a"].address, "memory")
    await two.act(("keep", "eu"))
    await two.hear(Letter(), idle=1000)
    await two.settle()
    assert await granted(two.hq) == 0
    await two.obtain("hq", "a", 90)
    await two.act(("go back", "eu"))
    for name in two.eu.places:
        await two.eu.look(name)
    await two.eu.clock(TTL_MS + 1)
    assert await two.eu.rebuild()
    await two.eu.producers["b"].ask(need=20)
    assert (await two.eu.run("b")).lacks > 0
    await two.check()
    await two.settle()
    await two.eu.run("b")
    await two.check()


async def test_a_late_answer_to_a_part_that_was_lost_since_is_refused(two: SiteWorld) -> None:
    """Mutant: `pool_share` does not look at its own epoch."""
    await two.obtain("eu", "a", 30)
    letter = await two.answer()
    await act(two.eu, ("lose pool",))
    assert (await two.hear(letter)).code == "EPOCH"


async def test_a_late_report_of_a_part_that_was_lost_is_refused(two: SiteWorld) -> None:
    """Mutant: `pool_site` does not look at the site's epoch."""
    await two.obtain("eu", "a", 30)
    held = await two.settle()
    await act(two.eu, ("lose pool",))
    await two.settle()
    before = await granted(two.hq)
    late = two.stamped(replace(held, returned=held.granted))
    assert ((await two.report(late)).code, await granted(two.hq)) == ("STALE", before)


async def test_that_a_report_was_refused_is_seen_for_some_seconds(
    two: SiteWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers to two by one name come by turns. Mutants: the next report of the other hides it; it is told for ever."""

    async def now(*_: object) -> int:
        return two.hq.now

    monkeypatch.setattr(pool_sites, "now_ms", now)

    async def told() -> str:
        fields, members = await two.hq.store.fields(two.hq.pool), await two.hq.store.members(two.hq.pool)
        (part,) = await site_parts(two.hq.server, two.hq.pool, fields, members)
        return part.trouble

    await two.obtain("eu", "a", 30)
    held = await two.look()
    for report, code in ((replace(held, epoch=BEGIN_MS - 1), "stale"), (replace(held, there=2 * BEGIN_MS), "ahead")):
        assert await told() == ""
        await two.report(two.stamped(report))
        await two.report(two.stamped(await two.look()))
        await two.hq.producers["a"].ask(need=5)
        assert await told() == REFUSED[code][0]
        await two.hq.clock(5001)


async def test_one_of_those_who_work_on_a_pool_that_learns_asks_its_members(two: SiteWorld) -> None:
    """Mutants: only who waits at its own site does; each call does; who forgets a site has nobody ask for a while."""
    await two.obtain("eu", "a", 10)

    async def codes() -> tuple[str, str]:
        code, *_ = await PoolSiteStore(two.hq.server).account(two.hq.pool, "eu")
        return code, (await two.look()).code

    for world in (two.hq, two.eu):
        await world.server.command(world.pool.keys[0], "HSET", world.pool.key, "learning", world.now)
    await PoolSiteStore(two.hq.server).account(two.hq.pool, "eu", mode="forget")
    for _ in range(2):
        assert [await codes(), await codes()] == [("LEARNING", "LEARNING"), ("SAME", "OK")]
        for world in (two.hq, two.eu):
            await world.clock(2001)
    for world in (two.hq, two.eu):
        assert await world.rebuild()
    assert await codes() == ("SAME", "OK")


async def test_why_no_more_is_to_be_had_is_kept_until_that_is_over(two: SiteWorld) -> None:
    """Mutants: a call that does not know it is taken for one that does; one job speaks for another site's."""
    store = PoolSiteStore(two.eu.server)

    async def told() -> str | None:
        return (await two.eu.store.fields(two.eu.pool)).get("trouble")

    for code in TROUBLES:
        await store.share(two.eu.pool, of=OF, trouble=code)
        await two.obtain("eu", "a", 10)
        assert await told() == f"code={code} of={OF}"
    for code in ("", "silent"):
        await store.share(two.eu.pool, of="rome/orders", trouble=code)
        assert await told() == f"code=ahead of={OF}"
    await store.share(two.eu.pool, of=OF, trouble="")
    assert await told() is None
    await store.share(two.eu.pool, of="rome/orders", trouble="silent")
    assert await told() is None
    await two.eu.store.set(two.eu.pool, {}, mode="remove")
    await store.share(two.eu.pool, of=OF, trouble="silent")
    assert set(await two.eu.store.fields(two.eu.pool)) <= {"share"}


HOSTILE = [
    "epoch=1 pool=0 granted=0 returned=0 need=9007199254740991 at=1",
    "epoch=9007199254740991 pool=0 granted=9007199254740991 returned=0 need=9007199254740991 at=1",
    "epoch=9007199254740991 pool=9007199254740991 granted=50 returned=0 need=60 at=1",
    "epoch=9007199254740991 pool=0 granted=0 returned=9007199254740991 need=60 at=1",
    "epoch=9007199254740992 pool=0 granted=0 returned=0 need=60 at=1",
    "epoch=99999999999999999999 pool=0 granted=0 returned=0 need=60 at=1",
    "epoch=-1 pool=0 granted=0 returned=0 need=60 at=1",
    "epoch=1 pool=0 granted=0 returned=0 need=60",
    "epoch=nan pool=0 granted=0 returned=0 need=60 at=1",
    "",
    "x" * 100_000,
]


@pytest.mark.parametrize("report", HOSTILE, ids=range(len(HOSTILE)))
async def test_a_hostile_site_has_no_more_than_its_part_and_costs_others_nothing(two: SiteWorld, report: str) -> None:
    """Mutant: a site that claims to have heard of a later pool has this one learn."""
    await two.obtain("hq", "a", 20)
    before = await two.hq.store.fields(two.hq.pool)
    for number in range(3):
        await two.report(report.replace("at=1", f"at={number}"))
    after = await two.hq.store.fields(two.hq.pool)
    assert (after["epoch"], after["learning"]) == (before["epoch"], before["learning"])
    members = {share.member: share.held for share in await two.hq.store.members(two.hq.pool)}
    assert members["a"] >= 20
    assert 0 <= members.get("@eu", 0) <= MOST
    await two.hq.pools.give_back(two.hq.places["a"].address, "memory")
    await two.obtain("hq", "b", LIMIT - MOST - 20)
    assert (await two.hq.look("b")).lacks == 0


async def test_what_a_hostile_site_leaves_in_place_of_an_answer_is_not_read(two: SiteWorld, redis_url: str) -> None:
    """Mutant: an answer of any length is read, and is one that the site has heard of, for it begins like the next."""
    report = two.stamped(await two.look())
    answer = await two.report(report)
    server = two.hq.server
    await server.command(two.key, "HSET", two.key, "answer", answer.text + " " * 100_000, "read", "x" * 100_000)
    async with plain.Redis.from_url(redis_url) as redis, redis.pubsub() as told:
        await told.subscribe(two.key)
        assert (await two.report(report)).code == "OK"

        async def heard() -> bool:
            message = await told.get_message(ignore_subscribe_messages=True, timeout=0.1)
            return message is not None and message["data"] == b"answer"

        await wait_until(heard, timeout=5)


async def test_what_a_hostile_site_leaves_beside_its_report_is_deleted(two: SiteWorld) -> None:
    """Mutant: it stays, and fills the memory of the home."""
    server, store = two.hq.server, PoolSiteStore(two.hq.server)
    await server.command(two.key, "HSET", two.key, "report", "x" * 100_000, "answer", "x" * 100_000)
    code, *_ = await store.account(two.hq.pool, "eu")
    assert (code, await server.command(two.key, "HLEN", two.key)) == ("INVALID", 1)
    await server.command(two.key, "HSET", two.key, *(word for n in range(4) for word in (f"{n}", "x")))
    code, *_ = await store.account(two.hq.pool, "eu")
    assert (code, await server.command(two.key, "EXISTS", two.key)) == ("SILENT", 0)
    await two.settle()
    await two.obtain("eu", "a", 30)
    assert (await two.eu.look("a")).lacks == 0


async def test_a_site_that_lost_all_while_its_clock_was_set_back_is_heard_again_once_it_is_forgotten(
    two: SiteWorld,
) -> None:
    """Mutant: the epoch of before stays."""
    await two.obtain("eu", "a", 30)
    earlier = f"epoch={BEGIN_MS - 60_000} pool={(await two.answer()).pool} granted=0 returned=0 need=10 at=1"
    assert (await two.report(earlier)).code == "STALE"
    await PoolSiteStore(two.hq.server).account(two.hq.pool, "eu", mode="forget")
    answer = await two.report(earlier)
    assert (answer.code, answer.epoch) == ("OK", BEGIN_MS - 60_000)


async def test_a_site_that_fell_silent_does_not_hold_up_the_line(two: SiteWorld) -> None:
    """Mutant: a report that was read before counts as new."""
    await two.settle()
    await two.obtain("hq", "a", 90)
    await two.hq.pools.give_back(two.hq.places["a"].address, "memory")
    await two.eu.producers["a"].ask(need=50)
    await two.eu.run("a")
    report = two.stamped(await two.look())
    await two.report(report)
    await two.hq.producers["b"].ask(need=5)
    assert (await two.hq.run("b")).lacks > 0
    for _ in range(4):
        await two.hq.clock(1000)
        await two.hq.producers["b"].ask(need=5)
        await two.report(report)
    assert (await two.hq.run("b")).lacks <= 0
    assert (await two.hq.look("b")).used >= 5


async def test_what_a_site_does_not_use_is_for_those_who_wait_here(two: SiteWorld) -> None:
    """Mutant: `pool_site` says nothing of who waits."""
    await two.obtain("eu", "a", 30)
    await two.eu.producers["a"].give_back(30)
    await two.eu.pools.give_back(two.eu.places["a"].address, "memory")
    await two.settle()
    await two.obtain("hq", "b", 45)
    assert await granted(two.hq) == 100
    await two.hq.producers["b"].ask(need=95)
    assert (await two.hq.run("b")).lacks > 0, "it holds more than the site"
    await two.settle()
    assert (await two.hq.run("b")).lacks <= 0


async def test_a_site_that_asks_for_more_than_its_part_is_not_in_line(two: SiteWorld) -> None:
    """Mutant: it waits for what it can never have, and others behind it."""
    held = await two.settle()
    await two.report(two.stamped(replace(held, need=MOST + 1)))
    assert await two.hq.server.command(two.hq.pool.keys[0], "ZCARD", two.hq.pool.keys[2]) == 0


async def test_a_site_owes_what_it_has_above_the_level_of_who_waits_here(two: SiteWorld) -> None:
    """Mutants: a site owes nothing; what is owed is lent on."""
    await two.obtain("eu", "a", 58)
    await two.hq.producers["a"].ask(need=30)
    await two.hq.run("a")
    await two.hq.pools.give_back(two.hq.places["a"].address, "memory")
    await two.hq.producers["b"].ask(need=30)
    assert (await two.hq.run("b")).lacks > 0
    await two.settle()
    assert (await two.look()).owed > 0
    producer = two.eu.producers["a"]
    await producer.give_back(20)
    await producer.ask(need=producer.held + 20)
    await two.settle()
    assert (await two.hq.run("b")).lacks <= 0, "what became free there went to who waits here"
    await two.check()


async def test_what_is_forgotten_of_a_site_is_free_and_the_site_hears_of_it(two: SiteWorld) -> None:
    await two.obtain("eu", "a", 30)
    await two.settle()
    code, _, held, _, _ = await PoolSiteStore(two.hq.server).account(two.hq.pool, "eu", mode="forget")
    assert (code, held >= 30, await granted(two.hq)) == ("OK", True, 0)
    held_there = await two.settle()
    assert held_there.granted == held_there.returned
    await two.eu.producers["b"].ask(need=10)
    assert (await two.eu.run("b")).lacks > 0
    await two.settle()
    assert await granted(two.hq) >= 40, "what is in use there, and 10"


async def test_a_site_that_is_named_no_more_keeps_what_it_uses_and_nothing_else(two: SiteWorld) -> None:
    """Mutant: what it holds is free at once."""
    await two.obtain("eu", "a", 30)
    await two.hq.store.set(two.hq.pool, {"sites": ""})
    await two.settle()
    assert await granted(two.hq) == await granted(two.eu) == 30
    await two.eu.producers["b"].ask(need=10)
    await two.eu.run("b")
    await two.settle()
    assert (await two.eu.look("b")).lacks > 0
    await two.eu.producers["a"].give_back(30)
    await two.eu.pools.give_back(two.eu.places["a"].address, "memory")
    await two.settle()
    assert await granted(two.hq) == 0
    assert await two.hq.store.members(two.hq.pool) == []


async def test_a_site_that_is_new_to_a_pool_that_lost_nothing_takes_no_room(two: SiteWorld) -> None:
    """Mutant: all that it may have is kept for it."""
    await two.hq.store.set(two.hq.pool, {"sites": "eu=60 us=90"})
    await two.obtain("hq", "a", 95)
    assert (await two.hq.look("a")).lacks == 0


@pytest.mark.parametrize("gone", ["named no more", "removed"])
async def test_a_pool_that_is_no_part_any_more_gives_all_back(two: SiteWorld, gone: str) -> None:
    """Mutants: it goes on as a part; it is forgotten with the pool."""
    await two.obtain("eu", "a", 30)
    await two.eu.store.set(two.eu.pool, {"part_of": ""}, mode="change" if gone == "named no more" else "remove")
    assert (await two.look()).code == "CLOSING"
    await two.settle()
    assert await granted(two.hq) == 0
    assert (await two.look()).code == "UNKNOWN"
    assert "share" not in await PoolStore(two.eu.server).fields(two.eu.pool)


async def test_the_line_here_hears_at_once_of_what_came(two: SiteWorld) -> None:
    """Mutant: `pool_share` serves nobody."""
    await two.eu.producers["a"].ask(need=30)
    await two.eu.run("a")
    await two.settle()
    assert (await two.eu.places["a"].look()).leased.bytes >= 30, "without another call of its own"
