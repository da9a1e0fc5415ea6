"""The broker nodes of a namespace are registered here."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from headgate.redis.backend import Backend, call
from headgate.redis.keys import node_keys

PARTS: Final = 16
"""The parts of a sweep, each of which falls to one node in a round."""
ASKED: Final = 256
"""Nodes that one call asks for."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat holds a node's last report, and the ms since then by Redis' clock."""

    node: str
    silent_ms: int
    entry: str


class NodeStore:
    """A node store keeps the nodes of one namespace; one that was not heard of for ``stale_ms`` is there no more."""

    def __init__(self, server: Backend, namespace: str, stale_ms: int) -> None:
        self._server = server
        self._keys = node_keys(namespace)
        self._stale_ms = stale_ms

    async def beat(self, node: str, entry: str) -> list[int]:
        """Say that a node is there, and what it says about itself; returns the parts of a sweep that fall to it."""
        _, first, count = await self._call("beat", node, entry)
        return [(int(first) + at) % PARTS for at in range(int(count))]

    async def leave(self, node: str) -> None:
        """Take a node out; one that is not there does not matter."""
        await self._call("leave", node)

    async def there(self) -> list[Heartbeat]:
        """Return the nodes that are there, the latest beats first; at most 1,000."""
        _, *flat = await self._call("list")
        return [
            Heartbeat(flat[i].decode(), int(flat[i + 1]), (flat[i + 2] or b"").decode()) for i in range(0, len(flat), 3)
        ]

    async def among(self, nodes: Collection[str]) -> set[str]:
        """Return those of some nodes that are there."""
        ids, found = sorted(nodes), set[str]()
        for at in range(0, len(ids), ASKED):
            _, *there = await self._call("ask", entry=" ".join(ids[at : at + ASKED]))
            found |= {node.decode() for node in there}
        return found

    async def _call(self, mode: str, node: str = "-", entry: str = "-") -> list[bytes]:
        stale_ms = self._stale_ms
        reply: list[bytes] = await call(
            self._server, "node", self._keys, mode=mode, node=node, stale_ms=stale_ms, entry=entry
        )
        return reply
