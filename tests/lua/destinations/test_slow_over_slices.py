"""Slow consumers of a destination with slices: the first slice judges what all of them know, and none does alone."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from headgate.core.names import slice_name
from headgate.redis.keys import Address
from headgate.redis.stores.paces import Pace, PaceStore, Verdict
from tests.lua.destinations.test_slow import PERIOD, attach, is_slow, ledger
from tests.lua.place import Consumer, Place

SLICES = 3


async def work(part: Consumer, settle: int, window: int = 5) -> str:
    """Settle so many of what is held at a slice, and fetch up to the window in the same call; returns the answer."""
    done, part.held = part.held[:settle], part.held[settle:]
    part.fetches += 1
    answer = await part.call(
        accepted=done, fetch=part.fetches, max_messages=max(0, window - len(part.held)), max_bytes=1 << 20
    )
    part.held += [id_ for id_, _, _ in answer.messages]
    return answer.code


class Spread:
    """A consumer at all slices, each with its own part; ``busy`` is for how many ms its client knows it to be so."""

    def __init__(self, places: list[Place]) -> None:
        self.places = places
        self.parts: list[Consumer] = []
        self.busy = 0

    async def attach(self, session: str, window: str) -> None:
        self.parts = [await attach(place, session, window) for place in self.places]

    @property
    def first(self) -> Consumer:
        return self.parts[0]

    async def wait(self, ms: int) -> None:
        for place in self.places:
            await place.wait(ms)
        self.busy += ms

    async def look(self) -> tuple[int, Pace]:
        """Read all slices, the first of them first; returns when that began, and what they know together."""
        store = PaceStore(self.first.place.server)
        seen = [await store.look(part.place.address, part.session, 1) for part in self.parts]
        assert {one.code for one in seen} == {"OK"}
        total = Pace("OK", 0, 0, *(sum(getattr(one, name) for one in seen) for name in ("settled", "held", "waiting")))
        return seen[0].now_ms, total

    async def judge(self, read: tuple[int, Pace] | None = None, *, parts: str = "x") -> Verdict:
        began, total = read or await self.look()
        first = self.first
        return await PaceStore(first.place.server).judge(
            first.place.address, first.session, 1, began=began, busy_ms=self.busy, total=total, parts=parts
        )

    async def period(self, settled: tuple[int, ...], window: int = 5) -> Verdict:
        """Settle so many at each slice within a period, fetch up to a window there, and be judged."""
        await self.wait(PERIOD)
        for part, count in zip(self.parts, settled, strict=True):
            await work(part, count, window)
        return await self.judge()


@pytest.fixture
async def spread(place: Place) -> AsyncIterator[Spread]:
    names = (slice_name("orders", number) for number in range(SLICES))
    places = [Place(place.server, Address.of(place.address.namespace, name)) for name in names]
    yield Spread(places)
    for one in places:
        await one.server.forget(one.address, *one.sessions)


async def stock(spread: Spread, *counts: int, kind: str = "queue", **settings: Any) -> None:
    """Create a destination with slices, attach a consumer with a window of 5 to all, and store so many at each."""
    for number, place in enumerate(spread.places):
        shares: dict[str, Any] = {"slices": "3"} if number == 0 else {"of_slices": "3"}
        shares |= {"enforce": "off", "slow_period_ms": str(PERIOD)}
        await place.create(kind, limit="unlimited", **shares, **settings)
    await spread.attach("bob", "5/unlimited")
    for number, (place, count) in enumerate(zip(spread.places, counts, strict=True)):
        ann = place.producer(f"ann{number}")
        for _ in range(count // 8):
            await ann.send(*[10] * 8)
    for part, count in zip(spread.parts, counts, strict=True):
        if count:
            await part.fetch(5)


async def test_no_slice_judges_alone_who_is_served_by_others_too(spread: Spread) -> None:
    """Mutant: each slice judges what it sees; a sweep does."""
    await stock(spread, 80, 80, 0, slow_rate="4", slow_action="detach")
    for _ in range(8):
        await spread.wait(500)
        assert [await work(spread.parts[0], 3), await work(spread.parts[1], 0)] == ["OK", "OK"]
        for place in spread.places:
            await place.reap()
    assert [await is_slow(part) for part in spread.parts] == [False] * SLICES


async def test_what_it_settles_at_all_slices_counts(spread: Spread) -> None:
    """Mutants: nobody is judged; the rate is not looked at."""
    await stock(spread, 40, 40, 0, slow_rate="3")
    assert await spread.judge() == Verdict("OK", False, PERIOD)
    assert not (await spread.period((5, 5, 0))).slow, "ten in two seconds"
    assert not (await spread.period((2, 4, 0))).slow
    assert (await spread.period((1, 4, 0))).slow
    assert await is_slow(spread.first)
    assert "slow:bob.1" in await ledger(spread.places[0])
    assert (await spread.period((2, 2, 0))).slow
    assert (await ledger(spread.places[0])).count("slow:bob.1") == 1, "it is told once"
    assert not (await spread.period((4, 4, 0))).slow
    assert "brisk:bob.1" in await ledger(spread.places[0])


async def test_what_waits_at_all_slices_counts(spread: Spread) -> None:
    """Mutants: what waits is not read; what is held elsewhere is left out."""
    await stock(spread, 8, 8, 8, slow_multiple="3")
    await spread.judge()
    assert (await spread.period((1, 1, 1))).slow, "21 are more than three windows, and 7 are none"
    assert not (await spread.period((2, 2, 2))).slow, "15 are three windows, and no more"


async def test_a_period_begins_anew_after_a_time_without_messages(spread: Spread) -> None:
    """Mutants: its client's word counts for nothing; empty hands are not seen."""
    await stock(spread, 40, 0, 0, slow_rate="100", slow_action="detach")
    await spread.judge()
    spread.busy = -1000
    assert await spread.period((0, 0, 0)) == Verdict("OK", False, PERIOD), "it had nothing to do a second ago"
    began, total = await spread.look()
    await spread.wait(PERIOD)
    emptied = Pace("OK", 0, 0, total.settled, 0, 0)
    assert not (await spread.judge((began + PERIOD, emptied))).slow, "it holds nothing"
    assert (await spread.period((0, 0, 0))).code == "SLOW"


