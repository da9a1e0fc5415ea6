"""Deadlines through the SDK: refused at once where they cannot be met, earliest first, gone with whoever gives up."""

import asyncio
from time import monotonic

import pytest

import headgate
import headgate.sync
from headgate import CreditTimeout
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
CALLS = {"calls": {"rate": "1/min", "burst": 10}}


async def test_a_call_that_would_be_late_is_refused_at_once_with_its_estimate(client: headgate.Client) -> None:
    """Mutant: the session waits out its time before it says so."""
    await client.apply("api", kind="limiter", limits=CALLS)
    async with client.session("s") as session:
        api = await session.limiter("api")
        (await api.admit(calls=10)).release()
        began = monotonic()
        with pytest.raises(CreditTimeout) as refused:
            await api.admit(calls=5, timeout=GUARD, fail_if_late=True)
        assert monotonic() - began < GUARD / 2
        assert refused.value.retry_after == pytest.approx(300, abs=GUARD)
        assert (await api.state()).waiting == 0
        waits = asyncio.create_task(api.admit(calls=5, timeout=600, fail_if_late=True).__aenter__())

        async def stands_in_line() -> bool:
            return (await api.state()).waiting == 1

        await wait_until(stands_in_line, timeout=GUARD, description="in ten minutes there is time enough")
        waits.cancel()


def test_threads_are_refused_at_once_too(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client:
        client.apply("api", kind="limiter", limits=CALLS, fail_if_late="yes")
        api = client.session("s").limiter("api")
        with api.admit(calls=10):
            pass
        began = monotonic()
        with pytest.raises(CreditTimeout) as refused, api.admit(calls=1, timeout=GUARD):
            pytest.fail("there is one in a minute")
        assert monotonic() - began < GUARD / 2
        assert refused.value.retry_after == pytest.approx(60, abs=GUARD)
        client.remove("api")


async def test_the_earliest_deadline_goes_first_among_sessions_and_a_better_band_before_it(
    client: headgate.Client,
) -> None:
    await client.apply("db", kind="limiter", limits={"slots": {"at_once": 1}}, order="deadline")
    order: list[str] = []
    async with client.session("one") as one, client.session("two") as two:
        limiters = [await session.limiter("db") for session in (one, two)]
        held = await limiters[0].admit(slots=1)

        async def call(name: str, limiter: headgate.Limiter, timeout: float, band: int) -> None:
            async with limiter.admit(slots=1, timeout=timeout, band=band):
                order.append(name)

        async with asyncio.TaskGroup() as group:
            waits = (("last", 280, 3), ("third", 240, 3), ("first", 290, 0), ("second", 200, 3))
            for count, (name, timeout, band) in enumerate(waits, 1):
                group.create_task(call(name, limiters[count % 2], timeout, band))

                async def all_wait(count: int = count) -> bool:
                    return (await limiters[0].state()).waiting == count

                await wait_until(all_wait, timeout=GUARD)
            held.release()
    assert order == ["first", "second", "third", "last"]


async def test_whoever_gives_up_is_out_of_the_line_before_the_next_housekeeping(client: headgate.Client) -> None:
    """It goes with a call of its own, made at once: what is behind it does not wait for a renewal."""
    await client.apply("db", kind="limiter", limits={"slots": {"at_once": 2}})
    async with client.session("one") as one, client.session("two") as two:
        first, other = await one.limiter("db"), await two.limiter("db")
        held = await first.admit(slots=1)
        large = asyncio.create_task(first.admit(slots=2, timeout=GUARD).__aenter__())

        async def waiting(count: int) -> bool:
            return (await first.state()).waiting == count

        await wait_until(lambda: waiting(1), timeout=GUARD)
        small = asyncio.create_task(other.admit(slots=1, timeout=GUARD).__aenter__())
        await wait_until(lambda: waiting(2), timeout=GUARD)
        large.cancel()
        (await small).release()
        held.release()
