"""Sessions of one client that wait at a queue with slices look at these together."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from typing import Any

import pytest

import headgate
from headgate import CreditTimeout
from headgate.redis.keys import Address
from headgate.redis.stores.slice_looks import SliceLooks
from tests.sdk.observing import GUARD

pytestmark = pytest.mark.one_server


async def test_those_who_wait_read_the_slices_of_others_once_for_all(client: headgate.Client) -> None:
    """Mutants: each reads all slices by itself; its own place is read for another."""
    await client.apply("orders", kind="queue", limit=1000, slices=4)
    calls, call = Counter[str](), client.store.server.call

    async def counted(op: Any, keys: Any, argv: Any) -> Any:
        calls[op.name] += 1
        return await call(op, keys, argv)

    async with AsyncExitStack() as stack:
        filler = await stack.enter_async_context(client.session("filler"))
        await (await filler.producer("orders", window=1000)).send(b"x" * 900, timeout=GUARD)
        sessions = [await stack.enter_async_context(client.session(f"s{at}")) for at in range(16)]
        producers = [await session.producer("orders", window=1) for session in sessions]
        client.store.server.call = counted  # type: ignore[method-assign, assignment]

        async def refused(producer: headgate.Producer) -> CreditTimeout:
            with pytest.raises(CreditTimeout) as caught:
                await producer.send(b"x" * 500, timeout=1.8)
            return caught.value

        errors = await asyncio.gather(*map(refused, producers))
        client.store.server.call = call  # type: ignore[method-assign]
    looks = [error.explanation for error in errors]
    for look, session in zip(looks, sessions, strict=True):
        assert look is not None
        assert (look.destination, look.session) == ("orders", session.id)
        assert look.place
    assert calls["snapshot"] < 4 * 16 * 2, "that is two looks of each, were each to read all slices"


async def test_a_look_that_failed_is_made_again_and_nobody_waits_for_one_that_gave_up() -> None:
    """Mutants: a failure is shared for half a second; the first to give up takes the look away from the others."""
    answers: list[Any] = [headgate.CoordinatorUnavailable("away"), None, None]
    going = asyncio.Event()

    async def read(address: Address, session: str, entries: int) -> None:
        await going.wait()
        if isinstance(answer := answers.pop(0), Exception):
            raise answer

    looks, part = SliceLooks(read), Address.of("shop", "orders#1")
    first, second = (asyncio.ensure_future(looks.snapshot(part, "s", 0)) for _ in range(2))
    await asyncio.sleep(0)
    first.cancel()
    going.set()
    with pytest.raises(headgate.CoordinatorUnavailable):
        await second
    assert await looks.snapshot(part, "s", 0) is None
    assert await looks.snapshot(part, "s", 0) is None
    assert len(answers) == 1, "a moment later the same answer does"
