"""Limits that adapt: what sessions say of their holds moves the limit, once a second, as the plain twin says."""

import random
from dataclasses import asdict
from typing import Any

import pytest

from headgate.core.limits.adapting import RULES, Adapt, AdaptiveState, Sample, decide
from headgate.redis.stores.limiters import HoldCall
from tests.lua.limiters.trial import Limiter

pytestmark = pytest.mark.one_server

AIMD = "slots at_once 200 5 aimd"
GRADIENT = "slots at_once 200 5 gradient"


def sample(**sums: int) -> str:
    return ",".join(f"{name}={number}" for name, number in sums.items())


async def hear(limiter: Limiter, **sums: int) -> None:
    """Let a second pass, say how holds of it ended, and let one more begin, in which it is decided."""
    await limiter.one("sample", "ann.1", sample(**sums))
    await limiter.wait(1000)
    await limiter.store.sweep(limiter.address)


async def limit(limiter: Limiter) -> int:
    return int((await limiter.look()).limits[0].split(" ")[2])


async def fill(limiter: Limiter, count: int = 200) -> None:
    """Have so many ask for a slot: those that are refused say that the limit is in use."""
    for number in range(2, count, 40):
        calls = [HoldCall("admit", f"ann.{n}", amounts="slots=1", ttl_ms=600_000) for n in range(number, number + 40)]
        await limiter.call("ann", *calls)


async def replay(limiter: Limiter, adapt: Adapt) -> set[str]:
    """See that the twin decides of all that was heard what the ledger says, and return the reasons."""
    course, reasons = AdaptiveState(5000), set[str]()
    for _, event in await limiter.events():
        if not event.startswith("adapted:"):
            continue
        _, name, how, floor, ceiling, before, reason, heard, after = event.split(":")
        ok, us, squares, over, late, busy, pressed = map(int, heard.split())
        assert (name, how, int(before)) == ("slots", f"{adapt}.{RULES}", course.limit)
        heard_of = Sample(ok, us, squares, over, late, busy, bool(pressed))
        course, why = decide(course, heard_of, int(floor), int(ceiling), adapt)
        assert (why, [*asdict(course).values()]) == (reason, list(map(int, after.split())))
        reasons.add(reason)
    return reasons


