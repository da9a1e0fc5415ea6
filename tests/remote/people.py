"""A node in this process with users, its AMQP clients, and SDKs that come as one of them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import headgate
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Action
from tests.amqp.client import Peer
from tests.remote.grants import People, users


@asynccontextmanager
async def node_with(
    redis_url: str, namespace: str, people: dict[str, dict[str, set[Action]]], **options: Any
) -> AsyncIterator[Node]:
    """A node that these may come to."""
    async with headgate.connect(redis_url, namespace=namespace) as behind:
        node = Node(behind, NodeOptions(port=0, plain_without_tls=True, **options), users(**people))
        await node.start()
        try:
            yield node
        finally:
            await node.close()


def people_of(node: Node) -> People:
    return cast(People, node.users)


@asynccontextmanager
async def sdk_as(node: Node, name: str) -> AsyncIterator[headgate.Client]:
    """An SDK that comes as a user."""
    url = f"amqp://{name}:secret@{node.address}"
    async with headgate.connect(url, namespace=node.client.namespace) as client:
        yield client


@asynccontextmanager
async def peer_as(node: Node, name: str, container: str = "") -> AsyncIterator[Peer]:
    """An AMQP client that comes as a user."""
    peer = await Peer.connect(node.port, container or name, user=name)
    try:
        yield peer
    finally:
        await peer.close()


class Taken:
    """What a receiving link was sent; accepted at once."""

    def __init__(self) -> None:
        self.raw: list[bytes] = []

    def __call__(self, link: Any, message: bytes, delivery: Any) -> None:
        self.raw.append(message)
        if delivery is not None:
            link.settle(delivery)
