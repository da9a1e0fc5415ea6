"""Reserves, bands that are shed, deadlines, and estimates of waits."""

import pytest

from headgate.errors import InvalidValue
from headgate.redis.stores.limiters import HoldCall
from tests.lua.limiters.trial import Limiter

pytestmark = pytest.mark.one_server


async def test_of_several_reserves_the_largest_is_kept(limiter: Limiter) -> None:
    await limiter.create("slots at_once 10", reserve="0=300;2=100")
    assert await limiter.admit("ann.1", "slots=8") == "never 7 slots all"


@pytest.mark.parametrize("limit", ["slots at_once 10", "slots rate 1 10", "slots quota 10 day 0"])
async def test_a_reserve_is_for_bands_up_to_its_own(limiter: Limiter, limit: str) -> None:
    await limiter.create(limit, reserve="0=100;2=300")
    assert await limiter.admit("ann.1", "slots=8") == "never 7 slots all"
    assert await limiter.admit("ann.2", "slots=7") == "held"
    assert (await limiter.admit("ann.3", "slots=1")).startswith("late ")
    assert await limiter.admit("ann.4", "slots=2~2") == "held"
    assert (await limiter.admit("ann.5", "slots=1~1")).startswith("late ")
    assert await limiter.admit("ann.6", "slots=1~0") == "held"
    assert (await limiter.admit("ann.7", "slots=1~0")).startswith("late ")


async def test_those_alike_in_one_call_are_judged_one_by_one(limiter: Limiter) -> None:
    """Mutant: what was found of the first holds for all like it."""
    await limiter.create("slots at_once 10", reserve="3=500", shed="5=300")
    calls = [HoldCall("admit", f"ann.{number}", amounts="slots=1~5", ttl_ms=5000) for number in range(1, 6)]
    assert [a.split()[0] for a in (await limiter.call("ann", *calls)).answers] == ["held"] * 3 + ["shed"] * 2
    calls = [HoldCall("admit", f"bob.{number}", amounts="slots=1~4", ttl_ms=5000) for number in range(1, 5)]
    assert [a.split()[0] for a in (await limiter.call("bob", *calls)).answers] == ["held"] * 2 + ["late"] * 2


async def test_whoever_waits_for_what_is_not_reserved_keeps_nobody_from_what_is(limiter: Limiter) -> None:
    await limiter.create("slots at_once 4", reserve="0=500")
    assert await limiter.admit("ann.1", "slots=2") == "held"
    assert (await limiter.admit("ann.2", "slots=1", wait_ms=9000)).startswith("wait ")
    assert await limiter.admit("bob.1", "slots=2~0") == "held"
    await limiter.release("bob.1")
    assert (await limiter.admit("ann.2", "slots=1", wait_ms=9000)).startswith("wait ")
    await limiter.release("ann.1")
    assert await limiter.admit("ann.2", "slots=1", wait_ms=9000) == "held"


async def test_what_is_kept_from_a_band_is_there_for_others_though_it_was_passed_far_enough_until_that_comes_twice(
    limiter: Limiter,
) -> None:
    """Band 1 may be passed by the limit of 4, and by as much again out of what is kept from it."""
    await limiter.create("slots at_once 4", reserve="0=500")
    for number in (1, 2):
        assert await limiter.admit(f"ann.{number}", "slots=1~0") == "held"
    assert (await limiter.admit("low.1", "slots=1~1", wait_ms=99_000)).startswith("wait ")
    for number in range(3, 8):  # the last of these passes one that was passed far enough
        assert await limiter.admit(f"ann.{number}", "slots=1~0") == "held"
        assert (await limiter.admit(f"mid.{number}", "slots=1")).startswith("late "), "it is kept from band 3 too"
        await limiter.release(f"ann.{number}")
    for number in (9, 10):
        assert await limiter.admit(f"ann.{number}", "slots=1~0") == "held"
    assert (await limiter.admit("top.1", "slots=1~0", wait_ms=99_000)).startswith("wait ")
    await limiter.release("ann.9")
    assert await limiter.admit("top.1", "slots=1~0", wait_ms=99_000) == "held", "one that waits has it too"
    await limiter.release("ann.10")
    assert (await limiter.admit("low.1", "slots=1~1", wait_ms=99_000)).startswith("wait ")
    assert (await limiter.admit("ann.11", "slots=1~0")).startswith("late "), "as much passed it again"
    await limiter.release("ann.1")
    await limiter.release("ann.2")
    assert await limiter.admit("low.1", "slots=1~1", wait_ms=99_000) == "held"


