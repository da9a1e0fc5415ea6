"""Several limits in one decision: all or nothing, once, given back when its holder is gone, fair between keys."""

import itertools
import random
from collections import Counter

import pytest

from headgate.redis.stores.limiters import NO_KEY, HoldCall, Op
from tests.lua.limiters.trial import TTL_MS, Limiter
from tests.lua.promises.test_p8_rates import most_beyond
from tests.support.extent import share_of

LLM = "requests rate 10 5;tokens rate 1000 4000;in_flight at_once 3"
LEAST_POLL_MS, AT_A_TIME = 50, 32
"""When whoever is first in line asks again at the soonest, and how many leases one call looks at."""


async def test_what_one_limit_refuses_takes_nothing_of_the_others(limiter: Limiter) -> None:
    """Mutant: the limits before the one that binds are charged."""
    await limiter.create(LLM)
    assert await limiter.admit("ann.1", "requests=1,tokens=3500,in_flight=1") == "held"
    assert await limiter.admit("ann.2", "requests=1,tokens=1000,in_flight=1") == "late 500000 tokens all"
    assert await limiter.taken("requests") == 1
    assert await limiter.taken("in_flight") == 1
    await limiter.wait(500)
    assert await limiter.admit("ann.2", "requests=1,tokens=1000,in_flight=1") == "held"


async def test_the_limit_that_binds_last_is_named_and_where_nobody_knows_no_time_is_made_up(limiter: Limiter) -> None:
    await limiter.create(LLM, "tokens rate 100 500")
    assert await limiter.admit("ann.1", "requests=5,tokens=500,in_flight=3", key="t1") == "held"
    assert await limiter.admit("ann.2", "requests=1,tokens=1", key="t1") == "late 100000 requests all"
    assert await limiter.admit("ann.2", "requests=1,tokens=50", key="t1") == "late 500000 tokens key"
    assert await limiter.admit("ann.2", "requests=1,in_flight=1", key="t2") == "late - in_flight all"


@pytest.mark.parametrize(
    ("amounts", "key", "answer"),
    [
        ("tokens=4001", "*", "never 4000 tokens all"),
        ("tokens=501", "t1", "never 500 tokens key"),
        ("token=1", "t1", "limit token"),
        ("tokens=0", "t1", "limit -"),
        ("-", "t1", "limit -"),
        ("tokens=" + "9" * 40, "t1", "never 4000 tokens all"),
    ],
)
async def test_what_can_never_be_is_said_at_once(limiter: Limiter, amounts: str, key: str, answer: str) -> None:
    await limiter.create(LLM, "tokens rate 100 500")
    assert await limiter.admit("ann.1", amounts, key=key, wait_ms=10_000) == answer
    assert await limiter.left("holds") == 0


async def test_a_name_that_comes_twice_counts_once(limiter: Limiter) -> None:
    """Mutant: each of them is judged by itself, and both are taken."""
    await limiter.create(LLM)
    assert await limiter.admit("ann.1", "in_flight=2,in_flight=3") == "held"
    assert await limiter.taken("in_flight") == 3


async def test_a_repeated_call_gets_the_same_answers_and_an_older_one_none(limiter: Limiter) -> None:
    """Mutant: the reply is not kept under its number."""
    await limiter.create(LLM)
    admits = [HoldCall("admit", f"ann.{n}", amounts="in_flight=2", ttl_ms=TTL_MS) for n in (1, 2)]
    first = await limiter.call("ann", *admits, seq=1)
    assert first.answers == ("held", "late - in_flight all")
    release = [HoldCall("release", "ann.1")]
    assert (await limiter.call("ann", *release, seq=2)).answers == ("ok",)
    assert (await limiter.call("ann", *release, seq=2)).answers == ("ok",)
    assert (await limiter.call("ann", *admits, seq=1)).code == "STALE"
    assert await limiter.taken("in_flight") == 0


async def test_less_comes_back_once_and_more_is_owed(limiter: Limiter) -> None:
    """Mutant: a settlement that is repeated under another number counts again."""
    await limiter.create("tokens rate 1000 4000")
    assert await limiter.admit("ann.1", "tokens=3000") == "held"
    assert await limiter.one("settle", "ann.1", "tokens=1000") == "ok"
    assert await limiter.one("settle", "ann.1", "tokens=10") == "again"
    assert await limiter.taken("tokens") == 1000
    assert await limiter.admit("ann.2", "tokens=3000") == "held"
    assert await limiter.one("settle", "ann.2", "tokens=5000") == "ok"
    assert await limiter.taken("tokens") == 6000
    assert await limiter.admit("ann.3", "tokens=1") == "late 2001000 tokens all"


