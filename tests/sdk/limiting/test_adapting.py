"""Limits that adapt, through the SDK: how holds end moves them, for all sessions together."""

import asyncio
from collections.abc import AsyncIterator

import pytest

import headgate
import headgate.sync
from headgate import InvalidValue
from headgate.core.limiting.samples import Samples
from headgate.explain.levels import Adapting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

LIMITS = {"calls": {"at_once": {"min": 4, "max": 64, "adapt": "aimd"}}}


@pytest.fixture
async def limiter(client: headgate.Client) -> AsyncIterator[headgate.Limiter]:
    await client.apply("search", kind="limiter", limits=LIMITS)
    async with client.session("one") as session:
        yield await session.limiter("search")
    await client.remove("search")


async def adapting(limiter: headgate.Limiter) -> Adapting:
    found = (await limiter.state())["calls"].adapting
    assert found is not None
    return found


async def heard(limiter: headgate.Limiter, outcome: str, count: int) -> None:
    """Wait until so many holds ended so, as Redis knows: what ended last goes with a later call."""

    async def is_heard() -> bool:
        async with limiter.admit(calls=1) as hold:
            hold.outcome = "ignore"
        return (await adapting(limiter)).outcomes[outcome] == count

    await wait_until(is_heard)


async def test_blocks_say_how_they_ended(limiter: headgate.Limiter) -> None:
    for _ in range(3):
        async with limiter.admit(calls=1):
            pass
    for error in (TimeoutError(), ValueError()):
        with pytest.raises(type(error)):
            async with limiter.admit(calls=1):
                raise error
    with pytest.raises(ValueError, match="full"):
        async with limiter.admit(calls=1, outcome_of=lambda error: "overload" if "full" in str(error) else "ignore"):
            raise ValueError("it is full")
    hold = await limiter.admit(calls=1)
    hold.release("overload")
    hold.release("ok")
    await heard(limiter, "ok", 3)
    await heard(limiter, "overload", 3)


async def test_what_is_no_outcome_is_refused_and_the_hold_stays(limiter: headgate.Limiter) -> None:
    hold = await limiter.admit(calls=1)
    with pytest.raises(InvalidValue, match="outcome"):
        hold.release("fine")  # type: ignore[arg-type]  # that is the point
    assert (await limiter.state())["calls"].taken == 1
    hold.release()
    with pytest.raises(InvalidValue, match="outcome"):
        async with limiter.admit(calls=1, outcome_of=lambda _: "bad"):
            raise OSError


async def test_a_hold_that_was_handed_over_is_judged_by_whoever_releases_it(
    limiter: headgate.Limiter, client: headgate.Client
) -> None:
    hold = await limiter.admit(calls=1)
    name = await hold.hand_over()
    async with client.session("two") as session:
        other = await session.limiter("search")
        (await other.hold(name)).release("overload")
        await heard(limiter, "overload", 1)


async def test_it_grows_for_all_sessions_while_they_wait_and_shrinks_with_overloads(
    limiter: headgate.Limiter, client: headgate.Client
) -> None:
    full = 12
    """Calls at a time above which the service refuses."""
    running, over = 0, asyncio.Event()

    async def call(limiter: headgate.Limiter) -> None:
        nonlocal running
        while not over.is_set():
            async with limiter.admit(calls=1, timeout=60) as hold:
                running += 1
                if running > full:
                    hold.outcome = "overload"
                await asyncio.sleep(0.02)
                running -= 1

    async with client.session("two") as session, asyncio.TaskGroup() as tasks:
        for one in (limiter, await session.limiter("search")):
            for _ in range(40):
                tasks.create_task(call(one))
        seen: set[str] = set()

        async def has_seen() -> bool:
            found = await adapting(limiter)
            seen.add(found.reason)
            return {"start", "overload"} <= seen and found.outcomes["overload"] > 0

        await wait_until(has_seen, timeout=60)
        found = (await limiter.state())["calls"]
        over.set()
    assert 4 < found.limit < 64
    explained = await client.explain("search")
    assert explained.limiter is not None
    assert "adapts from 4 to 64 (aimd)" in " ".join(explained.limiter.rows())


async def test_nothing_of_it_is_in_hand(limiter: headgate.Limiter) -> None:
    for _ in range(20):
        assert limiter.try_admit(calls=1) is None
        async with limiter.admit(calls=1):
            pass

    async def is_free() -> bool:
        return (await limiter.state())["calls"].taken == 0

    await wait_until(is_free)


def test_threads_say_it_too(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client:
        client.apply("search", kind="limiter", limits=LIMITS)
        limiter = client.session("one").limiter("search")
        with pytest.raises(TimeoutError), limiter.admit(calls=1):
            raise TimeoutError
        with limiter.admit(calls=1) as hold:
            hold.outcome = "overload"

        def heard() -> bool:
            with limiter.admit(calls=1) as hold:
                hold.outcome = "ignore"
            found = limiter.state()["calls"].adapting
            return found is not None and found.outcomes["overload"] == 2

        for _ in range(600):
            if heard():
                break
        else:
            pytest.fail("nobody heard of the overloads")
        client.remove("search")


def test_a_sample_has_one_size_however_many_ended() -> None:
    samples = Samples("one", "calls")
    assert samples.words(0.0) == ()
    for _ in range(100_000):
        samples.add("ok", 1e9, 4)
        samples.add("overload", 0.5, 1)
    verb, hold, _, text, *_ = samples.words(1.0)
    assert (verb, hold) == ("sample", "one.1")
    assert len(str(text)) < 200
    samples.add("ignore", 0.1, 1)
    assert samples.words(1.1) == ()
    assert samples.words(1.3)[3] == "ignored=1"
