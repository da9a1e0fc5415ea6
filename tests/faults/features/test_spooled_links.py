"""A link that stores by reference where memory has no room, over failovers: once, in order, and no segment left."""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.policy import loads
from headgate_coordinator.operate.audit_stores import audit_stores
from tests.amqp.node_processes import nodes
from tests.faults.failovers import as_user, each_failover, hands_over, violated
from tests.faults.traffic import GUARD
from tests.links.forwarding.test_failovers import Pair
from tests.links.policy.test_bridges import bridges, fields
from tests.support.spooled import PAYLOAD, body, number_of, segments, spooling
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.one_server, pytest.mark.timeout(300)]
COUNT = 60


async def forwarded(client: headgate.Client) -> bool:
    """Tell whether nothing is left at the source."""
    try:
        return (await fields(client, "orders")).get("pending_messages") == "0"
    except headgate.CoordinatorUnavailable:
        return False


@pytest.mark.soak
@each_failover
async def test_references_of_a_link_outlive_a_failover(
    pair: Pair, cleanup_namespace: str, tmp_path: Path, fault: Callable[..., Any]
) -> None:
    """What is lost is lost at the source as well; a repair deletes its segments, though the link goes on."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        await enter(pair.proxy)
        client = await enter(headgate.connect(pair.proxy.url, namespace=cleanup_namespace))
        client.parts.registry._ttl_ms = 1000
        await spooling(client, tmp_path, "billing", memory=5 * PAYLOAD)
        await client.apply_policy(loads(bridges(("orders", "billing"))))
        started = ExitStack()
        stack.push_async_callback(asyncio.to_thread, started.close)
        url = as_user(pair, cleanup_namespace, "node")
        await asyncio.to_thread(started.enter_context, nodes(url, cleanup_namespace, 1, "--ttl", 2))
        session = await enter(client.session(ttl=2.0))
        producer, consumer = await session.producer("orders"), await session.consumer("billing", window=1)

        async def send(first: int) -> None:
            numbers = range(first, first + COUNT)
            await asyncio.gather(*(producer.send(body(number), timeout=GUARD) for number in numbers))
            await wait_until(lambda: forwarded(client), timeout=GUARD, description="all is at the target")

        await send(0)
        assert int((await fields(client, "billing"))["spooled_bytes"]) > COUNT // 2 * PAYLOAD

        await fault(pair, lambda: send(COUNT))
        await send(2 * COUNT)
        got: list[int] = []

        async def taken() -> bool:
            while (message := await consumer.receive(timeout=0.2)) is not None:
                got.append(number_of(message.body))
                await message.accept()
            with suppress(headgate.CoordinatorUnavailable):
                return (await client.recount("billing")).stored[1] == 0
            return False

        await wait_until(taken, timeout=GUARD, description="all was received")
        lost = set() if fault is hands_over else set(range(COUNT, 2 * COUNT))
        assert got == [number for number in range(3 * COUNT) if number not in lost]
        assert (await client.recount("billing")).equal

        async def clean() -> bool:
            with suppress(headgate.CoordinatorUnavailable):
                await audit_stores(client, repair=True)
            return not segments(tmp_path)

        await wait_until(clean, timeout=GUARD, description="no segment is left")
        (store,) = await client.stores()
        assert store.held == 0
        assert violated(pair, cleanup_namespace, "orders", "billing") == []