async def test_what_was_not_reserved_counts_for_nothing_and_that_is_said(limiter: Limiter) -> None:
    """Mutant: it is said to count, and whoever mistook a name never hears of it."""
    await limiter.create("tokens rate 1000 4000;slots at_once 4")
    assert await limiter.admit("ann.1", "slots=2") == "held"
    assert await limiter.one("settle", "ann.1", "tokens=500") == "again"
    assert (await limiter.taken("tokens"), await limiter.taken("slots")) == (0, 2)
    assert await limiter.one("settle", "ann.1", "slots=1") == "ok"
    assert await limiter.taken("slots") == 1


async def test_debts_on_debts_stay_exact(limiter: Limiter) -> None:
    """Mutant: what is owed grows beyond what Lua counts exactly."""
    await limiter.create("tokens rate 0.001 100")
    for number in range(1, 41):
        assert await limiter.admit(f"ann.{number + 1}", "tokens=1") == "held"
    for number in range(1, 41):
        assert await limiter.one("settle", f"ann.{number + 1}", f"tokens={2**52}") == "ok"
    tat = await limiter.server.command(limiter.address.shared[0], "HGET", limiter.address.key, "levels")
    assert tat == f"tokens={2**53 - 1}".encode()
    assert (await limiter.admit("bob.1", "tokens=1")).startswith("late ")


async def test_a_settlement_never_gives_more_than_a_burst(limiter: Limiter) -> None:
    """Mutant: the moment goes back before now."""
    await limiter.create("tokens rate 1000 4000")
    assert await limiter.admit("ann.1", "tokens=4000") == "held"
    await limiter.wait(3500)
    assert await limiter.one("settle", "ann.1", "tokens=0") == "ok"
    assert await limiter.taken("tokens") == 0
    assert await limiter.admit("ann.2", "tokens=4000") == "held"
    assert await limiter.admit("ann.3", "tokens=1") == "late 1000 tokens all"


async def test_part_of_what_is_held_at_once_comes_back_early(limiter: Limiter) -> None:
    """Mutant: what is held at once may grow by a settlement."""
    await limiter.create("bytes at_once 100")
    assert await limiter.admit("ann.1", "bytes=100") == "held"
    assert await limiter.one("settle", "ann.1", "bytes=40") == "ok"
    assert await limiter.taken("bytes") == 40
    assert await limiter.one("settle", "ann.1", "bytes=90") == "ok"
    assert await limiter.taken("bytes") == 40
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.taken("bytes") == 0


