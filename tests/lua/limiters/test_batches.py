"""Many operations in one call: each decided and kept as in a call of its own, also where many are alike."""

import random
import re
from typing import Any

import pytest

from headgate.redis.stores.limiters import NO_KEY, HoldCall
from tests.lua.limiters.trial import TTL_MS, Limiter

LIMITS = "requests rate 10 20;tokens rate 1000 40000;slots at_once 12"
OF_KEYS = "tokens rate 100 9000;slots at_once 6"


async def state(limiter: Limiter) -> list[Any]:
    key = limiter.address.key
    found = [
        await limiter.server.command(key.encode(), *command)
        for command in (
            ("HMGET", key, "levels", "admitted", "refused"), ("HGETALL", f"{key}:holds"), ("HGETALL", f"{key}:keyed"),
            ("ZRANGE", f"{key}:leases", "0", "-1", "WITHSCORES"),
        )
    ]  # fmt: skip
    found[0][0] = sorted(found[0][0].split(b";"))
    keyed = sorted((name, sorted(text.split(b";"))) for name, text in zip(*[iter(found[2])] * 2, strict=True))
    return [found[0], keyed, *(sorted(zip(*[iter(each)] * 2, strict=True)) for each in (found[1], found[3]))]


async def test_a_batch_leaves_what_calls_of_one_operation_each_leave(limiter: Limiter) -> None:
    """Mutants: one alike is not looked at, or taken for it has other amounts; what a call changed is read again."""
    dice, rounds = random.Random(17), []
    number = 0
    for _ in range(25):
        calls = []
        for _ in range(dice.randrange(1, 25)):
            op = dice.choice(("admit", "admit", "admit", "admit", "release", "release", "settle", "renew"))
            if op == "admit":
                number += dice.choice((1, 1, 1, 0))
                amounts = dice.choice(("requests=1,slots=1", "requests=1,slots=1", "tokens=700", "slots=2,tokens=1"))
                key, ttl = dice.choice((NO_KEY, "a", "a")), dice.choice((TTL_MS, TTL_MS, 2 * TTL_MS))
                calls.append(HoldCall("admit", f"ann.{max(1, number)}", key, amounts, ttl))
            else:
                hold = f"ann.{max(1, number - dice.randrange(6))}"
                calls.append(HoldCall(op, hold, amounts="tokens=100,slots=0" if op == "settle" else "-", ttl_ms=TTL_MS))  # type: ignore[arg-type]
        rounds.append((calls, dice.randrange(300)))

    async def run(*, together: bool) -> tuple[list[str], list[list[Any]]]:
        await limiter.create(LIMITS, OF_KEYS)
        answers, states = list[str](), []
        for calls, ms in rounds:
            for some in [calls] if together else [[call] for call in calls]:
                answers += (await limiter.call("ann", *some)).answers
            states.append(await state(limiter))
            await limiter.wait(ms)
        await limiter.call(
            "ann", *(HoldCall("release", f"ann.{one}") for one in range(max(1, number - 127), number + 1))
        )
        assert await limiter.left("holds") == await limiter.left("leases")
        return answers, states

    began = limiter.now
    alone = await run(together=False)
    assert {"held", "ok", "gone", "late"} <= {answer.partition(" ")[0] for answer in alone[0]}
    await limiter.server.forget(limiter.address, *limiter.sequence)
    limiter.sequence.clear()
    limiter.now = began
    assert await run(together=True) == alone


