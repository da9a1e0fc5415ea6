"""Limits that adapt and shadow limits, over failovers: one course for all, that is gone on with, and nobody held up."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

import pytest

import headgate
from headgate.explain.levels import Adapting
from headgate.policy import loads
from tests.faults.failovers import as_user, each_failover, hands_over, violated
from tests.faults.traffic import GUARD, Holder, Inside
from tests.links.forwarding.test_failovers import Pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
TTL: Final = 2.0
MOST: Final = 8


async def adapting(limiter: headgate.Limiter) -> tuple[int, Adapting]:
    async def state() -> headgate.LimiterState | None:
        try:
            return await limiter.state()
        except headgate.CoordinatorUnavailable:
            return None

    known = await wait_until(state, timeout=GUARD)
    assert known is not None
    found = known["calls"]
    assert found.adapting is not None
    return found.limit, found.adapting


@each_failover
async def test_a_limit_that_adapts_goes_on_from_where_it_was(
    pair: Pair, cleanup_namespace: str, fault: Callable[..., Any]
) -> None:
    """As far as the new master knows; and never more are inside than it may ever be."""
    inside = Inside()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        admin = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        limits = {"calls": {"at_once": {"min": 2, "max": MOST, "adapt": "aimd"}}}
        await admin.apply("search", kind="limiter", limits=limits)
        url = as_user(pair, cleanup_namespace, "sdk")
        holders, limiters = [], []
        for _ in range(2):
            session = await enter((await enter(headgate.connect(url, namespace=cleanup_namespace))).session(ttl=TTL))
            limiters.append(await session.limiter("search"))
            calls = SimpleNamespace(admit=partial(limiters[-1].admit, calls=1))
            holders += [await enter(Holder(calls, inside)) for _ in range(MOST)]

        async def is_at(least: int) -> bool:
            return (await adapting(limiters[0]))[0] >= least

        await wait_until(partial(is_at, 4), timeout=GUARD, description="it grew")
        before = await adapting(limiters[0])

        async def work() -> None:
            await wait_until(partial(is_at, 6), timeout=GUARD, description="it grew further")

        await fault(pair, work)
        limit, now = await adapting(limiters[0])
        assert limit >= before[0], "it did not begin anew"
        assert now.outcomes["ok"] >= before[1].outcomes["ok"]
        await wait_until(partial(is_at, MOST), timeout=GUARD, description="it is at its most")
        await asyncio.gather(*(holder.goes_on() for holder in holders))
        assert inside.most <= MOST
        assert violated(pair, cleanup_namespace, "search") == []


@each_failover
async def test_a_shadow_limit_holds_nobody_up_while_state_is_learnt_anew(
    pair: Pair, cleanup_namespace: str, fault: Callable[..., Any]
) -> None:
    """Alone it stands beside a limit that binds nothing; its count is what the master in charge knows."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        admin = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        rule = '[[limiter]]\nmatch = "{}"\n[[limiter.limit]]\nname = "{}"\n{}\nenforce = "shadow"\n'
        await admin.apply_policy(
            loads(rule.format("slots", "slots", "at_once = 1") + rule.format("calls", "calls", 'rate = "1/h"'))
        )
        url = as_user(pair, cleanup_namespace, "sdk")
        limiters = []
        for _ in range(2):
            session = await enter((await enter(headgate.connect(url, namespace=cleanup_namespace))).session(ttl=GUARD))
            limiters.append({name: await session.limiter(name, in_hand=False) for name in ("slots", "calls")})

        async def would_wait(name: str) -> int:
            return (await limiters[0][name].state()).would_wait

        held = []

        async def work() -> None:
            for both in limiters:
                held.extend(
                    [
                        await both["slots"].admit(timeout=GUARD, slots=1),
                        await both["calls"].admit(timeout=GUARD, calls=1),
                    ]
                )

        await work()
        await fault(pair, work)
        counted = {name: await would_wait(name) for name in limiters[0]}
        async with asyncio.timeout(GUARD / 2):  # the longest lease is longer
            await work()
        known = 3 if fault is hands_over else 1
        for name, before in counted.items():
            assert before == known, (name, before)
            assert await would_wait(name) == known + 2, name
        for hold in held:
            hold.release()
        assert violated(pair, cleanup_namespace, "slots", "calls") == []
