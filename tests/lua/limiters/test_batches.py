"""Many operations in one call: each decided and kept as in a call of its own, also where many are alike."""

import random
from typing import Any

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
    return [sorted(zip(*[iter(each)] * 2, strict=True)) if at else each for at, each in enumerate(found)]


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
        assert await limiter.admit("bob.1", "slots=15") == "held"
        assert (await limiter.admit("bob.2", "slots=15", wait_ms=60_000)).startswith("wait ")
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


async def test_those_that_are_let_in_together_are_each_judged(limiter: Limiter) -> None:
    """Mutant: of what adapts more is let in together than it is sure to let in of one."""
    await limiter.create("slots at_once 20 4 aimd")
    admits = [HoldCall("admit", f"ann.{n}", amounts=f"slots={n}", ttl_ms=TTL_MS) for n in (1, 5)]
    assert (await limiter.call("ann", *admits)).answers == ("held", "never 4 slots all")
