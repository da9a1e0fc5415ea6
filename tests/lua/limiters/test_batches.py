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
