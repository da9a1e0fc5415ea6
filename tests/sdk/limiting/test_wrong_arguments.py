"""Arguments of the wrong type or out of range: one error that names the argument, and nothing is taken."""

import math
from typing import Any

import pytest

import headgate.sync
from headgate import InvalidName, InvalidValue, Settings
from tests.sdk.observing import GUARD

pytestmark = pytest.mark.one_server

TIMES: tuple[Any, ...] = (True, math.nan, math.inf, -1, -0.5, "5", "5 s s", "-1s", b"1s", [1], object())
"""What is no duration: a number in a text has a unit."""
COUNTS: tuple[Any, ...] = (True, math.nan, math.inf, 1.5, -1, 2**53, None, [1], b"1", "many")
KEYS: tuple[Any, ...] = ([], ["t1"], {"t1": 1}, set(), 5, True, b"t1", "", "x" * 256, "\ud800")
LIMITER = Settings(kind="limiter", limits={"calls": {"rate": "1000000/s"}, "slots": {"at_once": 1000}})


def wrong(setting: str, call: Any, *arguments: Any, **named: Any) -> None:
    """See that a call is refused, with an error that names the argument."""
    with pytest.raises((InvalidValue, InvalidName)) as caught:
        call(*arguments, **named)
    assert setting in (*caught.value.settings, *str(caught.value).split()), caught.value


async def awaited(call: Any) -> None:
    """Await what a call gives: an admission enters its block, too."""
    if hasattr(call, "__aenter__"):
        async with call:
            raise AssertionError("it was admitted")
    await call


async def wrong_async(setting: str, call: Any, *arguments: Any, **named: Any) -> None:
    with pytest.raises((InvalidValue, InvalidName)) as caught:
        await awaited(call(*arguments, **named))
    assert setting in (*caught.value.settings, *str(caught.value).split()), caught.value


async def refuse_admissions(limiter: headgate.Limiter) -> None:
    for key in KEYS:
        wrong("key", limiter.try_admit, calls=1, key=key)
        await wrong_async("key", limiter.admit, calls=1, key=key)
        await wrong_async("key", limiter.attempt, calls=1, key=key)
    for timeout in TIMES:
        await wrong_async("timeout", limiter.admit, calls=1, timeout=timeout)
        await wrong_async("ttl", limiter.admit, calls=1, ttl=timeout)
    for number in COUNTS:
        wrong("slots", limiter.try_admit, slots=number)
        await wrong_async("slots", limiter.admit, slots=number)
        await wrong_async("slots", limiter.attempt, calls=1, slots=number)


async def test_no_admission_has_a_wrong_argument_whether_something_is_in_hand_or_not(client: headgate.Client) -> None:
    """Mutants: what is in hand is handed out before the timeout is read; a key that cannot be looked up."""
    await client.apply("api", LIMITER)
    async with client.session("s") as session:
        limiter = await session.limiter("api")
        await refuse_admissions(limiter)
        held = [await limiter.admit(calls=1, slots=1, timeout=GUARD) for _ in range(20)]
        for hold, number in zip(held, COUNTS, strict=False):
            wrong("slots", hold.settle, slots=number)
        await refuse_admissions(limiter)
        for hold in held:
            hold.release()


async def test_a_limiter_takes_no_other_wrong_argument(client: headgate.Client) -> None:
    await client.apply("api", LIMITER)
    async with client.session("s") as session:
        limiter = await session.limiter("api")
        for key in KEYS:
            await wrong_async("key", limiter.state, key=key)
            await wrong_async("key", limiter.hold_off, 1, key=key)
        for seconds in TIMES:
            await wrong_async("seconds", limiter.hold_off, seconds)
        for reason in (None, 5, b"429", ["429"]):
            await wrong_async("reason", limiter.hold_off, 1, reason=reason)
        for hold_id in (None, 5, ["a.1"], "a", "a.0", b"a.1"):
            await wrong_async("hold", limiter.hold, hold_id)


async def test_a_gate_and_a_bucket_take_no_wrong_argument(client: headgate.Client) -> None:
    """Mutant: a fraction is taken off what is in hand."""
    await client.apply("gate", kind="gate", limit=1000)
    await client.apply("bucket", kind="bucket", rate=1000, burst=1000)
    async with client.session("s") as session:
        gate, bucket = await session.gate("gate"), await session.bucket("bucket")
        async with gate.admit(1, timeout=GUARD):
            for size in COUNTS:
                wrong("size", gate.try_admit, size)
                await wrong_async("size", gate.admit, size)
            for timeout in TIMES:
                await wrong_async("timeout", gate.admit, 1, timeout=timeout)
            assert gate.in_use == 1
        for key in KEYS:
            wrong("key", gate.try_admit, 1, key=key)
            for call in (gate.admit, gate.attempt, bucket.take, bucket.try_take):
                await wrong_async("key", call, 1, key=key)
        for seconds in TIMES:
            await wrong_async("seconds", gate.hold_off, seconds)
        await wrong_async("reason", bucket.hold_off, 1, reason=5)
        for tokens in COUNTS:
            await wrong_async("tokens", bucket.take, tokens)
            await wrong_async("tokens", bucket.try_take, tokens)
        for timeout in TIMES:
            await wrong_async("timeout", bucket.take, 1, timeout=timeout)


def test_threads_take_no_wrong_argument(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        client.apply("api", LIMITER)
        client.apply("gate", kind="gate", limit=1000)
        limiter, gate = session.limiter("api"), session.gate("gate")
        with gate.admit(1, timeout=GUARD):
            for size in COUNTS:
                wrong("size", gate.try_admit, size)
                wrong("size", gate.admit, size)
            for timeout in TIMES:
                wrong("timeout", gate.admit, 1, timeout=timeout)
            assert gate.in_use == 1
        for key in KEYS:
            wrong("key", lambda key=key: limiter.admit(calls=1, key=key).wait())
            wrong("key", limiter.try_admit, calls=1, key=key)
            wrong("key", limiter.attempt, calls=1, key=key)
        for timeout in TIMES:
            wrong("timeout", limiter.admit, calls=1, timeout=timeout)
            wrong("ttl", lambda ttl=timeout: limiter.admit(calls=1, ttl=ttl).wait())
        for number in COUNTS:
            wrong("slots", limiter.attempt, calls=1, slots=number)
            wrong("slots", limiter.try_admit, slots=number)
        assert limiter.state()["slots"].taken == 0
