"""Keys take turns over the slices of a queue for users of a node: SDKs behind it, and AMQP clients."""

import asyncio
from collections import Counter
from typing import Any

from headgate.amqp.link import Link
from headgate.core.limits.turns_over_slices import FIRST
from tests.amqp.client import read
from tests.remote.grants import C, P
from tests.remote.people import node_with, peer_as, sdk_as
from tests.sdk.consuming.test_turns_over_slices import RULE, send, take, tenants_of
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

PEOPLE = {"maker": {"orders": {P}}, "worker": {"orders": {C}}}
ALONE, TOGETHER = tenants_of(2, 1, 7)
TENANTS = [*ALONE, *TOGETHER]
WINDOW = 5
BOUND = 2 * (3 * WINDOW / len(TENANTS) + 2) + FIRST
"""How far two consumers with such a window may have tenants apart."""


async def test_a_tenant_gets_as_much_alone_in_its_slice_over_sdks(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: slices are fetched from by turns."""
    async with node_with(redis_url, cleanup_namespace, PEOPLE) as node:
        await node.client.apply("orders", kind="queue", slices=2, **RULE)
        async with sdk_as(node, "maker") as maker, sdk_as(node, "worker") as worker:
            async with maker.session("s") as session:
                await send(session, TENANTS, 30)
            served = Counter(dict.fromkeys(TENANTS, 0))
            assert await take(worker, served, [WINDOW, WINDOW], 160) <= BOUND, served


async def test_a_tenant_gets_as_much_alone_in_its_slice_over_amqp(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: slices are fetched from by turns."""
    served, apart = Counter(dict.fromkeys(TENANTS, 0)), 0

    def took(link: Link, message: bytes, delivery: Any) -> None:
        nonlocal apart
        served[read(message)] += 1
        if served.total() <= 160:  # by then each tenant has more
            apart = max(apart, max(served.values()) - min(served.values()))
        link.settle(delivery)
        link.set_credit(WINDOW)

    async with node_with(redis_url, cleanup_namespace, PEOPLE) as node:
        await node.client.apply("orders", kind="queue", slices=2, **RULE)
        async with sdk_as(node, "maker") as maker, maker.session("s") as session:
            producer = await session.producer("orders")
            await asyncio.gather(
                *(producer.send(tenant, headers={"tenant": tenant}, timeout=GUARD) for tenant in TENANTS * 30)
            )
        async with peer_as(node, "worker", "one") as one, peer_as(node, "worker", "two") as two:
            for peer in (one, two):
                await peer.receiver("orders", took, credit=WINDOW)
            await wait_until(lambda: served.total() == 30 * len(TENANTS), timeout=GUARD)
        assert apart <= BOUND, served
