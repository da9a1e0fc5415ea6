"""Bands of those who wait, over failovers: who was first is first, and nothing is admitted above a limit."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, Final

import pytest

import headgate
from tests.faults.failovers import as_user, each_failover, violated
from tests.faults.traffic import GUARD, Inside
from tests.links.forwarding.test_failovers import Pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
TTL: Final = 2.0
CALLERS: Final = (("last", 7), ("usual", 3), ("batch", 6), ("first", 0))


def admission(limits: Any, band: int) -> AbstractAsyncContextManager[Any]:
    """Return an admission by a gate or a limiter, that waits."""
    amounts = {"slots": 1} if isinstance(limits, headgate.Limiter) else {}
    admitted: AbstractAsyncContextManager[Any] = limits.admit(band=band, timeout=GUARD, **amounts)
    return admitted


@each_failover
@pytest.mark.parametrize("kind", ["limiter", pytest.param("gate", marks=pytest.mark.soak)])
async def test_bands_wait_in_their_order_over_a_failover(
    pair: Pair, cleanup_namespace: str, kind: str, fault: Callable[..., Any]
) -> None:
    """Who waited is in line again, also where the new master knows of none of them."""
    inside, order = Inside(), list[str]()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        admin = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        how: dict[str, Any] = {"limits": {"slots": {"at_once": 1}}} if kind == "limiter" else {"limit": 1}
        await admin.apply("llm", kind=kind, **how)
        url = as_user(pair, cleanup_namespace, "sdk")
        opened: list[Any] = []
        for _ in range(2):
            session = await enter((await enter(headgate.connect(url, namespace=cleanup_namespace))).session(ttl=TTL))
            opened.append(await (session.limiter("llm") if kind == "limiter" else session.gate("llm")))
        tasks = await enter(asyncio.TaskGroup())

        async def call(number: int, name: str, band: int) -> None:
            async with admission(opened[number % 2], band):
                inside.now += 1
                inside.most = max(inside.most, inside.now)
                order.append(name)
                await asyncio.sleep(0.02)
                inside.now -= 1

        async def wait(count: int) -> None:
            async def all_wait() -> bool:
                try:
                    return bool((await opened[0].state()).waiting >= count)
                except headgate.CoordinatorUnavailable:
                    return False

            await wait_until(all_wait, timeout=GUARD, description=f"{count} wait")

        async def all_come() -> None:
            for number, (name, band) in enumerate(CALLERS):
                tasks.create_task(call(number, name, band))
                await wait(number + 1)

        async with admission(opened[0], 3):
            inside.now = 1
            await fault(pair, all_come)
            await wait(len(CALLERS))
            inside.now = 0
        await wait_until(lambda: len(order) == len(CALLERS), timeout=GUARD, description="all were admitted")
        assert order == ["first", "usual", "batch", "last"]
        assert inside.most == 1
        assert violated(pair, cleanup_namespace, "llm") == []