async def test_the_ledger_has_the_reserve(limiter: Limiter) -> None:
    """The audit goes by it: who has what is kept passes twice as far."""
    await limiter.create("slots at_once 4", reserve="0=100;2=300")
    await limiter.change(reserve="")
    key = f"{limiter.address.key}:ledger"
    entries = await limiter.server.command(key.encode(), "XRANGE", key, "-", "+")
    details = [text.decode() for _, (_, text) in entries if b",apply," in text]
    assert [part for text in details for part in text.replace(",", ";").split(";") if "reserve" in part] == [
        "reserve:0=100+2=300", "reserve:-",
    ]  # fmt: skip


async def test_a_band_is_shed_above_its_fill(limiter: Limiter) -> None:
    await limiter.create("slots at_once 10;calls rate 1 10;mails quota 10 day 0", "slots at_once 5", shed="5=800;7=300")
    assert await limiter.admit("ann.1", "slots=3,calls=8,mails=3", key="t") == "held"
    assert await limiter.admit("bob.1", "mails=1~7", wait_ms=9000) == "shed 7 300 mails all"
    assert await limiter.admit("bob.2", "mails=1~6") == "held"
    assert await limiter.admit("bob.3", "calls=1~5") == "shed 5 800 calls all"
    assert await limiter.admit("bob.4", "calls=1~4") == "held"
    assert await limiter.admit("bob.5", "slots=1", key="t") == "held"
    assert await limiter.admit("bob.6", "slots=1~6", key="t") == "shed 6 800 slots key"
    await limiter.wait(1001)
    await limiter.store.sweep(limiter.address)
    assert "refused:slots:key:1" in [text for _, text in await limiter.events()]
    await limiter.change(shed="7=200;5=900")
    assert await limiter.admit("bob.7", "mails=1~7") == "shed 7 400 mails all", "the nearest of its bands says"


async def test_what_would_be_too_late_is_refused_at_once_by_what_stands_before_it(limiter: Limiter) -> None:
    """Of a rate of 10 a second, with 30 in line, an amount of 5 waits for 3.5 s."""
    await limiter.create("calls rate 10 10", fail_if_late="yes")
    assert await limiter.admit("ann.1", "calls=10") == "held"
    for number in range(2, 5):
        assert (await limiter.admit(f"ann.{number}", "calls=10", wait_ms=9000)).startswith("wait ")
    assert await limiter.admit("bob.1", "calls=5", wait_ms=3499) == "hopeless 3500000 calls all"
    assert await limiter.admit("bob.1", "calls=5~0", wait_ms=499) == "hopeless 500000 calls all"
    assert await limiter.admit("bob.1", "calls=5", key="t", wait_ms=999) == "hopeless 1000000 calls all"
    assert (await limiter.admit("bob.1", "calls=5", wait_ms=3500)).startswith("wait ")
    await limiter.wait(1001)
    await limiter.store.sweep(limiter.address)
    assert "refused:calls:all:3" in [text for _, text in await limiter.events()]


async def test_what_joined_the_line_in_the_same_call_stands_before_it(limiter: Limiter) -> None:
    await limiter.create("calls rate 10 10", fail_if_late="yes")
    assert await limiter.admit("ann.1", "calls=10") == "held"
    calls = [HoldCall("admit", f"bob.{number}", amounts="calls=10", ttl_ms=5000, wait_ms=2500) for number in (1, 2, 3)]
    first, second, third = (await limiter.call("bob", *calls)).answers
    assert (first.split()[0], second.split()[0], third) == ("wait", "wait", "hopeless 3000000 calls all")