async def test_a_hold_ends_with_its_lease_and_not_before(limiter: Limiter) -> None:
    """Mutants: one strike is enough; renewing does nothing."""
    await limiter.create(LLM)
    assert await limiter.admit("ann.1", "in_flight=3", key="t1") == "held"
    for _ in range(8):
        await limiter.sweep(TTL_MS // 4)
        assert await limiter.one("renew", "ann.1") == "ok"
    await limiter.wait(3_600_000)  # the clock jumps past every lease at once: nobody is taken for dead at one look
    assert await limiter.admit("bob.1", "in_flight=1") == "late - in_flight all"
    assert await limiter.one("renew", "ann.1", ttl=TTL_MS) == "ok"
    await limiter.sweep(TTL_MS * 8 // 10)
    assert await limiter.taken("in_flight") == 3, "two strikes since it was renewed, and not one more"
    await limiter.sweep(2000)
    assert await limiter.one("renew", "ann.1") == "gone"
    assert await limiter.release("ann.1") == "gone"
    assert await limiter.admit("bob.1", "in_flight=3") == "held"
    assert await limiter.left("keyed") == 1, "bob's; ann's key is nobody's any more"


async def test_a_hold_is_carried_elsewhere_by_its_id(limiter: Limiter) -> None:
    await limiter.create(LLM)
    assert await limiter.admit("ann.1", "in_flight=3,tokens=100") == "held"
    answers = await limiter.call(
        "bob", HoldCall("renew", "ann.1", ttl_ms=TTL_MS), HoldCall("settle", "ann.1", amounts="tokens=1"),
        HoldCall("release", "ann.1"),
    )  # fmt: skip
    assert answers.answers == ("ok", "ok", "ok")
    assert await limiter.release("ann.1") == "gone"
    assert await limiter.taken("in_flight") == 0


async def test_no_window_admits_more_than_its_rate_and_burst_for_all_and_for_each_key(limiter: Limiter) -> None:
    """Mutant: the limits of the key are not looked at."""
    await limiter.create("tokens rate 100 50", "tokens rate 30 20")
    chance = random.Random(3)
    admitted: dict[str, list[tuple[int, int]]] = {"all": [], "t1": [], "t2": [], "t3": []}
    for number in range(1, 200):
        key, tokens = chance.choice(("t1", "t2", "t3")), chance.randint(1, 20)
        if await limiter.admit(f"ann.{number + 1}", f"tokens={tokens}", key=key) == "held":
            for name in ("all", key):
                admitted[name].append((limiter.now * 1000, tokens))
        await limiter.wait(chance.choice((0, 1, 10, 50, 300)))
    assert len(admitted["all"]) > 40
    assert most_beyond(admitted["all"], 100, 50) <= 0
    for key in ("t1", "t2", "t3"):
        assert most_beyond(admitted[key], 30, 20) <= 0


async def test_a_clock_that_is_set_back_locks_nobody_out(limiter: Limiter) -> None:
    """Mutant: what the clock lost is not added."""
    await limiter.create("tokens rate 10 10", "tokens rate 10 10")
    assert await limiter.admit("ann.1", "tokens=10", key="t1") == "held"
    await limiter.wait(-3_600_000)
    assert await limiter.admit("ann.2", "tokens=1", key="t1") == "late 100000 tokens all"
    await limiter.wait(500)
    assert await limiter.admit("ann.2", "tokens=5", key="t1") == "held"


async def test_a_quota_begins_anew_at_its_own_midnight(limiter: Limiter) -> None:
    """Mutants: UTC's midnight; an offset of another season."""
    limiter.now = 1_792_879_200_000 - 60_000  # 2026-10-24 21:59 UTC, 23:59 in Berlin, the night before winter time
    await limiter.create("mails quota 10 day 0", zone="0 7200 1792890000 3600")
    assert await limiter.admit("ann.1", "mails=10") == "held"
    assert await limiter.admit("ann.2", "mails=1") == "late 60000000 mails all"
    await limiter.wait(60_000)
    assert await limiter.admit("ann.2", "mails=10") == "held"
    assert await limiter.admit("ann.3", "mails=1") == f"late {25 * 3600 * 1_000_000} mails all"
    assert await limiter.one("settle", "ann.1", "mails=0") == "ok", "of yesterday: today has no more for it"
    assert await limiter.taken("mails") == 10
    assert await limiter.one("settle", "ann.2", "mails=4") == "ok"
    assert await limiter.taken("mails") == 4


async def test_who_stands_behind_others_hears_when_it_could_be_at_the_soonest(limiter: Limiter) -> None:
    """Mutants: it hears that nobody knows; or it is to ask when it could be, were it alone, each time."""
    limiter.now = 1_792_879_200_000 - 60_000
    await limiter.create("mails quota 10 day 0;tokens rate 10 10", zone="0 7200 1792890000 3600")
    assert await limiter.admit("ann.1", "mails=10,tokens=10") == "held"
    for hold in ("ann.2", "bob.1", "cid.1"):
        assert await limiter.admit(hold, "mails=1", wait_ms=90_000) == "wait 60000000 mails all"
    assert await limiter.admit("dan.1", "tokens=5", wait_ms=90_000) == "wait 500000 tokens all"
    assert await limiter.admit("eve.1", "tokens=5", wait_ms=90_000) == "wait 1000000 tokens all"


@pytest.mark.parametrize(
    ("window", "minutes", "hours"), [("hour", 0, 1), ("week", 480, 0), ("month", 0, 0), ("day", 90, 0)]
)
async def test_windows_of_a_calendar(limiter: Limiter, window: str, minutes: int, hours: int) -> None:
    """Against Python's own calendar, over three years of moments, the leap day included."""
    from datetime import UTC, datetime, timedelta

    assert hours in (0, 1)
    await limiter.create(f"mails quota 10 {window} {minutes}")
    chance = random.Random(window)
    moments = sorted(chance.randrange(1_798_761_600, 1_893_456_000) for _ in range(25))
    for number, moment in enumerate([*moments, 1_835_395_200 + 86_400 * 59 - 1], 1):
        limiter.now = moment * 1000
        await limiter.wait(0)
        row = (await limiter.look()).limits[0].split()
        end = datetime.fromtimestamp(limiter.now / 1000 + int(row[4]) / 1e6, UTC) - timedelta(minutes=minutes)
        now = datetime.fromtimestamp(moment, UTC) - timedelta(minutes=minutes)
        day = now.replace(hour=0, minute=0, second=0)
        assert (
            end
            == {
                "hour": now.replace(minute=0, second=0) + timedelta(hours=1),
                "day": day + timedelta(days=1),
                "week": day + timedelta(days=7 - day.weekday()),
                "month": (day.replace(day=1) + timedelta(days=32)).replace(day=1),
            }[window]
        ), number


async def test_whoever_waits_is_served_when_something_comes_back(limiter: Limiter) -> None:
    """Mutants: nobody is served by a release; whoever comes later goes first."""
    await limiter.create("in_flight at_once 2")
    assert await limiter.admit("ann.1", "in_flight=2") == "held"
    assert await limiter.admit("bob.1", "in_flight=1", wait_ms=9000) == "wait 1000000 in_flight all"
    assert await limiter.admit("cid.1", "in_flight=1") == "late - in_flight all"
    assert await limiter.one("settle", "ann.1", "in_flight=1") == "ok"
    assert await limiter.admit("bob.1", "in_flight=1", wait_ms=9000) == "held"
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.admit("cid.1", "in_flight=1") == "held"
    assert await limiter.left("waiters") == await limiter.left("line") == await limiter.left("shares") == 0


async def test_nobody_overtakes_whoever_waits(limiter: Limiter) -> None:
    """Mutant: the line is not looked at before somebody is let in."""
    await limiter.create("in_flight at_once 3;tokens rate 10 10")
    assert await limiter.admit("ann.1", "in_flight=1") == "held"
    assert (await limiter.admit("bob.1", "in_flight=3", wait_ms=9000)).startswith("wait")
    assert await limiter.admit("cid.1", "in_flight=1") == "late - line all"
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.admit("bob.1", "in_flight=3", wait_ms=9000) == "held"


async def test_a_key_that_waits_for_its_own_limit_keeps_nobody_waiting(limiter: Limiter) -> None:
    """Mutants: it stays in front; nobody looks at it when its time comes, or something is released."""
    await limiter.create("in_flight at_once 10;tokens rate 1000 1000", "in_flight at_once 1;tokens rate 10 10")
    assert await limiter.admit("ann.1", "in_flight=1", key="t1") == "held"
    assert await limiter.admit("ann.2", "in_flight=1", key="t1", wait_ms=9000) == "wait 1000000 in_flight key"
    assert await limiter.admit("bob.1", "tokens=10", key="t2") == "held"
    assert await limiter.admit("bob.2", "tokens=5", key="t2", wait_ms=9000) == "wait 500000 tokens key"
    assert await limiter.admit("cid.1", "in_flight=1", key="t3") == "held"
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.admit("ann.2", "in_flight=1", key="t1", wait_ms=9000) == "held"
    await limiter.wait(501)
    assert await limiter.admit("bob.2", "tokens=5", key="t2", wait_ms=9000) == "held"


async def test_within_a_key_they_go_in_turn(limiter: Limiter) -> None:
    """Mutant: whoever came last goes first."""
    await limiter.create("in_flight at_once 1")
    assert await limiter.admit("ann.1", "in_flight=1", key="t1") == "held"
    for session in ("bob", "cid", "dan"):
        assert (await limiter.admit(f"{session}.1", "in_flight=1", key="t1", wait_ms=9000)).startswith("wait")
    for last, session in (("ann", "bob"), ("bob", "cid"), ("cid", "dan")):
        assert await limiter.release(f"{last}.1") == "ok"
        assert await limiter.admit(f"{session}.1", "in_flight=1", key="t1", wait_ms=9000) == "held"


async def serve(limiter: Limiter, waiters: dict[str, int], weights: dict[str, int], rounds: int) -> Counter[str]:
    """Let all wait at two slots; whoever is served releases, and waits again. Return how often each key was served."""
    await limiter.create("in_flight at_once 2", key_weights=";".join(f"{k}={w}" for k, w in weights.items()))
    ids = {f"{key}x{number}": key for key, count in waiters.items() for number in range(count)}
    turn = dict.fromkeys(ids, 1)
    served: Counter[str] = Counter()
    held: list[str] = []
    for _ in range(rounds):
        for session, key in ids.items():
            answer = await limiter.admit(f"{session}.{turn[session]}", "in_flight=1", key=key, wait_ms=9000)
            if answer == "held" and session not in held:
                held.append(session)
                served[key] += 1
        for session in held:
            await limiter.release(f"{session}.{turn[session]}")
            turn[session] += 1
        held.clear()
        await limiter.wait(1)
    return served


async def test_keys_get_alike_however_many_wait_for_them(limiter: Limiter) -> None:
    """Mutant: whoever came first is served first, whatever its key."""
    served = await serve(limiter, {"gold": 12, "lead": 2}, {}, 30)
    assert abs(served["gold"] - served["lead"]) <= 3, served


@pytest.mark.one_server
@pytest.mark.parametrize("limit", ["slots at_once 4", "slots rate 1000 4"])
@pytest.mark.parametrize("sessions", share_of([("ann", "bob"), ("ann", "ann")], 2))
async def test_fifty_waiters_of_one_key_get_as_much_as_four_of_another(
    limiter: Limiter, limit: str, sessions: tuple[str, str]
) -> None:
    """So it is in one session, and in two. Mutant: whoever came first is served first, whatever its key."""
    await limiter.create(limit)
    numbers = itertools.count(1)
    waiting = {key: [f"{session}.{next(numbers)}" for _ in range(count)] for key, session, count in zip(
        ("busy", "calm"), sessions, (50, 4), strict=True)}  # fmt: skip
    served: Counter[str] = Counter()
    for _ in range(100):
        for key, session in zip(waiting, sessions, strict=True):
            ids = waiting[key]
            answers = await limiter.call(
                session, *(HoldCall("admit", hold, key, "slots=1", 60_000, 60_000) for hold in ids)
            )
            held = [hold for hold, answer in zip(ids, answers.answers, strict=True) if answer == "held"]
            served[key] += len(held)
            waiting[key] = [hold for hold in ids if hold not in held] + [f"{session}.{next(numbers)}" for _ in held]
            again = [HoldCall("admit", hold, key, "slots=1", 60_000, 60_000) for hold in waiting[key][-len(held) :]]
            await limiter.call(session, *(again if held else ()), *(HoldCall("release", hold) for hold in held))
        await limiter.wait(4)
    share = served["calm"] / served.total()
    assert served.total() >= 380
    assert abs(share - 0.5) <= 0.03, served


async def test_keys_get_what_their_weights_say_of_a_rate(limiter: Limiter) -> None:
    """Mutant: weights do not count."""
    await limiter.create("tokens rate 10 1", key_weights="gold*=3")
    served: Counter[str] = Counter()
    turn = {"gold-1": 1, "lead": 1}
    for _ in range(80):
        for key in sorted(turn):
            while await limiter.admit(f"{key}.{turn[key]}", "tokens=1", key=key, wait_ms=9000) == "held":
                served[key] += 1
                turn[key] += 1
        await limiter.wait(100)
    assert sum(served.values()) >= 78
    assert abs(served["gold-1"] - 3 * served["lead"]) <= 4, served


async def test_a_hold_off_ends_by_redis_clock_and_begins_slowly(limiter: Limiter) -> None:
    """Mutants: what was saved up meanwhile is let go at once; everything may be held at once again at once."""
    await limiter.create("tokens rate 10 10;in_flight at_once 10")
    assert await limiter.store.hold_off(limiter.address, "ann", key="*", ms=5000, reason="429") == ("OK", 5000)
    assert await limiter.admit("ann.1", "tokens=1") == "late 5100000 tokens all"
    assert await limiter.admit("ann.1", "in_flight=1") == "late 5000000 hold_off all"
    await limiter.wait(5000)
    assert await limiter.admit("ann.1", "tokens=1") == "late 100000 tokens all"
    assert await limiter.admit("ann.1", "in_flight=1") == "held"
    assert await limiter.admit("ann.2", "in_flight=1") == "late - in_flight all"
    await limiter.wait(2500)
    assert await limiter.admit("ann.2", "in_flight=4") == "held"
    assert await limiter.admit("ann.3", "in_flight=1") == "late - in_flight all"
    await limiter.wait(2500)
    assert await limiter.admit("ann.3", "in_flight=5") == "held"
    assert (await limiter.look()).reason == "429"


async def test_what_is_stopped_by_hand_admits_nothing(limiter: Limiter) -> None:
    """Mutant: only gates and queues are stopped."""
    await limiter.create("tokens rate 10 10;in_flight at_once 10")
    await limiter.change(stopped="for a while")
    assert await limiter.admit("ann.1", "tokens=1") == "late - stopped all"
    assert await limiter.admit("ann.1", "in_flight=11") == "never 10 in_flight all"
    assert (await limiter.one("admit", "ann.2", "in_flight=1", wait_ms=5000)).startswith("wait ")
    await limiter.change(stopped="")
    assert await limiter.one("admit", "ann.2", "in_flight=1", wait_ms=5000) == "held"


async def test_a_hold_off_that_is_ended_leaves_the_rate_without_a_burst(limiter: Limiter) -> None:
    """Mutant: what it kept back is kept back until it would have ended."""
    await limiter.create("tokens rate 10 10;in_flight at_once 10")
    assert await limiter.store.hold_off(limiter.address, "ann", key="*", ms=5000, reason="429") == ("OK", 5000)
    assert await limiter.store.hold_off(limiter.address, "ann", key="*", ms=0, reason="") == ("OK", 0)
    assert await limiter.admit("ann.1", "tokens=1") == "late 100000 tokens all"
    assert await limiter.admit("ann.1", "in_flight=10") == "held"


async def test_a_hold_off_of_one_key_is_no_other_ones(limiter: Limiter) -> None:
    await limiter.create("tokens rate 10 10", hold_off_ms="2000")
    assert await limiter.store.hold_off(limiter.address, "ann", key="t1", ms=9000, reason="") == ("OK", 2000)
    assert await limiter.admit("ann.1", "tokens=1", key="t1") == "late 2000000 hold_off key"
    assert await limiter.admit("ann.2", "tokens=1", key="t2") == "held"
    assert await limiter.store.hold_off(limiter.address, "ann", key="t1", ms=0, reason="") == ("OK", 0)
    assert await limiter.admit("ann.1", "tokens=1", key="t1") == "held"


async def test_keys_leave_nothing_behind(limiter: Limiter) -> None:
    """Mutant: records that are whole again are not swept."""
    await limiter.create("tokens rate 1000000 1000000", "tokens rate 1000 100")
    steps: tuple[tuple[Op, str], ...] = (("admit", "tokens=100"), ("release", "-"))
    for batch in range(20):
        calls = [
            HoldCall(op, f"ann.{batch * 64 + n + 1}", f"k{batch * 64 + n}", amounts, TTL_MS)
            for n in range(64)
            for op, amounts in steps
        ]
        await limiter.call("ann", *calls)
    assert await limiter.left("keyed") > 1000
    await limiter.wait(1000)
    for _ in range(200):
        await limiter.store.sweep(limiter.address)
    for _ in range(20 * 64):
        if await limiter.left("keyed") == 0:
            break
        await limiter.store.sweep(limiter.address)
    assert await limiter.left("keyed") == await limiter.left("holds") == await limiter.left("leases") == 0


async def test_a_key_leaves_nothing_behind_once_it_is_whole_at_another_rate(limiter: Limiter) -> None:
    """Mutant: its record stays until it would have been whole at the rate before."""
    await limiter.create("tokens rate 1000 1000000", "tokens rate 1 4000")
    for number in range(1, 65):
        assert await limiter.admit(f"ann.{number}", "tokens=4000", key=f"k{number}") == "held"
        assert await limiter.release(f"ann.{number}") == "ok"
    await limiter.change(key_limits="tokens rate 1000 4000")
    await limiter.wait(5000)
    for _ in range(100):
        await limiter.store.sweep(limiter.address)
    assert await limiter.left("keyed") == 0


async def test_what_a_key_owes_it_owes_still_at_another_rate(limiter: Limiter) -> None:
    """Mutant: records of keys are not converted: they owe for as long as before."""
    await limiter.create("tokens rate 1000 1000", "tokens rate 10 100")
    assert await limiter.admit("ann.1", "tokens=100", key="t1") == "held"
    await limiter.change(key_limits="tokens rate 100 100")
    assert await limiter.admit("ann.2", "tokens=10", key="t1") == "late 100000 tokens key"
    await limiter.wait(100)
    assert await limiter.admit("ann.2", "tokens=10", key="t1") == "held"
    assert await limiter.admit("ann.3", "tokens=10", key="t1") == "late 100000 tokens key"


async def test_too_many_keys_are_refused_and_known_ones_served(limiter: Limiter) -> None:
    """Mutant: nobody counts them."""
    await limiter.create("in_flight at_once 10", max_keys="2")
    for key in ("t1", "t2"):
        assert await limiter.admit(f"{key}.1", "in_flight=1", key=key) == "held"
    assert await limiter.admit("t3.1", "in_flight=1", key="t3") == "keys"
    assert await limiter.admit("t1.2", "in_flight=1", key="t1") == "held"


async def test_keys_that_the_policy_does_not_name_are_refused_where_it_says_so(limiter: Limiter) -> None:
    """Mutant: nobody looks."""
    await limiter.create("in_flight at_once 10", key_weights="gold-*=4;lead=1", unknown_keys="refuse")
    for key, answer in (("gold-7", "held"), ("lead", "held"), ("leader", "key"), ("*", "held")):
        assert await limiter.admit(f"{'x' if key == '*' else key}.1", "in_flight=1", key=key) == answer


async def test_a_waiter_that_was_not_heard_of_loses_its_place(limiter: Limiter) -> None:
    """Mutant: it keeps it for as long as a hold."""
    await limiter.create("in_flight at_once 1")
    assert await limiter.admit("ann.1", "in_flight=1") == "held"
    assert (await limiter.admit("bob.1", "in_flight=1", wait_ms=9000)).startswith("wait")
    await limiter.wait(1500)
    assert (await limiter.admit("cid.1", "in_flight=1", wait_ms=9000)).startswith("wait")
    await limiter.wait(1600)
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.admit("cid.1", "in_flight=1", wait_ms=9000) == "held"


@pytest.mark.parametrize("key", [NO_KEY, "t1"])
@pytest.mark.parametrize("number", [1, 100])
@pytest.mark.parametrize("ttl", [2000, 7000, 10_000])
async def test_the_first_in_line_is_told_when_leases_are_to_be_looked_at(
    limiter: Limiter, ttl: int, number: int, key: str
) -> None:
    """Also where they are more than one call looks at. Mutants: it asks after a second; again and again."""
    await limiter.create("in_flight at_once 100", "in_flight at_once 100")
    if key != NO_KEY:
        await limiter.change(limits="in_flight at_once 1000")
    holds = [HoldCall("admit", f"ann.{n}", key, f"in_flight={100 // number}", ttl) for n in range(1, number + 1)]
    assert {*(await limiter.call("ann", *holds)).answers} == {"held"}
    await limiter.wait(300)
    since, answer, asked, calls = limiter.now - 300, "wait 0", 0, -(-number // AT_A_TIME)
    while answer != "held":
        asked += 1
        await limiter.wait(-(-int(answer.split()[1]) // 1000))
        answer = await limiter.admit("bob.1", "in_flight=100", key=key, ttl=ttl, wait_ms=60_000)
    assert 0.9 * ttl <= limiter.now - since <= 0.9 * ttl + 2 * LEAST_POLL_MS * calls
    assert asked <= ttl / 1000 + 4 * calls


@pytest.mark.parametrize("swept", [True, False])
async def test_a_crowd_that_dies_in_line_hides_no_lease_that_is_over(limiter: Limiter, *, swept: bool) -> None:
    """It took minutes until the holds of who died with it were looked at, behind all of its waiters.

    Mutants: whoever waits asks after a second; a sweep ends with its first call.
    """
    await limiter.create("in_flight at_once 1")
    assert await limiter.admit("ann.1", "in_flight=1", ttl=10_000) == "held"
    for first in range(2, 800, 100):
        crowd = [
            HoldCall("admit", f"ann.{n}", NO_KEY, "in_flight=1", 10_000, 60_000) for n in range(first, first + 100)
        ]
        assert all(one.startswith("wait") for one in (await limiter.call("ann", *crowd)).answers)
    since = limiter.now
    if swept:
        await limiter.sweep(12_000, every=4000)
        assert await limiter.taken("in_flight") == 0
        assert (await limiter.look()).waiting == 0
        return
    await limiter.wait(4000)
    answer = await limiter.admit("bob.1", "in_flight=1", ttl=10_000, wait_ms=60_000)
    while answer != "held":
        await limiter.wait(-(-int(answer.split()[1]) // 1000))
        answer = await limiter.admit("bob.1", "in_flight=1", ttl=10_000, wait_ms=60_000)
    assert limiter.now - since <= 10_500


async def test_whoever_dies_in_line_keeps_nothing_for_longer_than_its_lease_and_a_second(limiter: Limiter) -> None:
    """Mutants: its lease begins when it is served; it keeps its place for as long as those with longer leases."""
    await limiter.create("in_flight at_once 1")
    assert await limiter.admit("ann.1", "in_flight=1", ttl=60_000) == "held"
    assert (await limiter.admit("bob.1", "in_flight=1", wait_ms=60_000)).startswith("wait")
    await limiter.wait(2500)
    assert await limiter.release("ann.1") == "ok"
    assert await limiter.taken("in_flight") == 1, "bob's, who died meanwhile"
    await limiter.sweep(TTL_MS + 1000 - 2500)
    assert await limiter.taken("in_flight") == 0
    assert await limiter.admit("ann.2", "in_flight=1", ttl=60_000) == "held"
    assert (await limiter.admit("bob.2", "in_flight=1", wait_ms=60_000, ttl=1000)).startswith("wait")
    await limiter.wait(1400)
    assert await limiter.release("ann.2") == "ok"
    assert await limiter.taken("in_flight") == 0, "bob's place went to nobody"


async def test_whoever_dies_in_line_and_is_served_late_has_the_first_strike_with_it(limiter: Limiter) -> None:
    """Mutant: its lease begins without one."""
    await limiter.create("in_flight at_once 1")
    assert await limiter.admit("ann.1", "in_flight=1") == "held"
    assert (await limiter.admit("bob.1", "in_flight=1", ttl=2000, wait_ms=60_000)).startswith("wait")
    await limiter.wait(1800)
    assert await limiter.release("ann.1") == "ok"
    await limiter.wait(599)
    assert await limiter.admit("cid.1", "in_flight=1") == "late - in_flight all"
    await limiter.wait(1)
    assert await limiter.admit("cid.1", "in_flight=1") == "held", "1.8 s and a strike of 0.3 TTL after it was heard of"


async def test_after_a_loss_holders_claim_and_nobody_else_is_let_in_before(limiter: Limiter) -> None:
    """Mutants: a claim is refused; somebody is let in meanwhile; a claim is taken at any time; the burst is whole."""
    await limiter.create(LLM)
    assert await limiter.admit("ann.1", "in_flight=2,tokens=4000") == "held"
    known = limiter.epoch
    await limiter.server.forget(limiter.address, *limiter.sequence)
    limiter.now += 1000
    await limiter.create(LLM, mode="recover")
    limiter.sequence.clear()
    assert await limiter.admit("bob.1", "in_flight=1") == "late - in_flight all"
    assert await limiter.admit("bob.2", "tokens=1") == "late 1000 tokens all"
    limiter.epoch = known
    assert await limiter.one("claim", "ann.1", "in_flight=2,tokens=4000") == "ok"
    assert await limiter.taken("in_flight") == 2
    await limiter.wait(TTL_MS)
    assert await limiter.one("renew", "ann.1") == "ok"
    assert await limiter.admit("bob.3", "in_flight=1") == "held"
    limiter.epoch = known
    assert await limiter.one("claim", "ann.2", "in_flight=1") == "gone"


@pytest.mark.parametrize(("leases", "learns"), [((5_000, 4_000), 5_000), ((1_000,), 3_000), ((), 10_000)])
async def test_after_a_loss_a_limiter_learns_as_long_as_the_longest_lease_that_is_known(
    limiter: Limiter, leases: tuple[int, ...], learns: int
) -> None:
    """Mutants: it learns for 10 s whatever is held; for less than holders take to claim; for no time at all."""
    await limiter.create(LLM)
    assert await limiter.admit("gone.1", "in_flight=1", ttl=20_000 if leases else 10_000) == "held"
    assert await limiter.release("gone.1") == "ok"
    for number, ttl in enumerate(leases):
        assert await limiter.admit(f"ann.{number + 1}", "in_flight=1", ttl=ttl) == "held"
    limiter.server.run = b"another run"
    assert await limiter.admit("bob.1", "in_flight=1") == "late - in_flight all"
    await limiter.wait(learns - 100)
    assert await limiter.admit("bob.2", "in_flight=1") == "late - in_flight all"
    await limiter.wait(200)
    assert await limiter.admit("bob.3", "in_flight=1") == "held"


@pytest.mark.parametrize("lost", [False, True])
async def test_a_lease_of_an_hour_has_others_wait_for_a_minute_after_a_loss(limiter: Limiter, *, lost: bool) -> None:
    """Mutants: they wait for as long as the longest lease; those who need nothing that is learnt wait as well."""
    await limiter.create(LLM)
    assert await limiter.admit("ann.1", "in_flight=1", ttl=3_600_000) == "held"
    if lost:
        await limiter.server.forget(limiter.address, *limiter.sequence)
        limiter.sequence.clear()
        await limiter.create(LLM, mode="recover", ttl_ms=3_600_000)
    limiter.server.run = b"another run"
    assert (await limiter.admit("bob.1", "in_flight=1", key="b", wait_ms=600_000)).startswith("wait")
    assert (await limiter.admit("cid.1", "tokens=1000", key="c", wait_ms=600_000)) == "wait 1000000 tokens all"
    await limiter.wait(1000)
    assert await limiter.admit("dan.1", "requests=1", key="d") == "held", "it waits for nobody"
    assert (await limiter.admit("cid.1", "tokens=1000", key="c", wait_ms=600_000)) == "held"
    assert await limiter.admit("eve.1", "in_flight=1", key="e") == "late - in_flight all"
    await limiter.wait(58_900)
    assert await limiter.admit("eve.2", "in_flight=1", key="e") == "late - in_flight all"
    await limiter.wait(200)
    assert await limiter.admit("eve.3", "in_flight=1", key="e") == "held"
    assert await limiter.taken("in_flight") == (1 if lost else 2), "what is known to be held stays so"


async def test_a_key_that_waits_while_it_is_learnt_who_holds_what_is_looked_at_when_that_is_over(
    limiter: Limiter,
) -> None:
    """Nothing is released then: without that it would wait until another call of its key ends."""
    await limiter.create("slots at_once 4503599627370496", "slots at_once 1")
    await limiter.admit("ann.1", "slots=1", key="x")
    await limiter.release("ann.1")
    key = limiter.address.key
    await limiter.server.command(key.encode(), "HSET", key, "run_id", "another")
    assert (await limiter.admit("ann.2", "slots=1", key="x", wait_ms=60_000)).startswith("wait")
    answers = []
    for _ in range(6):
        await limiter.wait(1000)
        answers.append(await limiter.admit("ann.2", "slots=1", key="x", wait_ms=60_000))
    assert answers[0].startswith("wait")
    assert answers[-1] == "held"
