"""Records of keys end with what they are about: with calls, with sweeps, and their memory with them."""

from headgate.redis.stores.limiters import HoldCall
from tests.lua.limiters.trial import TTL_MS, Limiter

RATE = "tokens rate 1000000000 1000000000"


async def _admit_each(limiter: Limiter, keys: int, amounts: str, prefix: str = "k") -> None:
    for first in range(0, keys, 64):
        numbers = range(first, min(first + 64, keys))
        holds = [(f"{prefix}.{number + 1}", f"{prefix}{number}") for number in numbers]
        for calls in (
            [HoldCall("admit", hold, key, amounts, TTL_MS) for hold, key in holds],
            [HoldCall("release", hold) for hold, _ in holds],
        ):
            assert set((await limiter.call(prefix, *calls)).answers) <= {"held", "ok"}


async def _bytes(limiter: Limiter) -> int:
    key = f"{limiter.address.key}:keyed"
    return int(await limiter.server.command(key.encode(), "MEMORY", "USAGE", key, "SAMPLES", "0") or 0)


async def test_calls_of_one_key_remove_the_records_of_all_that_are_whole(limiter: Limiter) -> None:
    """Mutant: each call looks at one record, so that it takes a call for each."""
    await limiter.create(RATE, "tokens rate 1000 100")
    await _admit_each(limiter, 2000, "tokens=100")
    assert await limiter.left("keyed") > 1500
    await limiter.wait(1000)
    for number in range(1, 101):
        assert await limiter.admit(f"bob.{number}", "tokens=1", key="bob") == "held"
        await limiter.release(f"bob.{number}")
    assert await limiter.left("keyed") <= 1, "the one that is in use"
    await limiter.wait(1000)
    await limiter.store.sweep(limiter.address)
    assert await _bytes(limiter) == 0


async def test_few_that_owe_still_take_the_memory_of_few(limiter: Limiter) -> None:
    """Mutant: the table that Redis made for many stays, as it is given back only with commands that meet it."""
    await limiter.create(RATE, "tokens rate 100 1000000")
    await _admit_each(limiter, 8, "tokens=100000", "late")
    before = await _bytes(limiter)
    await _admit_each(limiter, 3000, "tokens=100")
    assert await _bytes(limiter) > 100 * before
    await limiter.wait(2000)
    for _ in range(250):
        assert await limiter.one("renew", "bob.1") == "gone"
    assert await limiter.left("keyed") == 8
    assert await _bytes(limiter) < 8192, "a table for 512, which were left as it was written"
    assert await limiter.taken("tokens", "late1") == 100_000 - 200, "what they owe is as it was"


async def test_records_that_say_what_a_quota_has_are_not_looked_at_by_every_call(limiter: Limiter) -> None:
    """They are looked at, for their window may be over, and stay. Mutant: they are taken for some that have ended."""
    await limiter.create("mails quota 1000 day 0", "mails quota 9 day 0")
    for number in range(1, 41):
        assert await limiter.admit(f"ann.{number}", "mails=1", key=f"t{number}") == "held"
        assert await limiter.release(f"ann.{number}") == "ok"
    await limiter.store.sweep(limiter.address)
    await limiter.store.sweep(limiter.address)
    assert await limiter.left("keyed") == 40
    assert await limiter.field("due") == b"0"
