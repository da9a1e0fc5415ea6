"""What is the least of a site is there for it whenever it wants that, cut off or not, and for nobody else."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.limits.pool_sites import sites_named
from headgate.redis.stores.pool_sites import Letter, PoolSiteStore
from headgate.redis.stores.pools import UNLIMITED
from tests.lua.pool_world import Runner, granted
from tests.lua.pools.pool_actions import QUIET
from tests.lua.pools.site_world import LIMIT, LOSSES, MOST, SiteWorld
from tests.lua.pools.test_pools_over_sites import HOSTILE, PHASES, live
from tests.support.extent import examples

LEAST = 30


@pytest.fixture
async def two(redis_url: str, namespace: str) -> AsyncIterator[SiteWorld]:
    two = await SiteWorld.of(redis_url, namespace)
    await two.open(least=LEAST)
    yield two
    await two.close()


async def test_it_has_it_before_it_asks_and_uses_it_while_it_is_cut_off(two: SiteWorld) -> None:
    """Mutant: it is granted what it asks for alone."""
    held = await two.settle()
    assert (held.granted, held.free) == (LEAST, LEAST)
    await two.eu.producers["a"].ask(need=LEAST)
    assert (await two.eu.run("a")).lacks <= 0, "no letter was needed"


async def test_nobody_at_home_gets_it(two: SiteWorld) -> None:
    """Mutants: it is kept until the site was heard of, and no longer; what the site holds is kept once more."""
    await two.settle()
    await two.obtain("hq", "a", LIMIT - LEAST)
    assert (await two.hq.look("a")).lacks <= 0
    await two.obtain("hq", "b", 1)
    assert (await two.hq.look("b")).lacks > 0
    letter = await two.report(two.stamped(await two.look()))
    assert (letter.lacks, letter.owed, letter.least) == (0, 0, LEAST), "nor is the site asked for it"
    await two.check()


async def test_what_it_has_beyond_that_goes_back_and_no_more(two: SiteWorld) -> None:
    """Mutant: others are told that there is something to be had of it."""
    await two.obtain("eu", "a", 50)
    await two.eu.producers["a"].give_back(50)
    await two.eu.pools.give_back(two.eu.places["a"].address, "memory")
    await two.obtain("hq", "a", 60)
    for _ in range(3):
        await two.round()
        await two.hq.run("a")
    held = await two.settle()
    assert LEAST <= held.granted - held.returned <= 40
    assert (await two.hq.look("a")).lacks <= 0
    await two.obtain("hq", "b", 30)
    held = await two.settle()
    assert held.granted - held.returned == LEAST
    await two.check()


async def test_it_is_kept_where_it_went_back(two: SiteWorld) -> None:
    """Mutant: what is kept lies behind the line. An older node gives back what nobody uses."""
    await two.settle()
    await two.obtain("hq", "a", LIMIT - LEAST)
    await two.hq.producers["b"].ask(need=20)
    await two.hq.run("b")
    await two.hear(Letter(), idle=LEAST)
    await two.report(two.stamped(await two.look()))
    assert (await two.hq.run("b")).lacks > 0
    held = await two.settle()
    assert held.granted - held.returned == LEAST
    await two.check()


async def test_a_need_that_only_it_could_cover_never_fits(two: SiteWorld) -> None:
    """Mutants: it stands before those who could be served; it counts as what others hold above their level."""
    await two.settle()
    await two.hq.producers["a"].ask(need=LIMIT - LEAST + 1)
    await two.hq.run("a")
    await two.obtain("hq", "b", 10)
    assert (await two.hq.look("b")).lacks <= 0
    assert (await two.hq.look("a")).lacks > 0


async def test_what_others_have_of_it_comes_as_they_give_it_back(two: SiteWorld) -> None:
    """Mutant: it waits until all of it is free."""
    await two.hq.store.set(two.hq.pool, {"leasts": ""})
    await two.obtain("hq", "a", 90)
    await two.hq.pools.give_back(two.hq.places["a"].address, "memory")
    await two.hq.store.set(two.hq.pool, {"leasts": f"eu={LEAST}"})
    held = await two.settle()
    assert held.granted - held.returned == LIMIT - 90
    await two.hq.producers["a"].give_back(40)
    await two.hq.pools.give_back(two.hq.places["a"].address, "memory")
    held = await two.settle()
    assert held.granted - held.returned == LEAST


async def test_it_does_not_wait_behind_the_reserved(two: SiteWorld) -> None:
    """Mutant: it has what the line leaves."""
    await two.hq.store.set(two.hq.pool, {"leasts": ""})
    await two.hq.places["b"].change(reserved="yes")
    await two.obtain("hq", "a", 60)
    await two.hq.pools.give_back(two.hq.places["a"].address, "memory")
    await two.hq.producers["b"].ask(need=50)
    assert (await two.hq.run("b")).lacks > 0
    await two.hq.store.set(two.hq.pool, {"leasts": f"eu={LEAST}"})
    held = await two.settle()
    assert held.granted - held.returned == LEAST


async def test_who_lacks_it_is_first_in_line_but_for_the_reserved(two: SiteWorld) -> None:
    """Mutant: it stands where it would if that were not its least."""
    await two.settle()
    await two.obtain("hq", "a", 70)
    await two.hq.producers["b"].ask(need=20)
    assert (await two.hq.run("b")).lacks > 0
    await two.hq.store.set(two.hq.pool, {"leasts": f"eu={MOST}"})
    await two.round()
    store = PoolSiteStore(two.hq.server)
    assert (await store.account(two.hq.pool, "eu"))[3] == 1
    await two.hq.places["c"].change(reserved="yes")
    await two.hq.producers["c"].ask(need=20)
    await two.hq.run("c")
    assert (await store.account(two.hq.pool, "eu"))[3] == 2


async def test_who_uses_it_owes_it_whatever_level_they_are_on(two: SiteWorld) -> None:
    """Breaks where what others owe ends at the level of a site that lacks of its least."""
    await two.hq.store.set(two.hq.pool, {"leasts": "eu=40"})
    await two.settle()
    for name in ("a", "b"):
        await two.obtain("hq", name, 30)
    await two.hq.store.set(two.hq.pool, {"leasts": f"eu={MOST}"})
    await two.round()
    asked = set[str]()
    for _ in range(2):
        await two.hq.pools.take_back_for(two.hq.pool, "@eu", asked)
    for name in ("a", "b"):
        await two.hq.producers[name].give_back(20)
        await two.hq.run(name)
    assert (await two.settle()).granted == MOST
    await two.check()


async def test_who_waits_at_home_is_owed_what_is_not_the_least_of_a_site(two: SiteWorld) -> None:
    """Breaks where a least counts twice, as what nobody gets and as what a site holds: then nobody owes anything."""
    await two.settle()
    await two.obtain("hq", "a", 50)
    await two.hq.pools.give_back(two.hq.places["a"].address, "memory")
    await two.obtain("hq", "b", 20)
    await two.hq.producers["b"].ask(need=35)
    asked = set[str]()
    for _ in range(3):
        await two.hq.pools.step(two.hq.places["b"].address, "memory", lambda *_: None, asked)
    held = await two.hq.slice_of("a")
    assert held["owed"] - held["returned"] == 15


async def test_a_site_owes_what_it_has_beyond_it(two: SiteWorld) -> None:
    """Mutant: a least counts twice, as what nobody gets and as what a site holds."""
    await two.obtain("eu", "a", 40)
    await two.hear(Letter(), idle=1000)
    held = await two.settle()
    assert held.granted - held.returned == 40
    for name, size in (("a", 35), ("b", 25)):
        await two.obtain("hq", name, size)
        await two.hq.pools.give_back(two.hq.places[name].address, "memory")
    await two.hq.producers["b"].ask(need=40)
    await two.hq.run("b")
    letter = await two.report(two.stamped(await two.look()))
    assert (letter.lacks, letter.owed) == (10, 10)


async def test_another_site_owes_it_and_keeps_its_own(two: SiteWorld) -> None:
    """Mutants: it owes what it has above the level of the first alone; or nothing, where others hold as little."""
    await two.hq.store.set(two.hq.pool, {"sites": f"eu={MOST} us=90", "leasts": "eu=10 us=20"})
    us = SiteWorld(two.hq, two.eu, "us")
    await us.report("epoch=1 pool=0 granted=0 returned=0 need=0 at=1")
    await two.obtain("hq", "a", 40)
    await two.hq.pools.give_back(two.hq.places["a"].address, "memory")
    await two.obtain("eu", "a", 40)
    await two.hq.store.set(two.hq.pool, {"leasts": "eu=10 us=80"})
    first = await us.report("epoch=1 pool=0 granted=20 returned=0 need=20 at=2")
    letter = await two.report(two.stamped(await two.look()))
    await two.hq.server.command(us.key, "DEL", us.key)
    assert (first.granted, first.least, first.most) == (20, 80, 90)
    assert (letter.granted - letter.returned, letter.lacks, letter.owed) == (40, 30, 30)


async def test_what_it_is_stands_in_records_at_once(two: SiteWorld) -> None:
    """Mutant: a site that is silent keeps what it was."""
    await two.settle()
    await two.hq.store.set(two.hq.pool, {"leasts": "eu=20"})
    (share,) = [share for share in await two.hq.store.members(two.hq.pool) if share.site]
    assert share.least == 20


async def test_more_than_its_most_is_never_its_least(two: SiteWorld) -> None:
    """Mutant: `pool_set` is believed whatever it says."""
    await two.hq.store.set(two.hq.pool, {"sites": "eu=20", "leasts": "eu=90"})
    await two.settle()
    assert await granted(two.hq) == 20
    await two.obtain("hq", "a", LIMIT - 20)
    assert (await two.hq.look("a")).lacks <= 0


STRANGE = [
    "eu",
    "eu=",
    "eu==9",
    "us=9",
    "eu=0",
    "eu=20 eu=20",
    f"eu={'9' * 400}",
    f"us={'9' * 400} eu=1",
    "=",
    "eu=9=9",
]


@pytest.mark.parametrize("leasts", STRANGE, ids=range(len(STRANGE)))
async def test_whatever_stands_there_the_limit_holds_and_letters_are_read(two: SiteWorld, leasts: str) -> None:
    """Breaks where a number that is none ends scripts, or what is read here is not what they read."""
    await two.hq.store.set(two.hq.pool, {"leasts": leasts})
    held = await two.settle()
    terms = sites_named(await two.hq.store.fields(two.hq.pool))
    assert (await two.answer()).least == terms["eu"].least == held.granted - held.returned
    await two.obtain("hq", "a", 40)
    assert await granted(two.hq) <= LIMIT
    assert ((await two.hq.look("a")).lacks > 0) == (terms["eu"].least > LIMIT - 40)


async def test_a_least_without_bounds_is_no_number_that_ends_scripts(two: SiteWorld) -> None:
    """Mutant: it is written as it stands."""
    vast = "9" * 400
    await two.hq.store.set(two.hq.pool, {"sites": f"eu={vast}", "leasts": f"eu={vast}", "limit_bytes": "unlimited"})
    await two.settle()
    letter = await two.answer()
    assert 0 < letter.least <= UNLIMITED
    assert [share.least for share in await two.hq.store.members(two.hq.pool) if share.site] == [letter.least]


NEAR_THE_END = f"epoch={2**53 - 1} pool=0 granted={2**53 - 40} returned=0 need={2**53 - 1} at=1"


@pytest.mark.parametrize("report", [*HOSTILE, NEAR_THE_END], ids=range(len(HOSTILE) + 1))
async def test_a_hostile_site_has_its_least_and_no_more_of_others(two: SiteWorld, report: str) -> None:
    """Mutant: totals grow beyond what is exact, and the sum of the pool with them."""
    for number in range(3):
        await two.report(report.replace("at=1", f"at={number}"))
    members = {share.member: share.held for share in await two.hq.store.members(two.hq.pool)}
    assert members.get("@eu", 0) <= MOST
    assert await granted(two.hq) == sum(members.values()) <= LIMIT
    await two.obtain("hq", "b", LIMIT - MOST)
    assert (await two.hq.look("b")).lacks <= 0


async def test_a_site_that_is_forgotten_finds_it_again(two: SiteWorld) -> None:
    """Mutant: it is kept until it was granted, and no longer."""
    await two.settle()
    await PoolSiteStore(two.hq.server).account(two.hq.pool, "eu", mode="forget")
    await two.obtain("hq", "a", 60)
    await two.obtain("hq", "b", LIMIT - LEAST - 60 + 1)
    assert (await two.hq.look("b")).lacks > 0
    held = await two.settle()
    assert held.granted - held.returned == LEAST


@settings(QUIET, max_examples=examples(60), phases=PHASES)
@given(events=st.lists(LOSSES, min_size=15, max_size=50))
def test_no_loss_at_either_side_makes_both_exceed_the_limit(runner: Runner, events: list[tuple[Any, ...]]) -> None:
    runner.runner.run(live(*runner.another(), events, LEAST))
