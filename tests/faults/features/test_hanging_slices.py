"""A consumer of slices goes on where one master hangs, and never has more than its window in hand."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from itertools import count
from typing import Any

import pytest

import headgate
from headgate.core.limits.spread import Spread
from headgate.core.names import slice_name
from headgate.message import encode
from headgate.redis.keys import Address
from tests.faults.deployments import ask
from tests.faults.test_slices import node_of
from tests.faults.traffic import GUARD
from tests.support.cluster import RedisCluster3

pytestmark = pytest.mark.one_server
TENANT = "header:tenant"
NAMES = tuple(f"t{number}" for number in range(9))
EACH = 8
TURNS: dict[str, Any] = {"fair_by": TENANT}
BYTES = headgate.Window(bytes=150)
"""Ten messages."""
RULES: tuple[tuple[dict[str, Any], Any], ...] = (
    ({}, 4), (TURNS, 4), ({}, "pull"), (TURNS, 1), ({}, BYTES), (TURNS, BYTES),
)  # fmt: skip


def places(namespace: str, name: str) -> list[int]:
    """Return at which master each slice of a queue lies."""
    return [node_of(Address.of(namespace, slice_name(name, number)).key) for number in range(3)]


class Queue:
    """A queue, what is left in it of each tenant, and a consumer under a window of so many messages."""

    def __init__(self, name: str, window: Any, namespace: str) -> None:
        self.name, self.window = name, window
        self.most = {1: 1, 4: 4, "pull": 1}.get(window, 10)
        self.left = Counter(dict.fromkeys(NAMES, EACH))
        lie = {tenant: Spread(1, 3, TENANT).slice_of_stored(encode(b"", {"tenant": tenant}), "") for tenant in NAMES}
        self.at = {tenant: places(namespace, name)[lie[tenant]] for tenant in NAMES}

    async def open(self, session: headgate.Session) -> None:
        producer = await session.producer(self.name)
        sends = (producer.send(b"x", headers={"tenant": name}, timeout=GUARD) for name in NAMES for _ in range(EACH))
        await asyncio.gather(*sends)
        self.consumer = await session.consumer(self.name, window=self.window)
        await self.take(set(), most=12)

    async def take(self, without: set[int], most: int = EACH * len(NAMES)) -> None:
        """Take until so many came, or nothing is left but at these masters."""
        for _ in range(most):
            if not any(self.left[name] for name in NAMES if self.at[name] not in without):
                return
            message = await self.consumer.receive(timeout=GUARD)
            assert message is not None, f"{self.name} stands still, with {self.left}"
            assert len(self.consumer.inbox.buffer) < self.most, self.name
            self.left[message.headers["tenant"]] -= 1
            await message.accept()


async def test_no_consumer_waits_for_a_master_that_hangs_with_half_of_its_window(cleanup_namespace: str) -> None:
    """Mutants: what is settled there counts, or what it is asked for; what it brings after all is kept."""
    with RedisCluster3.start() as cluster:
        for node in cluster.nodes:
            ask(node, "CONFIG", "SET", "cluster-node-timeout", "600000")  # nobody says that one is away
        async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client, AsyncExitStack() as stack:
            spread = (name for name in map("orders-{}".format, count()) if len({*places(client.namespace, name)}) == 3)
            queues = [Queue(name, window, client.namespace) for name, (_, window) in zip(spread, RULES, strict=False)]
            for queue, (rule, _) in zip(queues, RULES, strict=True):
                await client.apply(queue.name, kind="queue", slices=3, order_by=TENANT, **rule)
                await queue.open(await stack.enter_async_context(client.session(f"s-{queue.name}")))
            cluster.nodes[1].sigstop()
            try:
                await asyncio.gather(*(queue.take({1}) for queue in queues))
            finally:
                cluster.nodes[1].sigcont()
            await asyncio.gather(*(queue.take(set()) for queue in queues))
            assert all(set(queue.left.values()) == {0} for queue in queues), "none is lost, and none comes twice"
