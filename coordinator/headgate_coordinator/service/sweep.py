"""Nodes sweep what nobody calls any more: leases that ended, reply queues whose link is gone, moves that broke off.

Every script that runs on a destination sweeps it, so this is for those that are left alone. The nodes of a namespace
share the work: each takes the destinations that fall to it by a hash of their names.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable
from typing import Final

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.sliced_reads import every_slice
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.fleet.reply_queues import owner_of

_log = logging.getLogger("headgate.node")
EVERY: Final = 5.0
"""Seconds between two rounds."""
BROKE_OFF_MS: Final = 10_000
"""Ms after which whoever moves a message by hand is taken for dead: a move takes some ms, and no call 10 s."""
PAGE: Final = 100
"""Destinations that are looked at in one write."""


class Sweep:
    """Rounds over the destinations of a namespace.

    Args:
        client: connected.
        registry: of the nodes that share the work.
        node: which of them this is.
        local: the reply queues that are open here.
    """

    def __init__(self, client: Client, registry: NodeRegistry, node: str, local: Callable[[], set[str]]) -> None:
        self._client = client
        self._registry = registry
        self._node = node
        self._local = local
        self._dead: set[str] = set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.round()
            except HeadgateError as error:
                _log.debug("a sweep ended early: %s", error)

    async def round(self) -> None:
        """Look once at all destinations that fall to this node.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        nodes, names = await self._nodes(), await every_slice(self._client.store.server, self._client.namespace)
        mine = self._falls_here(names, nodes)
        for at in range(0, len(mine), PAGE):
            await self._reap(mine[at : at + PAGE])
        owners = {name: owner for name in names if (owner := owner_of(name)) is not None}
        own = {name for name, owner in owners.items() if owner == self._node} - self._local()
        await self._remove_replies(own | {name for name in mine if owners.get(name, self._node) not in nodes})

    async def mine(self) -> list[str]:
        """Return the destinations that fall to this node.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        return self._falls_here(await self._client.destinations(), await self._nodes())

    def _falls_here(self, names: list[str], nodes: list[str]) -> list[str]:
        position = nodes.index(self._node)
        return [name for name in names if zlib.crc32(name.encode()) % len(nodes) == position]

    async def _nodes(self) -> list[str]:
        return sorted({entry.id for entry in await self._registry.list()} | {self._node})

    async def _reap(self, names: list[str]) -> None:
        addresses = [Address.of(self._client.namespace, name) for name in names]
        server = self._client.store.server
        counts = await server.burst([
            (a.shared[0], words)
            for a in addresses
            for one in (a, a.by_key)
            for words in ((b"ZCARD", one.shared[2]), (b"HLEN", f"{one.key}:keyed"))
        ])  # fmt: skip
        moving = await server.burst([(a.shared[0], (b"HEXISTS", a.shared[0], b"moving")) for a in addresses])
        for at, address in enumerate(addresses):
            own, by_key = (
                any(isinstance(n, int) and n > 0 for n in counts[first : first + 2]) for first in (4 * at, 4 * at + 2)
            )
            if own and (await self._client.store.reap(address))[0] == "KIND":
                await LimiterStore(server).sweep(address)
            if by_key:
                await LimiterStore(server).sweep(address.by_key)
            if moving[at] == 1 and (ended := await self._client.end_moves(address.name, older_than_ms=BROKE_OFF_MS)):
                _log.warning("%d messages of %r that were being moved by hand, as somebody died, are in their place",
                             ended, address.shown)  # fmt: skip

    async def _remove_replies(self, orphans: set[str]) -> None:
        """Remove the reply queues that were orphans in two rounds, one after the other."""
        for name in orphans & self._dead:
            await self._client.remove(name)
        self._dead = orphans