async def test_a_caller_may_ask_for_it_alone(limiter: Limiter) -> None:
    await limiter.create("calls rate 10 10")
    assert await limiter.admit("ann.1", "calls=10") == "held"
    assert await limiter.admit("ann.2", "calls=10!", wait_ms=900) == "hopeless 1000000 calls all"
    assert await limiter.admit("ann.2", "calls=10~3!", wait_ms=900) == "hopeless 1000000 calls all"
    assert (await limiter.admit("ann.2", "calls=10", wait_ms=900)).startswith("wait ")


async def test_how_fast_what_is_held_comes_back_is_learnt_while_somebody_waits(limiter: Limiter) -> None:
    await limiter.create("slots at_once 2", fail_if_late="yes")
    holds = [f"ann.{number}" for number in range(1, 3)]
    for hold in holds:
        assert await limiter.admit(hold, "slots=1", ttl=60_000) == "held"
    for number in range(3, 13):
        hold = f"ann.{number}"
        assert (await limiter.admit(hold, "slots=1", wait_ms=60_000)).startswith("wait "), "nobody knows yet"
        holds.append(hold)
    for _ in range(6):
        await limiter.wait(500)
        await limiter.release(holds.pop(0))
        for hold in holds:
            await limiter.one("renew", hold, ttl=60_000)
    answer = await limiter.admit("bob.1", "slots=1", wait_ms=1000)
    word, us, *_ = answer.split()
    assert word == "hopeless"
    assert 2_400_000 <= int(us) <= 2_600_000, "four wait before it, and two come back in a second"