async def test_a_period_begins_anew_where_totals_are_of_other_parts(spread: Spread) -> None:
    """Mutant: totals before a failover are compared with totals after it."""
    await stock(spread, 40, 40, 0, slow_rate="3")
    await spread.judge()
    await spread.wait(PERIOD)
    assert not (await spread.judge(parts="y")).slow
    await spread.wait(PERIOD)
    assert (await spread.judge(parts="y")).slow
    await spread.wait(PERIOD)
    assert (await spread.judge(parts="z")).slow, "it stays what it was"
    await spread.wait(PERIOD)
    began, total = await spread.look()
    assert total.settled == 0
    more = Pace("OK", 0, 0, 100, total.held, 0)
    assert not (await spread.judge((began, more), parts="z")).slow
    await spread.wait(PERIOD)
    less = Pace("OK", 0, 0, 99, total.held, 0)
    assert not (await spread.judge((began + PERIOD, less), parts="z")).slow, "totals that go back say nothing"


async def test_nobody_is_slow_for_how_long_the_reading_takes(spread: Spread) -> None:
    """Mutants: a period ends as the judgement comes; a late copy of a call is judged by, and counts as the newest."""
    await stock(spread, 80, 0, 0, slow_rate="2")
    await spread.judge()
    early = await spread.look()
    await spread.wait(PERIOD)
    assert await spread.judge(early) == Verdict("OK", False, 0), "its period was not over as it was read"
    await work(spread.first, 4)
    read = await spread.look()
    await spread.wait(PERIOD)
    assert await spread.judge(read) == Verdict("OK", False, PERIOD), "four in the two seconds that were read"
    record = await pace_record(spread)
    await spread.wait(PERIOD)
    assert await spread.judge(read, parts="y") == Verdict("OK", False, 0)
    assert await pace_record(spread) == record
    assert (await spread.period((1, 0, 0))).slow
    assert await spread.judge(read) == Verdict("OK", True, PERIOD)


async def pace_record(spread: Spread) -> bytes:
    key = spread.places[0].address.shared[12]
    record: bytes = await spread.places[0].server.command(key, "HGET", key, spread.first.id)
    return record


async def test_who_is_detached_hears_of_it_and_others_get_what_it_held(spread: Spread) -> None:
    """Mutants: it stays; it is told that its session expired."""
    await stock(spread, 8, 8, 0, slow_rate="4", slow_action="detach")
    held = list(spread.first.held)
    await spread.judge()
    assert (await spread.period((0, 0, 0))).code == "SLOW"
    assert (await spread.judge((0, Pace("OK")))).code == "SLOW", "an answer may be lost"
    assert (await spread.first.call()).code == "SLOW"
    await spread.places[0].reap()
    cid = await attach(spread.places[0], "cid", "5/unlimited")
    assert await cid.fetch(5) == held
    await spread.first.detach()
    assert (await spread.judge((0, Pace("OK")))).code == "EXPIRED"
    for place in spread.places:
        assert (await place.recount()).equal


async def test_a_rule_to_detach_that_comes_later_is_for_who_is_slow_by_then(spread: Spread) -> None:
    """Mutant: it is marked as detached, and goes on."""
    await stock(spread, 8, 8, 0, slow_rate="4")
    await spread.judge()
    assert (await spread.period((0, 0, 0))).slow
    await spread.places[0].change(slow_action="detach")
    assert (await spread.judge(parts="y")).code == "SLOW"
    assert (await spread.first.call()).code == "SLOW"


async def test_without_a_rule_or_slices_nobody_is_judged_together(spread: Spread, place: Place) -> None:
    await stock(spread, 8, 0, 0)
    assert (await spread.judge()).code == "UNBOUND"
    await place.create(slow_rate="4")
    await attach(place, "bob", "5/unlimited")
    judged = PaceStore(place.server).judge(place.address, "bob", 1, began=0, busy_ms=0, total=Pace("OK"), parts="x")
    assert (await judged).code == "UNBOUND"


async def test_on_a_topic_what_waits_for_its_own_subscription_counts(spread: Spread) -> None:
    await stock(spread, 16, 8, 0, kind="topic", slow_multiple="3")
    assert (await spread.look())[1] == Pace("OK", 0, 0, 0, 10, 14)