async def test_many_that_all_have_room_take_and_give_back_as_much_as_each_by_itself(limiter: Limiter) -> None:
    """Mutants: of those alike one is reckoned; what has no room together is let in."""
    dice, rounds, number = random.Random(5), list[list[HoldCall]](), 0
    for _ in range(12):
        calls = list[HoldCall]()
        for _ in range(dice.randrange(2, 12)):
            number += 1
            amounts = dice.choice(("requests=1,slots=1", "slots=2,tokens=100"))
            calls.append(HoldCall("admit", f"ann.{number}", dice.choice((NO_KEY, "a", "b")), amounts, TTL_MS))
        rounds += [calls, [HoldCall("release", call.id) for call in calls[: dice.randrange(len(calls) + 1)]]]

    async def run(*, together: bool) -> tuple[list[str], list[list[Any]]]:
        await limiter.create("requests rate 10 50;tokens rate 1000 9000;slots at_once 60", "slots at_once 25")
        answers, states = list[str](), []
        for calls in filter(None, rounds):
            for some in [calls] if together else [[call] for call in calls]:
                answers += (await limiter.call("ann", *some)).answers
            states.append(await state(limiter))
        return answers, states

    began = limiter.now
    alone = await run(together=False)
    assert {"held", "late"} <= {answer.partition(" ")[0] for answer in alone[0]}
    await limiter.server.forget(limiter.address, *limiter.sequence)
    limiter.sequence.clear()
    limiter.now = began
    assert await run(together=True) == alone


@pytest.mark.parametrize("limit", ["slots at_once 10", "slots rate 1 10", "slots quota 10 day 0"])
async def test_of_many_that_have_no_room_together_as_many_are_held_as_have(limiter: Limiter, limit: str) -> None:
    """Mutants: each is let in that has room by itself; the room for one is looked for, and all are let in."""
    await limiter.create(limit)
    admits = [HoldCall("admit", f"ann.{number}", amounts="slots=1", ttl_ms=TTL_MS) for number in range(1, 13)]
    answers = (await limiter.call("ann", *admits)).answers
    assert [answer.partition(" ")[0] for answer in answers] == [*["held"] * 10, *["late"] * 2]


async def test_a_refusal_is_said_again_only_while_nothing_was_admitted_after_it(limiter: Limiter) -> None:
    """Mutant: it is said again although others took more meanwhile."""
    await limiter.create("slots rate 10 20")
    admits = [
        HoldCall("admit", f"ann.{number}", amounts=f"slots={slots}", ttl_ms=TTL_MS)
        for number, slots in enumerate((10, 15, 5, 15), 1)
    ]
    answers = (await limiter.call("ann", *admits)).answers
    assert answers == ("held", "late 500000 slots all", "held", "late 1000000 slots all")


async def test_refusals_that_are_said_again_are_counted_each(limiter: Limiter) -> None:
    await limiter.create("slots at_once 1")
    admits = [HoldCall("admit", f"ann.{number}", amounts="slots=1", ttl_ms=TTL_MS) for number in range(1, 6)]
    assert [answer.partition(" ")[0] for answer in (await limiter.call("ann", *admits)).answers] == [
        "held",
        *["late"] * 4,
    ]
    told = [event for _, event in await limiter.events() if event.startswith("refused")]
    unsaid = (await limiter.field("unsaid") or b"").decode()
    assert sum(int(count) for text in (*told, unsaid) for count in re.findall(r"slots:all:(\d+)", text)) == 4


async def test_one_alike_does_not_pass_who_joined_the_line_in_the_same_call(limiter: Limiter) -> None:
    await limiter.create("slots at_once 4")
    admits = [
        HoldCall("admit", f"ann.{number}", amounts=f"slots={slots}", ttl_ms=TTL_MS, wait_ms=wait)
        for number, slots, wait in ((1, 1, 0), (2, 4, 9000), (3, 1, 0))
    ]
    held, waits, late = (await limiter.call("ann", *admits)).answers
    assert (held, late) == ("held", "late - line all")
    assert waits.startswith("wait ")


async def ten_at_once(
    limiter: Limiter, settings: dict[str, Any], before: str, *, in_one_call: bool
) -> tuple[list[str], Any]:
    """Return what ten admissions of two keys are answered where the limiter has such settings, and what that leaves."""
    await limiter.create("slots at_once 20;tokens rate 10 100", "slots at_once 8", **settings)
    if before == "waits":
        assert await limiter.admit("bob.1", "slots=5") == "held"
        assert (await limiter.admit("bob.2", "slots=18", wait_ms=60_000)).startswith("wait "), (
            "there is room for ten more"
        )
    elif before:
        assert (await limiter.store.hold_off(limiter.address, "bob", key=before, ms=5000, reason=""))[0] == "OK"
    text = settings.get("text", "slots=1,tokens=2")
    calls = [HoldCall("admit", f"ann.{n}", ("a", "b")[n % 2], text, TTL_MS) for n in range(1, 11)]
    answers = list[str]()
    for some in [calls] if in_one_call else [[call] for call in calls]:
        answers += (await limiter.call("ann", *some)).answers
    left = [await state(limiter), await limiter.field("by_band"), await limiter.field("would_wait")]
    await limiter.server.forget(limiter.address, *limiter.sequence)
    limiter.sequence.clear()
    return answers, left


