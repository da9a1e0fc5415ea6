"""Levels of a limiter as operators read them: who waits for which limit, who holds it, what a hold-off withholds."""

import pytest

from headgate.explain.levels import read_limits
from headgate.explain.limiter_view import LimiterView, Wait
from tests.lua.limiters.trial import TTL_MS, Limiter

pytestmark = pytest.mark.one_server
SLOTS = "slots at_once 4;tokens rate 10 100"


async def test_the_head_of_the_line_is_first_and_each_key_says_what_its_first_waits_for(limiter: Limiter) -> None:
    """Mutants: the head is not asked for; those of one key are not counted; a parked key is said to wait for others."""
    await limiter.create(SLOTS, "tokens rate 1 10")
    for n in (1, 2, 3, 4):
        assert await limiter.admit(f"ann.{n}", "slots=1", key="t1") == "held"
    assert await limiter.admit("ann.5", "tokens=10", key="t2") == "held"
    for n in (1, 2, 3):
        assert (await limiter.admit(f"bob.{n}", "slots=1", key="t1", wait_ms=9000)).startswith("wait")
    for n in (1, 2):
        assert (await limiter.admit(f"cid.{n}", "tokens=5", key="t2", wait_ms=9000)).startswith("wait")
    await limiter.wait(10)
    assert (await limiter.admit("dan.1", "slots=1", key="t3", wait_ms=9000)).startswith("wait")
    levels = await limiter.look()
    begun = limiter.now - 10
    assert levels.line[0] == f"W t3 1 dan.1 {limiter.now} 1 - - slots all slots:1", "it holds nothing, so it is next"
    assert sorted(levels.line[1:]) == [
        f"W t1 3 bob.1 {begun} - - - slots all slots:1", f"W t2 2 cid.1 {begun} - - 4990000 tokens key tokens=5",
    ]  # fmt: skip
    assert (levels.head, levels.waiting) == ("- slots all slots:1", 6)
    assert set(levels.records) == {"t1", "t2"}
    before = await limiter.server.command(limiter.address.shared[0], "HGETALL", limiter.address.key)
    await limiter.look("t1")
    assert await limiter.server.command(limiter.address.shared[0], "HGETALL", limiter.address.key) == before


async def test_a_key_or_session_that_is_asked_for_is_listed_among_many(limiter: Limiter) -> None:
    """Mutants: a session's waits are shown as they are stored; the key that was asked for is not looked up."""
    await limiter.create(SLOTS)
    for n in (1, 2, 3, 4):
        assert await limiter.admit(f"ann.{n}", "slots=1", key="t1", ttl=2 * TTL_MS) == "held"
    for n in range(1, 61):
        assert (await limiter.admit(f"bob.{n}", "slots=1", key=f"k{n}", wait_ms=9000)).startswith("wait")
    last = await limiter.store.levels(limiter.address, key="k60", session="ann", most=1)
    assert last is not None
    assert any(text.startswith("W k60 1 bob.60 ") for text in last.line)
    assert len(last.line) <= 42
    assert set(last.own) == {"ann.1", "ann.2", "ann.3", "ann.4"}
    assert [hold.partition(".")[0] for hold in last.holds] == ["ann"], "waiters' leases end before those of holds"
    bob = await limiter.store.levels(limiter.address, session="bob", most=0)
    assert bob is not None
    assert (bob.holds, bob.records, len(bob.own)) == ({}, {}, 32)
    assert all(text.startswith("W k") for text in bob.own.values())


async def test_what_a_hold_off_withholds_is_not_counted_as_taken(limiter: Limiter) -> None:
    """Mutants: it is counted as taken, of a rate and of what is held at once."""
    await limiter.create(SLOTS)
    assert await limiter.admit("ann.1", "slots=1,tokens=5") == "held"
    assert await limiter.store.hold_off(limiter.address, "ann", key="*", ms=4000, reason="429") == ("OK", 4000)

    async def levels() -> dict[str, tuple[int, int, int]]:
        limits = read_limits((await limiter.look()).limits)
        return {name: (one.taken, one.withheld, one.remaining) for name, one in limits.items()}

    assert await levels() == {"slots": (1, 3, 0), "tokens": (0, 100, 0)}
    await limiter.wait(6000)
    assert await levels() == {"slots": (1, 2, 1), "tokens": (0, 80, 20)}
    assert await limiter.admit("ann.2", "tokens=15") == "held"
    assert await levels() == {"slots": (1, 2, 1), "tokens": (15, 80, 5)}
    await limiter.wait(9000)
    assert (await levels())["slots"] == (1, 0, 3)


async def test_admissions_and_refusals_are_counted_once(limiter: Limiter) -> None:
    """Mutants: what is admitted from the line is not counted; who gives up is not; a refusal is not."""
    await limiter.create("slots at_once 1")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    assert (await limiter.admit("bob.1", "slots=1")).startswith("late")
    for hold in ("bob.2", "bob.3", "bob.3"):
        assert (await limiter.admit(hold, "slots=1", wait_ms=9000)).startswith("wait")
    assert await limiter.release("bob.3") == "ok"
    assert await limiter.release("ann.1") == "ok"
    levels = await limiter.look()
    assert (levels.admitted, levels.refused, levels.waiting) == (2, 2, 0)


async def test_a_place_and_when_its_turn_comes_are_numbers(limiter: Limiter) -> None:
    """Mutants: those behind it count as before it; another key has always the next turn; the pace is not learnt."""
    await limiter.create("slots at_once 2")
    for n in (1, 2):
        assert await limiter.admit(f"ann.{n}", "slots=1", key="t1", ttl=60_000) == "held"
    waiting = [*(f"ann.{n}" for n in range(3, 10)), "bob.1", "bob.2"]
    for hold in waiting:
        key = "t1" if hold.startswith("ann") else "t2"
        assert (await limiter.admit(hold, "slots=1", key=key, wait_ms=99_000)).startswith("wait")
    bob = await limiter.store.levels(limiter.address, session="bob", most=10)
    assert bob is not None
    assert sorted(text.split()[5:7] for text in bob.own.values()) == [["1", "-"], ["3", "-"]], "nothing came back yet"
    for hold in ("ann.1", "bob.1"):
        await limiter.wait(500)
        await limiter.release(hold)
        for one in waiting:
            await limiter.one("renew", one, ttl=60_000)
    ann = await limiter.store.levels(limiter.address, session="ann", most=10)
    assert ann is not None
    waits = [one for one in LimiterView.of(ann, None, "").own if isinstance(one, Wait)]
    assert sorted(one.place or 0 for one in waits) == [1, 2, 3, 4, 5, 6, 7]
    assert max(one.turn_in or 0 for one in waits) == pytest.approx(3.5, abs=0.1), "two a second come back"
