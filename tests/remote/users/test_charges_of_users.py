"""What a user sends over a node is charged to its quota once, whatever is lost between the node and Redis."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from headgate import CoordinatorUnavailable
from headgate.policy import loads
from headgate.redis.scripts import Script
from headgate_coordinator.node.node import Node
from tests.remote.grants import P
from tests.remote.people import node_with, sdk_as
from tests.sdk.observing import GUARD

pytestmark = pytest.mark.one_server
QUOTA = '[[user_limit]]\nname = "tenants"\nusers = ["ann"]\nrate = "10000/h"\nbyte_rate = "1MB/h"\n'


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    async with node_with(redis_url, cleanup_namespace, {"ann": {"q": {P}}}) as node:
        await node.client.apply_policy(loads(QUOTA))
        yield node


@pytest.mark.parametrize("applied", [True, False])
async def test_a_batch_whose_answer_is_lost_is_charged_once(
    node: Node, monkeypatch: pytest.MonkeyPatch, *, applied: bool
) -> None:
    """Mutants: a batch that comes again is charged again; one that was stored the first time is given back."""
    server = node.client.store.server
    call = server.call
    lost: list[Any] = []

    async def losing(op: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        if op.name == "publish" and len(lost) < 3:
            lost.append(argv[op.arguments.index("seq")])
            if applied:
                await call(op, keys, argv)
            raise CoordinatorUnavailable("no answer")
        return await call(op, keys, argv)

    monkeypatch.setattr(server, "call", losing)
    async with sdk_as(node, "ann") as ann, ann.session("s") as session:
        producer = await session.producer("q")
        await asyncio.gather(*(producer.send(b"x" * 100, timeout=GUARD) for _ in range(40)))
    assert len(lost) == 3
    async with node.client.session("look") as session:
        limiter = await session.limiter("user-limits.tenants", in_hand=False)
        levels = (await limiter.state(key="ann")).key_limits
    assert 40 <= levels["messages"].taken <= 42, "a slice may be in hand"
    assert 4000 <= levels["bytes"].taken <= 4400
