"""A limit that adapts follows what the keys of all slices report, each hold once, and bounds them together."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import headgate
import headgate.sync
from headgate import Hold, MessageTooLarge
from headgate.core.limiting.pins import slice_of_key
from headgate.explain.levels import Adapting
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

LIMITS = {"calls": {"at_once": {"min": 4, "max": 64, "adapt": "aimd"}}}
KEYS = [f"tenant-{number}" for number in range(8)]
THERE = next(key for key in KEYS if slice_of_key(key, 4) == 1)


@pytest.fixture
async def limiter(client: headgate.Client) -> AsyncIterator[headgate.Limiter]:
    await client.apply("search", kind="limiter", limits=LIMITS, key_limits={"calls": {"at_once": 3}}, slices=4)
    async with client.session("one") as session:
        yield await session.limiter("search")
    await client.remove("search")


async def adapting(limiter: headgate.Limiter) -> Adapting:
    found = (await limiter.state())["calls"].adapting
    assert found is not None
    return found


async def heard(limiter: headgate.Limiter, **counts: int) -> None:
    """Wait until so many holds ended so, as Redis knows: what ended last goes with a later call."""

    async def is_heard() -> bool:
        async with limiter.admit(calls=1) as hold:
            hold.outcome = "ignore"
        outcomes = (await adapting(limiter)).outcomes
        assert all(outcomes[name] <= count for name, count in counts.items()), outcomes
        return all(outcomes[name] == count for name, count in counts.items())

    await wait_until(is_heard, timeout=GUARD)


async def test_holds_of_all_slices_say_once_how_they_ended(client: headgate.Client, limiter: headgate.Limiter) -> None:
    for key in KEYS:
        async with limiter.admit(calls=1, key=key):
            pass
        with pytest.raises(TimeoutError):
            async with limiter.admit(calls=1, key=key):
                raise TimeoutError
    name = await (await limiter.admit(calls=1, key=THERE)).hand_over()
    async with client.session("two") as session:
        (await (await session.limiter("search")).hold(name)).release("overload")
        await heard(limiter, ok=8, overload=9)
    refused = [await limiter.attempt(calls=1, key=key) for key in KEYS[:4] + KEYS[:1]]
    assert [isinstance(one, Hold) for one in refused] == [True] * 4 + [False], "it is at its floor, of all slices"
    with pytest.raises(MessageTooLarge):
        await limiter.attempt(calls=5, key=THERE)


async def test_whoever_gives_back_its_part_reports_nothing(client: headgate.Client, limiter: headgate.Limiter) -> None:
    """Mutant: what was held and never used is ignored aloud."""
    limits = {**LIMITS, "tokens": {"rate": "unlimited"}}
    await client.apply("search", limits=limits, key_limits={"tokens": {"rate": "1/week", "burst": 8}})

    async def taken_is(number: int) -> bool:
        return (await limiter.state())["calls"].taken == number

    async def waits() -> bool:
        return (await limiter.state()).waiting == 1

    held = [await limiter.admit(calls=1, key=key) for key in KEYS[:4]]
    waiting = asyncio.create_task(limiter.wait_for(THERE, {"calls": 1, "tokens": 5}, GUARD))
    await wait_until(waits, timeout=GUARD, description="it waits for its part, without tokens")
    tokens = await limiter.admit(tokens=6, key=THERE, timeout=GUARD)
    held.pop().release()

    async def gave_it_back() -> bool:
        return await taken_is(3) and await waits()

    await wait_until(gave_it_back, timeout=GUARD, description="it waits for tokens, without its part")
    waiting.cancel()
    for hold in (tokens, *held):
        hold.release()

    async def all_are_heard() -> bool:
        found = (await adapting(limiter)).outcomes
        assert not found["ignore"], found
        return found["ok"] == 4

    async def is_heard() -> bool:
        async with limiter.admit(tokens=1):
            return await all_are_heard()

    await wait_until(is_heard, timeout=GUARD)


async def test_it_grows_for_keys_of_all_slices_and_shrinks_with_overloads(
    limiter: headgate.Limiter, client: headgate.Client
) -> None:
    full = 12
    """Calls at a time above which the service refuses."""
    running, over = 0, asyncio.Event()

    async def call(limiter: headgate.Limiter, key: str) -> None:
        nonlocal running
        while not over.is_set():
            async with limiter.admit(calls=1, key=key, timeout=60) as hold:
                running += 1
                if running > full:
                    hold.outcome = "overload"
                await asyncio.sleep(0.02)
                running -= 1

    seen: set[str] = set()

    async def has_seen() -> bool:
        found = await adapting(limiter)
        seen.add(found.reason)
        return {"start", "overload"} <= seen and found.outcomes["overload"] > 0

    await client.apply("search", key_limits={})
    async with client.session("two") as session, asyncio.TaskGroup() as tasks:
        for one in (limiter, await session.limiter("search")):
            for number in range(32):
                tasks.create_task(call(one, KEYS[number % 8]))
        await wait_until(has_seen, timeout=60)
        found = (await limiter.state())["calls"]
        over.set()
    assert 4 < found.limit < 64
    explained = await client.explain("search", key=THERE)
    assert explained.limiter is not None
    assert "adapts from 4 to 64 (aimd)" in " ".join(explained.limiter.rows())


async def test_nothing_of_it_is_in_hand_for_any_slice(limiter: headgate.Limiter) -> None:
    for _ in range(20):
        assert limiter.try_admit(calls=1, key=THERE) is None
        async with limiter.admit(calls=1, key=THERE) as hold:
            assert hold.part is not None
            assert hold.part.is_known


def test_threads_report_too(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session() as session:
        client.apply("search", kind="limiter", limits=LIMITS, slices=4)
        search = session.limiter("search")
        for key in KEYS:
            with search.admit(calls=1, key=key, timeout=GUARD) as hold:
                hold.outcome = "overload"
        while (found := search.state()["calls"].adapting) is None or found.outcomes["overload"] < 8:
            search.admit(calls=1, timeout=GUARD).__enter__().release("ignore")
        assert found.outcomes["overload"] == 8
