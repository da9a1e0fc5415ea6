"""Gates and buckets with keys: whoever waits takes turns by key, and answers are numbers; hold-offs of both."""

import asyncio
from collections import Counter

import pytest

import headgate
from headgate import CreditTimeout, InvalidName, PolicyError, Refused
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_keys_that_wait_take_turns_however_many_wait_for_them(client: headgate.Client) -> None:
    """Mutant: whoever comes first is served first."""
    await client.apply("db", kind="gate", limit=2)
    async with client.session("one") as one, client.session("two") as two:
        gates = [await one.gate("db", timeout=GUARD), await two.gate("db", timeout=GUARD)]
        order: list[str] = []
        go = asyncio.Semaphore(0)

        async def work(number: int, key: str) -> None:
            async with gates[number % 2].admit(key=key):
                order.append(key)
                await go.acquire()

        async with asyncio.TaskGroup() as group:
            for number in range(20):
                group.create_task(work(number, "busy"))

            async def waiting(count: int) -> None:
                async def all_wait() -> bool:
                    return (await gates[0].state()).waiting >= count

                await wait_until(all_wait, timeout=GUARD)

            await waiting(18)
            for number in range(3):
                group.create_task(work(number, "quiet"))
            await waiting(21)
            for _ in range(8):
                came = len(order)
                go.release()

                async def next_came(came: int = came) -> bool:
                    return len(order) > came

                await wait_until(next_came, timeout=GUARD)
            assert Counter(order[2:])["quiet"] == 3, order
            for _ in range(23):
                go.release()
    assert len(order) == 23


async def test_a_key_has_its_own_limit_and_the_gate_keeps_the_whole(client: headgate.Client) -> None:
    """Mutant: what is admitted with a key does not count for those without one."""
    await client.apply("db", kind="gate", limit=3, key_limits={"bytes": {"at_once": 2}})
    async with client.session("s") as session:
        gate = await session.gate("db")
        permits = [await gate.attempt(key="t") for _ in range(2)]
        refused = await gate.attempt(key="t")
        assert isinstance(refused, Refused)
        assert (refused.limit, refused.rule, refused.retry_after, refused.key) == ("bytes", "key", None, "t")
        with pytest.raises(CreditTimeout) as late:
            async with gate.admit(key="t", timeout=1):
                pass
        assert (late.value.limit, late.value.rule, late.value.key) == ("bytes", "key", "t")
        state = await gate.state(key="t")
        assert (state.key_limits["bytes"].remaining, state.limits["bytes"].limit) == (0, 3)
        permits.append(await gate.attempt())
        refused = await gate.attempt(key="other")
        assert isinstance(refused, Refused)
        assert (refused.limit, refused.rule) == ("bytes", "all")
        with pytest.raises(CreditTimeout) as late:
            async with gate.admit(key="other", timeout=0.3):
                pass
        assert (late.value.limit, late.value.key, late.value.retry_after) == ("bytes", "other", None)
        assert late.value.explanation.cause == "leased"
        for permit in permits:
            assert isinstance(permit, headgate.Permit)
            permit.release()
            permit.release()

        async def free_again() -> bool:
            admitted = await gate.attempt(2, key="t")
            if isinstance(admitted, headgate.Permit):
                admitted.release()
            return bool(admitted)

        await wait_until(free_again, timeout=GUARD)
        assert gate.in_use == 0
        with pytest.raises(InvalidName):
            gate.try_admit(key="")
        with pytest.raises(PolicyError, match="belongs to a limiter, a gate or a bucket"):
            await client.apply("orders", kind="queue", key_limits={"bytes": {"at_once": 2}})
        with pytest.raises(headgate.InvalidValue, match="there is no limit 'slots'"):
            await client.apply("db", key_limits={"slots": {"at_once": 2}})
    await client.remove("db")


async def test_whoever_is_cancelled_or_closed_leaves_its_turn(client: headgate.Client) -> None:
    """Mutant: a turn is kept by who waits for credit no more."""
    await client.apply("db", kind="gate", limit=1)
    async with client.session("s") as session:
        gate = await session.gate("db", timeout=GUARD)
        async with client.session("holder") as other:
            holder = await (await other.gate("db")).attempt(key="t")
            assert isinstance(holder, headgate.Permit)
            waiter = asyncio.create_task(gate.admit(key="u").__aenter__())

            async def waits() -> bool:
                return (await gate.state()).waiting == 1

            await wait_until(waits, timeout=GUARD)
            waiter.cancel()
            await asyncio.gather(waiter, return_exceptions=True)
        async with gate.admit(key="v"):
            assert (await gate.state()).limits["bytes"].taken == 1