async def test_it_begins_at_its_floor_and_grows_while_it_keeps_somebody_waiting(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    assert await limit(limiter) == 5
    limits = []
    for _ in range(4):
        await fill(limiter)
        assert await limiter.taken("slots") == await limit(limiter)
        await hear(limiter, ok=50, us=5_000_000)
        limits.append(await limit(limiter))
    assert limits == [7, 11, 16, 25]


async def test_it_does_not_grow_while_nobody_needs_more(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    for _ in range(5):
        await hear(limiter, ok=50, us=5_000_000)
    assert await limit(limiter) == 5


async def test_an_overload_lowers_it_to_what_was_served_and_never_by_more_than_a_half_or_below_its_floor(
    limiter: Limiter,
) -> None:
    await limiter.create(AIMD)
    for _ in range(6):
        await fill(limiter)
        await hear(limiter, ok=50, us=5_000_000)
    high = await limit(limiter)
    assert high == 56
    await hear(limiter, ok=50, us=5_000_000, over=30, busy=40_000)
    assert await limit(limiter) == 45, "it was not held: by a fifth at the most"
    await hear(limiter, ok=50, us=5_000_000)  # holds from before end in this second
    for _ in range(24):
        await hear(limiter, ok=50, us=5_000_000, over=30, busy=100)
    assert await limit(limiter) == 5


async def test_an_overload_of_a_few_lowers_it_by_the_part_that_was_not_served(limiter: Limiter) -> None:
    """What was served in one second scatters: the part of what was held that was served does not."""
    await limiter.create(AIMD)
    for _ in range(6):
        await fill(limiter)
        await hear(limiter, ok=50, us=5_000_000)
    assert await limit(limiter) == 56
    await hear(limiter, ok=50, us=50_000_000, over=900, late=6_000_000, busy=30_000)
    assert await limit(limiter) == 45, "that much was hardly held: by a fifth"
    await hear(limiter, ok=50, us=5_000_000)
    await hear(limiter, ok=50, us=27_000_000, over=900, late=3_000_000, busy=40_000)
    assert await limit(limiter) == 41, "nine tenths of what was held were served"
    await hear(limiter, ok=50, us=5_000_000)
    for _ in range(2):
        await hear(limiter, ok=50, us=24_000_000, over=3, late=3_000, busy=41_000)
        await hear(limiter, ok=50, us=5_000_000)
    assert await limit(limiter) == 39, "by a fiftieth at the least"
    await hear(limiter, ok=50, us=12_000_000, over=900, late=12_000_000, busy=15_000)
    assert await limit(limiter) == 19, "a half was served: it is another service"


async def test_one_overload_among_many_does_not_count(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    await fill(limiter)
    await hear(limiter, ok=99, us=5_000_000, over=1)
    assert await limit(limiter) == 7


async def test_it_is_decided_once_a_second_whoever_comes(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    await fill(limiter)
    await hear(limiter, ok=50, us=5_000_000)
    for session in ("bob", "cid", "dan"):
        await fill(limiter)
        await limiter.one("sample", f"{session}.1", sample(ok=9, us=900_000))
        await limiter.wait(100)
        await limiter.admit(f"{session}.2", "slots=1")
    assert await limit(limiter) == 7


async def test_a_repeated_call_counts_its_sample_once(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    call = HoldCall("sample", "ann.1", amounts=sample(ok=3, us=300))
    for _ in range(3):
        await limiter.call("ann", call, seq=1)
    assert (await limiter.look()).limits[0].endswith(" 3 0 0")


async def test_a_single_hold_tells_its_time_by_the_clock_of_redis_and_only_while_it_is_held(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    await limiter.admit("ann.2", "slots=2")
    await limiter.wait(250)
    await limiter.call("bob", HoldCall("sample", "ann.2", amounts="ok=1"), HoldCall("release", "ann.2"))
    await limiter.wait(1000)
    await limiter.store.sweep(limiter.address)
    events = [event for _, event in await limiter.events() if event.startswith("adapted")]
    assert events[0].split(":")[7] == "1 250000 15256836 0 0 500 0"


async def test_an_outcome_of_a_hold_that_is_not_here_is_of_no_time_and_counts_nothing(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    await limiter.admit("ann.2", "slots=2")
    for outcome in ("ok=1", "over=1"):
        assert await limiter.one("sample", "ann.3", outcome) == "gone"
    assert await limiter.one("sample", "ann.3", "ignored=1") == "ok"
    assert (await limiter.look()).limits[0].endswith(" 0 0 1")


async def test_a_slice_of_which_nothing_adapts_says_too_that_a_hold_is_not_here(limiter: Limiter) -> None:
    """Else whoever goes by an id of no slice, that looks like one of this, asks no further where the hold is."""
    await limiter.create("slots at_once 9")
    await limiter.admit("ann.2", "slots=2")
    assert await limiter.one("sample", "ann.2", "ok=1") == "ok"
    assert await limiter.one("sample", "ann.3", "ok=1") == "gone"


async def test_a_waiter_has_no_time_to_tell(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    await limiter.admit("ann.2", "slots=5")
    await limiter.admit("ann.3", "slots=1", wait_ms=5000)
    await limiter.wait(500)
    await limiter.call("bob", HoldCall("sample", "ann.3", amounts="ok=1"))
    await limiter.wait(500)
    await limiter.store.sweep(limiter.address)
    events = [event for _, event in await limiter.events() if event.startswith("adapted")]
    assert events[0].split(":")[7] == "1 0 0 0 0 0 1"


async def test_what_is_out_of_bounds_stays_exact(limiter: Limiter) -> None:
    await limiter.create(GRADIENT)
    await fill(limiter)
    for sums in (
        dict.fromkeys(("ok", "us", "squares", "over", "late", "busy", "ignored"), 2**53 - 1),
        {"ok": 1, "us": 2**53 - 1, "squares": 2**53 - 1}, {"ok": 2**53 - 1, "squares": 2**53 - 1, "us": 1},
    ):  # fmt: skip
        await hear(limiter, **sums)
    events = [event for _, event in await limiter.events() if event.startswith("adapted")]
    numbers = [int(number) for event in events for number in " ".join(event.split(":")[7:]).split()]
    assert max(numbers) <= 2**51
    assert [int(event.split(":")[7].split()[1]) for event in events] == [2**51, 3_600_000_000, 3_600_000_001]


async def test_never_more_than_the_floor_is_asked_for_at_once(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    await limiter.admit("bob.1", "slots=5")
    await limiter.admit("bob.2", "slots=1")
    await hear(limiter, ok=50, us=5_000_000)
    await limiter.release("bob.1")
    assert await limit(limiter) == 7
    assert await limiter.admit("ann.2", "slots=6") == "never 5 slots all"
    assert await limiter.admit("ann.2", "slots=5") == "held"


async def test_new_bounds_hold_at_once_and_what_was_learnt_stays(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    for _ in range(5):
        await fill(limiter)
        await hear(limiter, ok=50, us=5_000_000)
    assert await limit(limiter) == 37
    await limiter.change(limits="slots at_once 20 5 aimd")
    assert await limit(limiter) == 20
    await limiter.change(limits="slots at_once 200 50 gradient")
    assert await limit(limiter) == 50
    await limiter.change(limits="slots at_once 9")
    assert await limit(limiter) == 9
    await limiter.change(limits="seats at_once 200 5 aimd")
    assert await limit(limiter) == 5


async def test_what_is_too_little_to_decide_by_is_summed_up_for_some_seconds(limiter: Limiter) -> None:
    await limiter.create(GRADIENT)
    for _ in range(3):
        await hear(limiter, ignored=1)
    for _ in range(10):
        await hear(limiter, ok=1, us=100_000)
    events = [event.split(":") for _, event in await limiter.events() if event.startswith("adapted")]
    assert [(reason, heard.split()[0]) for *_, reason, heard, _ in events] == [
        *(("few", str(count)) for count in range(1, 9)), ("unused", "9"), ("few", "1"),
    ]  # fmt: skip


async def test_what_a_session_says_of_a_time_goes_before_the_clock(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    await limiter.admit("ann.2", "slots=2")
    await limiter.wait(250)
    await limiter.call("bob", HoldCall("sample", "ann.2", amounts="ok=1,us=64000"), HoldCall("release", "ann.2"))
    await limiter.wait(1000)
    await limiter.store.sweep(limiter.address)
    events = [event for _, event in await limiter.events() if event.startswith("adapted")]
    assert events[0].split(":")[7] == "1 64000 0 0 0 0 0"


async def test_after_a_failover_it_goes_on_where_it_was_and_where_all_is_lost_at_its_floor(limiter: Limiter) -> None:
    await limiter.create(AIMD)
    for _ in range(3):
        await fill(limiter)
        await hear(limiter, ok=50, us=5_000_000)
    key = limiter.address.key
    await limiter.server.command(key.encode(), "HSET", key, "run_id", "another")
    await limiter.store.sweep(limiter.address)
    assert await limit(limiter) == 16
    await limiter.server.command(
        key.encode(), "DEL", key, f"{key}:holds", f"{key}:keyed", f"{key}:leases", f"{key}:ledger"
    )
    await limiter.create(AIMD, mode="recover")
    assert await limit(limiter) == 5


@pytest.mark.parametrize(
    "text",
    ["slots at_once 200 5 vegas", "slots at_once 5 6 aimd", "slots at_once 200 0 aimd",
     "slots at_once 2000000000 5 aimd", "slots at_once 200 5 aimd;seats at_once 200 5 aimd"],
)  # fmt: skip
async def test_what_cannot_be_is_refused(limiter: Limiter, text: str) -> None:
    with pytest.raises(Exception, match="ARGUMENT apply"):
        await limiter.create(text)


async def test_a_limit_of_a_key_does_not_adapt(limiter: Limiter) -> None:
    with pytest.raises(Exception, match="ARGUMENT apply"):
        await limiter.create("slots at_once 9", AIMD)


@pytest.mark.parametrize("adapt", ["aimd", "gradient"])
async def test_each_decision_is_the_one_of_the_twin(limiter: Limiter, adapt: Any) -> None:
    """Drive it through all that happens, and have the ledger say what the twin says of the same."""
    await limiter.create(f"slots at_once 60 5 {adapt}")
    story = (
        [(60, 100_000, 0)] * 9
        + [(300, 104_000, 0)] * 2
        + [(300, 180_000, 0)] * 9
        + [(300, 100_000, 60)] * 4
        + [(5, 100_000, 0)] * 3
    )
    story += (
        [(400, 100_000, 0)] * 25
        + [(300, 100_000, 60)] * 2
        + [(400, 100_000, 0)] * 8
        + [(100, 100_000, 300)] * 2
        + [(400, 100_000, 0)] * 3
        + [(400, 117_000, 0)]
    )
    story += [(400, 104_500, 0)] * 30 + [(400, 112_000, 0)] * 6
    story += [(400, 100_000, 0)] * 9 + [(300, 260_000, 0)] * 12 + [(300, 2_600_000, 0)] * 6
    story += (
        [(1, 100_000, 0)] * 12 + [(2, 100_000, 1)] + [(1, 100_000, 0)] * 3
    )  # few for long, and few that are overloads
    for ok, us, over in story:
        await fill(limiter, 80)
        await hear(limiter, ok=ok, us=ok * us, squares=ok * (us // 64) ** 2, over=over, busy=ok * us // 1000)
    reasons = await replay(limiter, adapt)
    assert reasons >= (
        {"start", "overload", "rest", "grow"}
        if adapt == "aimd"
        else {"start", "slow", "rest", "slower", "few", "keep", "grow", "probe", "overload"}
    )


async def test_a_gradient_goes_back_to_a_capacity_that_it_knew_by_small_steps(limiter: Limiter) -> None:
    """Mutants: each step is a large one, or a small one."""
    await limiter.create(GRADIENT)
    highest = {}
    for capacity, seconds in ((80, 24), (40, 12), (80, 16), (120, 10)):
        seen = []
        for _ in range(seconds):
            seen.append(await limit(limiter))
            us = round(100_000 * max(1, seen[-1] / capacity))
            await fill(limiter, 210)
            await hear(limiter, ok=400, us=400 * us, squares=400 * (us // 64) ** 2, busy=400 * us // 1000)
        highest[capacity] = max(seen[2:]) / capacity
        assert any(0.9 <= one / capacity <= 1.1 for one in seen), (capacity, seen)
    assert highest[80] <= 1.1, "where it was before"
    assert highest[120] > 1.1, "where it never was"
    for is_used in (True, True, True, True, False, False, True, True):  # while it grows far, and again
        await fill(limiter, 210 if is_used else 0)
        await hear(limiter, ok=400, us=40_000_000, squares=400 * 1562**2, busy=40_000)
    assert await replay(limiter, "gradient") >= {"start", "slow", "keep", "grow", "unused"}


@pytest.mark.parametrize("adapt", ["aimd", "gradient"])
async def test_whatever_is_said_of_holds_it_stays_between_floor_and_ceiling(limiter: Limiter, adapt: Adapt) -> None:
    """Who lies moves it as far as it goes and no further, and what the ledger has is what the twin decides of it."""
    await limiter.create(f"slots at_once 60 5 {adapt}")
    lies = random.Random(adapt)
    huge = (0, 1, 29, 30, 10**6, 2**31, 2**51, 4503599627370495)
    names = ("us", "squares", "late", "busy", "ignored")
    seen = set()
    for _ in range(40):
        if lies.random() < 0.7:
            await fill(limiter, 80)
        told = {"ok": lies.choice(huge)} | ({"over": lies.choice(huge)} if lies.random() < 0.2 else {})
        lie = sample(**told, **{name: lies.choice(huge) for name in lies.sample(names, lies.randint(0, 5))})
        for _ in range(lies.choice((1, 40))):
            await limiter.one("sample", "ann.1", lie)
        await limiter.wait(1000)
        await limiter.store.sweep(limiter.address)
        seen.add(await limit(limiter))
        assert 5 <= await limit(limiter) <= 60
    assert len(seen) > 1
    assert await replay(limiter, adapt)
