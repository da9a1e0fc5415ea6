"""Bands of those who wait at limiters, gates and buckets, by hand and by key, also for threads."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

import headgate
import headgate.sync
from headgate import InvalidValue
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
BANDS = {"batch-*": 6}
CALLERS = (("last", {"band": 7}), ("batch", {"key": "batch-1"}), ("usual", {"key": "x"}), ("first", {"band": 0}))


async def order_of(
    admit: Callable[..., AbstractAsyncContextManager[Any]], state: Callable[[], Awaitable[Any]],
    callers: Iterable[tuple[str, dict[str, Any]]] = CALLERS,
) -> list[str]:  # fmt: skip
    """Have callers wait together, and return who was admitted when."""
    order: list[str] = []

    async def call(name: str, terms: dict[str, Any]) -> None:
        async with admit(timeout=GUARD, **terms):
            order.append(name)

    async def waiting(count: int) -> None:
        async def all_wait() -> bool:
            return bool((await state()).waiting >= count)

        await wait_until(all_wait, timeout=GUARD)

    async with asyncio.TaskGroup() as group, admit(timeout=GUARD, band=3):
        for count, (name, terms) in enumerate(callers, 1):
            group.create_task(call(name, terms))
            await waiting(count)
    return order


async def test_the_better_band_goes_first_at_limiters_and_gates(client: headgate.Client) -> None:
    """Mutants: a band is not asked for; a gate has its callers wait without it."""
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 1}}, bands=BANDS)
    await client.apply("db", kind="gate", limit=1, bands=BANDS)
    session = client.session("s")
    limiter, gate = await session.limiter("llm"), await session.gate("db")

    def admit(**terms: Any) -> AbstractAsyncContextManager[Any]:
        return limiter.admit(slots=1, **terms)

    assert await order_of(admit, limiter.state) == ["first", "usual", "batch", "last"]
    assert await order_of(gate.admit, gate.state) == ["first", "usual", "batch", "last"]


async def test_what_is_no_band_is_refused_wherever_one_is_named(client: headgate.Client) -> None:
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 1}})
    await client.apply("mails", kind="bucket", rate=100, burst=10)
    session = client.session("s")
    limiter, gate, bucket = await session.limiter("llm"), await session.gate("db"), await session.bucket("mails")
    for band in (8, -1, 1.0, True, "3"):
        wrong: Any = band
        for call in (
            lambda band=wrong: limiter.admit(slots=1, band=band),
            lambda band=wrong: limiter.try_admit(slots=1, band=band),
            lambda band=wrong: gate.admit(1, band=band),
        ):
            with pytest.raises(InvalidValue, match="band"):
                call()
        for ask in (limiter.attempt(slots=1, band=wrong), gate.attempt(1, band=wrong), bucket.take(1, band=wrong)):
            with pytest.raises(InvalidValue, match="band"):
                await ask
    await bucket.take(1, band=0)
    assert await bucket.try_take(1, band=7)


async def test_a_band_is_in_hand_of_its_own(client: headgate.Client) -> None:
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 1000}})
    limiter = await client.session("s").limiter("llm")

    async def in_hand() -> bool:
        hold = limiter.try_admit(slots=1, band=0)
        if isinstance(hold, headgate.Hold):
            hold.release()
        return isinstance(hold, headgate.Hold)

    await wait_until(in_hand, timeout=GUARD)


@pytest.mark.usefixtures("cleanup_namespace")
def test_threads_name_bands_too(redis_url: str, namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=namespace) as client:
        client.apply("llm", kind="limiter", limits={"slots": {"at_once": 2}})
        client.apply("mails", kind="bucket", rate=100, burst=10)
        session = client.session("s")
        with session.limiter("llm").admit(slots=1, band=0) as hold, session.gate("db").admit(1, band=7):
            assert hold.amounts == {"slots": 1}
        session.bucket("mails").take(1, band=5)
        with pytest.raises(InvalidValue, match="band"):
            session.limiter("llm").admit(slots=1, band=8)


async def test_the_last_bands_are_shed_and_a_part_is_kept_for_the_first(client: headgate.Client) -> None:
    """Mutants: a band waits where it is to be refused; the error does not say why; what is kept goes to anybody."""
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 4}}, reserve={"3": 0.5}, shed={"6": 0.5})
    limiter = await client.session("s").limiter("llm")
    async with limiter.admit(slots=1, band=0, timeout=GUARD), limiter.admit(slots=1, band=0, timeout=GUARD):
        with pytest.raises(headgate.Shed, match="'slots' is filled to 50%, where band 6 is shed") as shed:
            await limiter.admit(slots=1, band=6, timeout=GUARD)
        assert (shed.value.band, shed.value.limit, shed.value.fill) == (6, "slots", 0.5)
        assert not await limiter.attempt(slots=1, band=4), "what is left is kept for better bands"
        async with limiter.admit(slots=1, band=3, timeout=GUARD):
            pass