async def test_many_are_let_in_together_only_where_nothing_else_is_to_be_seen_to(limiter: Limiter) -> None:
    """Mutants: all are let in together whatever the limiter's rules, and whoever waits, is held off or is new."""
    cases: dict[str, tuple[dict[str, Any], str]] = {
        "nothing": ({}, ""),
        "somebody waits": ({}, "waits"),
        "all are held off": ({}, "*"),
        "a key is held off": ({}, "b"),
        "stopped": ({"stopped": "by hand"}, ""),
        "keys with bands": ({"bands": "b=6"}, ""),
        "kept for better bands": ({"reserve": "2=700"}, ""),
        "shed": ({"shed": "3=300"}, ""),
        "keys that nobody named": ({"key_weights": "a=2", "unknown_keys": "refuse"}, ""),
        "few keys": ({"max_keys": "1"}, ""),
        "shadow limits": ({"shadow_limits": "slots at_once 3"}, ""),
    }
    began = limiter.now
    found = dict[str, set[str]]()
    for name, (settings, before) in cases.items():
        limiter.now = began
        one_by_one = await ten_at_once(limiter, settings, before, in_one_call=False)
        limiter.now = began
        assert await ten_at_once(limiter, settings, before, in_one_call=True) == one_by_one, name
        found[name] = {answer.split(" ")[0] for answer in one_by_one[0]}
    assert found["nothing"] == {"held"}
    assert found["few keys"] == {"held", "keys"}
    assert found["keys that nobody named"] == {"held", "key"}
    assert all("late" in found[name] for name in ("somebody waits", "all are held off", "a key is held off", "stopped"))


@pytest.mark.parametrize(("held_off", "whose"), [(NO_KEY, "all"), ("a", "key")])
async def test_many_that_are_held_off_are_not_let_in_together(limiter: Limiter, held_off: str, whose: str) -> None:
    """Mutants: a hold-off of all, or of a key, is not looked at: it takes nothing of a quota, which would keep them."""
    await limiter.create("mails quota 20 day 0", "mails quota 9 day 0")
    code, _ = await limiter.store.hold_off(limiter.address, "bob", key=held_off, ms=5000, reason="")
    admits = [HoldCall("admit", f"ann.{n}", "a", "mails=1", TTL_MS) for n in (1, 2, 3)]
    assert (code, (await limiter.call("ann", *admits)).answers) == ("OK", (f"late 5000000 hold_off {whose}",) * 3)


async def test_those_that_are_let_in_together_are_each_judged(limiter: Limiter) -> None:
    """Mutant: of what adapts more is let in together than it is sure to let in of one, where it has grown."""
    await limiter.create("slots at_once 20 4 aimd", ttl_ms=60_000)
    for second in range(3):
        held = [f"ann.{40 * second + n}" for n in range(1, 21)]
        await limiter.call("ann", *(HoldCall("admit", hold, amounts="slots=1", ttl_ms=60_000) for hold in held))
        await limiter.call("ann", *(HoldCall("release", hold) for hold in held))
        await limiter.one("sample", "ann.1", "ok=50,us=5000000")
        await limiter.wait(1000)
        await limiter.store.sweep(limiter.address)
    assert int((await limiter.look()).limits[0].split(" ")[2]) >= 10, "there is room for two"
    admits = [HoldCall("admit", f"eve.{n}", amounts="slots=5", ttl_ms=TTL_MS) for n in (1, 2)]
    assert (await limiter.call("eve", *admits)).answers == ("never 4 slots all",) * 2