async def test_a_gate_that_is_held_off_admits_nobody_anywhere_and_says_for_how_long(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Mutants: credit in hand goes on, here or elsewhere; the refusal has no number."""
    await client.apply("db", kind="gate", limit=8)
    async with client.session("a") as one, other.session("b") as two:
        here, there = await one.gate("db"), await two.gate("db")
        for gate in (here, there):
            async with gate.admit():
                pass
        assert await here.hold_off(60, reason="429 from the provider") == 60
        assert here.try_admit() is None
        for key in (None, "t"):
            refused = await here.attempt(key=key)
            assert isinstance(refused, Refused)
            assert refused.limit == "hold_off"
            assert refused.retry_after is not None
            assert 50 < refused.retry_after <= 60

        async def heard() -> bool:
            return there.try_admit() is None and not await there.attempt()

        await wait_until(heard, timeout=GUARD)
        with pytest.raises(CreditTimeout, match="429 from the provider") as late:
            async with there.admit(timeout=0.3):
                pass
        assert late.value.limit == "hold_off"
        assert late.value.retry_after is not None
        assert 50 < late.value.retry_after <= 60
        state = await there.state()
        assert state.reason == "429 from the provider"
        assert 50 < state.held_off <= 60
        explanation = await client.explain("db")
        assert (explanation.state, explanation.cause) == ("stopped", "held-off")
        await there.hold_off(0)
        async with here.admit(timeout=GUARD), there.admit(key="t", timeout=GUARD):
            pass
        assert await here.hold_off(60, key="t") == 60
        refused = await there.attempt(key="t")
        assert isinstance(refused, Refused)
        assert (refused.limit, refused.rule) == ("hold_off", "key")
        async with there.admit(key="u", timeout=GUARD):
            pass


async def test_a_hold_off_ends_by_itself(client: headgate.Client) -> None:
    """Mutant: nobody hears of its end."""
    await client.apply("db", kind="gate", limit=8)
    async with client.session("a") as session:
        gate = await session.gate("db")
        async with gate.admit():
            pass
        await gate.hold_off(0.2)
        async with gate.admit(timeout=GUARD):
            pass


async def test_a_bucket_takes_for_keys_and_is_held_off(client: headgate.Client) -> None:
    """Mutants: what one key was refused is taken of the bucket; an error has no number, or no reason."""
    await client.apply(
        "mail", kind="bucket", rate="1/min", burst=4, key_limits={"tokens": {"rate": "1/min", "burst": 2}}
    )
    async with client.session("s") as session:
        bucket = await session.bucket("mail")
        assert await bucket.try_take(2, key="t") is True
        refused = await bucket.try_take(key="t")
        assert isinstance(refused, Refused)
        assert (refused.limit, refused.rule, refused.key) == ("tokens", "key", "t")
        assert refused.retry_after is not None
        assert 50 < refused.retry_after <= 60
        of_key, of_all = await bucket.state(key="t"), await bucket.state()
        assert of_key is not None
        assert of_all is not None
        assert (of_key.remaining, of_all.remaining) == (0, 2)
        await bucket.take(2, key="u")
        with pytest.raises(CreditTimeout) as late:
            await bucket.take(timeout=0)
        assert late.value.limit == "rate"
        assert late.value.explanation.cause == "bucket-rate"
        assert await bucket.hold_off(600, reason="no mail at night") == 600
        refused = await bucket.try_take()
        assert isinstance(refused, Refused)
        assert refused.limit == "hold_off"
        with pytest.raises(CreditTimeout, match="held off") as late:
            await bucket.take(timeout=0.1)
        assert late.value.explanation.cause == "held-off"
        assert late.value.retry_after is not None
        assert late.value.retry_after > 500
        left = await bucket.state()
        assert left is not None
        assert left.remaining == 0
    await client.remove("mail")
