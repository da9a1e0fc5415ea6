"""Clients that come through a node, in place of those on Redis that tests/sdk has."""

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

import headgate
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from tests.sdk.scene import Scene


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    """A node in this process, for everybody."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
        node = Node(behind, NodeOptions(port=0), Users.from_redis(behind))
        await node.start()
        try:
            yield node
        finally:
            await node.close()


@pytest.fixture
async def client(node: Node, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(f"amqp://{node.address}", namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
async def other(node: Node, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    """A second client of the same namespace, over a connection of its own."""
    async with headgate.connect(f"amqp://{node.address}", namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
async def scene(client: headgate.Client, redis_url: str) -> AsyncIterator[Scene]:
    async with redis.asyncio.Redis.from_url(redis_url) as direct:
        yield Scene(client, direct)