async def _come_back_at_once(limiter: Limiter, waiting: int) -> list[list[str]]:
    """Have eight slots taken and come back in one moment, by two sessions, each second; so many wait at the end.

    Returns the pairs of holds that are next to come back.
    """
    await limiter.create("slots at_once 8", fail_if_late="yes")
    holds = [[f"ann.{number}", f"bob.{number}"] for number in range(1, 25 + waiting // 2)]
    for hold in [hold for pair in holds for hold in pair]:
        answer = await limiter.admit(hold, "slots=1", ttl=60_000, wait_ms=60_000)
        assert answer == "held" or answer.startswith("wait ")
    for _ in range(5):
        await limiter.wait(995)
        now, holds = holds[:4], holds[4:]
        for session in range(2):
            release = [HoldCall("release", pair[session]) for pair in now]
            await limiter.call(now[0][session].partition(".")[0], *release)
            await limiter.wait(5 if session == 0 else 0)
            renewals = [HoldCall("renew", pair[session], ttl_ms=60_000) for pair in holds]
            await limiter.call(now[0][session].partition(".")[0], *renewals)
    return holds


async def _told(limiter: Limiter, slots: int) -> float:
    """Return the seconds after which so many slots are said to be free for somebody new."""
    word, us, *_ = (await limiter.admit("eve.1", f"slots={slots}", wait_ms=1)).split()
    assert word == "hopeless"
    return int(us) / 1e6


async def test_slots_that_come_back_at_once_come_back_at_once_again(limiter: Limiter) -> None:
    """Eight slots are taken and come back in one moment, by two sessions, each second: who is the ninth waits for two.

    Mutants: portions are not told from what comes evenly; what comes a moment later is another portion; all is as if it
    had just come back; one is too much for a portion.
    """
    await _come_back_at_once(limiter, waiting=8)
    await limiter.wait(250)
    assert 1.6 <= await _told(limiter, 1) <= 1.9, "eight wait before it, so it is of the second portion from now on"
    assert 1.9 <= await _told(limiter, 8) <= 2.3


@pytest.mark.parametrize(("waiting", "slots", "least", "most"), [(4, 1, 0.1, 0.15), (8, 5, 0.9, 1.1)])
async def test_while_slots_come_back_the_rest_of_them_is_expected_in_a_moment(
    limiter: Limiter, waiting: int, slots: int, least: float, most: float
) -> None:
    """Half of those that come back in one moment are there: who asks now has the other half, or what follows it."""
    holds = await _come_back_at_once(limiter, waiting)
    await limiter.wait(995)
    await limiter.call("ann", *(HoldCall("release", pair[0]) for pair in holds[:4]))
    assert least <= await _told(limiter, slots) <= most


async def test_whoever_asks_in_the_call_that_brings_slots_back_waits_for_the_next(limiter: Limiter) -> None:
    """All eight come back, and those before it in line have them: the next come in a second, and not at once.

    Mutant: what the call brought back is not counted yet.
    """
    holds = await _come_back_at_once(limiter, waiting=8)
    await limiter.wait(995)
    come_back = [HoldCall("release", hold) for pair in holds[:4] for hold in pair]
    answers = await limiter.call(
        "ann", *come_back, HoldCall("admit", "ann.99", amounts="slots=1", ttl_ms=60_000, wait_ms=1)
    )
    word, us, *_ = answers.answers[-1].split()
    assert word == "hopeless"
    assert 0.9e6 <= int(us) <= 1.1e6


async def _keep_coming(limiter: Limiter, weights: str = "", others: str = "1111111111") -> None:
    """Have 20 of one key wait for a rate of one a second, and for ten seconds so many of another come in each."""
    await limiter.create("calls rate 1 1", key_weights=weights)
    assert await limiter.admit("ann.1", "calls=1") == "held"
    waiting = [(f"ann.{number}", "a") for number in range(2, 22)]
    for seconds, some in enumerate(f"{others}0"):
        for hold, key in waiting:
            await limiter.admit(hold, "calls=1", key=key, wait_ms=99_000, ttl=60_000)
        new = [(f"bob.{10 * seconds + number}", "b") for number in range(1, int(some) + 1)]
        waiting += new
        await limiter.wait(500 if seconds < 10 else 0)
        for hold, key in new:
            await limiter.admit(hold, "calls=1", key=key, wait_ms=99_000, ttl=60_000)
        await limiter.wait(500 if seconds < 10 else 0)


async def test_an_estimate_has_other_keys_that_keep_coming_take_their_turns(limiter: Limiter) -> None:
    """Of ten that were let in each key had five: 15 of one wait, and 5 of the other, of which one comes each second.

    Mutants: what comes of other keys meanwhile is not foreseen; all of others that wait go first.
    """
    await _keep_coming(limiter)
    _, us, *_ = (await limiter.admit("ann.99", "calls=1!", key="a", wait_ms=1000)).split()
    assert 30e6 <= int(us) <= 33e6, "16 of its own, and as many of the other"


async def test_an_estimate_takes_those_of_the_same_key_for_no_others(limiter: Limiter) -> None:
    """Mutant: all who came since the first of it count as others."""
    await _keep_coming(limiter, others="0000000002")
    _, us, *_ = (await limiter.admit("ann.99", "calls=1!", key="a", wait_ms=1000)).split()
    assert 13e6 <= int(us) <= 20e6, us


async def test_an_estimate_knows_the_weights_of_keys(limiter: Limiter) -> None:
    """Mutant: as many of each key go first, whatever their weights."""
    await _keep_coming(limiter, "b=3")
    _, us, *_ = (await limiter.admit("ann.99", "calls=1!", key="a", wait_ms=1000)).split()
    assert 60e6 <= int(us) <= 80e6, "three of the other for each of its own"


async def test_an_estimate_counts_those_of_its_key_at_the_limit_of_that(limiter: Limiter) -> None:
    """Mutant: only what the key has taken counts."""
    await limiter.create("calls rate 1000 1000", "calls rate 1 1")
    assert await limiter.admit("ann.1", "calls=1", key="t") == "held"
    for number in (2, 3, 4):
        assert (await limiter.admit(f"ann.{number}", "calls=1", key="t", wait_ms=9000)).startswith("wait ")
    assert await limiter.admit("bob.1", "calls=1!", key="t", wait_ms=900) == "hopeless 4000000 calls key"
    assert await limiter.admit("bob.1", "calls=1!", key="u", wait_ms=900) == "held"


async def test_how_fast_what_is_held_comes_back_is_not_kept_while_nobody_waits(limiter: Limiter) -> None:
    """Mutant: each call writes it."""
    await limiter.create("slots at_once 1")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    assert await limiter.field("pace") is None
    assert (await limiter.admit("bob.1", "slots=1", wait_ms=9000)).startswith("wait ")
    for hold in ("ann.1", "bob.1"):
        await limiter.wait(100)
        await limiter.release(hold)
    kept = await limiter.field("pace")
    assert kept is not None
    await limiter.wait(100)
    assert await limiter.admit("ann.2", "slots=1") == "held"
    assert await limiter.field("pace") == kept


async def test_the_earliest_deadline_goes_first_within_a_band(limiter: Limiter) -> None:
    await limiter.create("slots at_once 2", order="deadline")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    assert await limiter.admit("ann.2", "slots=1", key="b", ttl=60_000) == "held"
    waits = (("a", "", 90_000), ("a", "", 20_000), ("b", "", 50_000), ("b", "~0", 99_000), ("b", "", 10_000))
    for number, (key, band, wait_ms) in enumerate(waits, 1):
        answer = await limiter.admit(f"bob.{number}", f"slots=1{band}", key=key, wait_ms=wait_ms)
        assert answer.startswith("wait ")
    order, before = [], "ann.1"
    for _ in waits:
        await limiter.release(before)
        before = next(e.split(":")[1] for _, e in reversed(await limiter.events()) if e.startswith("held:"))
        order.append(before)
    assert order == ["bob.4", "bob.5", "bob.2", "bob.3", "bob.1"]


async def test_whoever_was_the_first_to_wait_is_passed_by_earlier_deadlines(limiter: Limiter) -> None:
    """Lines are numbered as somebody waits for the first time, and again where limits change."""
    await limiter.create("slots at_once 1", order="deadline")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    waits = {"bob.1": 50_000, "cid.1": 20_000, "dan.1": 90_000, "eve.1": 70_000}
    for number, (hold, wait_ms) in enumerate(waits.items()):
        if number == 3:
            await limiter.change(limits="more at_once 9;slots at_once 1")
        assert (await limiter.admit(hold, "slots=1", key=hold[:3], wait_ms=wait_ms)).startswith("wait ")
    for before in ("ann.1", *sorted(waits, key=waits.__getitem__)):
        await limiter.release(before)
    order = [text.split(":")[1] for _, text in await limiter.events() if text.startswith("held:")]
    assert order == ["ann.1", "cid.1", "bob.1", "eve.1", "dan.1"]


async def test_who_waited_by_deadline_goes_before_those_who_come_once_that_is_switched_off(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1", order="deadline")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    for number, wait_ms in ((1, 90_000), (2, 5_000)):
        assert (await limiter.admit(f"bob.{number}", "slots=1", wait_ms=wait_ms)).startswith("wait ")
        assert (await limiter.admit(f"cid.{number}", "slots=1", key=f"c{number}", wait_ms=wait_ms)).startswith("wait ")
    await limiter.change(order="")
    for number in (1, 2):
        assert (await limiter.admit(f"dan.{number}", "slots=1", wait_ms=90_000)).startswith("wait ")
        assert (await limiter.admit(f"eve.{number}", "slots=1", key=f"e{number}", wait_ms=90_000)).startswith("wait ")
    before = "ann.1"
    for _ in range(8):
        await limiter.release(before)
        before = next(e.split(":")[1] for _, e in reversed(await limiter.events()) if e.startswith("held:"))
    order = [text.split(":")[1] for _, text in await limiter.events() if text.startswith("held:")]
    assert order == ["ann.1", "bob.2", "cid.2", "bob.1", "cid.1", "dan.1", "eve.1", "dan.2", "eve.2"]


async def test_the_first_that_leaves_takes_its_deadline_along(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1", order="deadline")
    assert await limiter.admit("ann.1", "slots=1") == "held"
    for number, (key, wait_ms) in enumerate((("a", 10_000), ("a", 90_000), ("b", 50_000)), 1):
        assert (await limiter.admit(f"bob.{number}", "slots=1", key=key, wait_ms=wait_ms)).startswith("wait ")
    await limiter.release("bob.1")
    await limiter.release("ann.1")
    assert await limiter.admit("bob.3", "slots=1", key="b", wait_ms=50_000) == "held"


async def test_shares_that_are_none_are_refused(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1")
    for text in ("6=1001", "6", "6=-1"):
        for field in ("reserve", "shed"):
            with pytest.raises(InvalidValue):
                await limiter.change(**{field: text})
