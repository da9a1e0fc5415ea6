"""Nodes sweep what nobody calls any more: leases that ended, reply queues whose link is gone, moves that broke off.

Every script that runs on a destination or a spool store sweeps it, so this is for those that are left alone. The nodes
of a namespace share the work: a hash of its name says which part of the sweep a destination is in, and each part falls
to one node a round, whichever beats first as it is due. So all nodes together look as often as one does alone.
"""

import asyncio
import logging
import zlib
from collections.abc import Callable, Collection, Iterable
from typing import Final

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.redis.keys import Address, parse_key, parse_store_key
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.nodes import PARTS
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.fleet.reply_queues import owner_of

_log = logging.getLogger("headgate.node")
EVERY: Final = 5.0
"""Seconds between two rounds."""
OWN_EVERY: Final = 30.0
"""Seconds between two looks of a node at its own reply queues, where no part falls to it before."""
ALL: Final = frozenset(range(PARTS))
BROKE_OFF_MS: Final = 10_000
"""Ms after which whoever moves a message by hand is taken for dead: a move takes some ms, and no call 10 s."""
MOST_REAPS: Final = 256
"""Sweeps of one destination in a round; each looks at some of the leases that are over."""
PAGE: Final = 100
"""Destinations and stores that are looked at in one write."""


def within(parts: Collection[int], names: Iterable[str]) -> list[str]:
    """Return the destinations, or spool stores, in some parts of the sweep."""
    return [name for name in names if zlib.crc32(name.encode()) % PARTS in parts] if parts else []


class SweepTurn:
    """A sweep turn holds the parts of a sweep that fell to a node, until it takes them."""

    def __init__(self) -> None:
        self._parts: set[int] = set()

    def add(self, parts: Iterable[int]) -> None:
        """Have more parts fall to the node."""
        self._parts.update(parts)

    def take(self) -> frozenset[int]:
        """Return the parts, which are the node's no more."""
        parts, self._parts = frozenset(self._parts), set()
        return parts


class Sweep:
    """A sweep goes in rounds over the destinations of a namespace, and its spool stores.

    Args:
        client: connected.
        registry: of the nodes that share the work.
        node: which of them this is.
        local: the reply queues that are open here.

    Attributes:
        turn: the parts that fell to this node and were not looked at since.
    """

    def __init__(self, client: Client, registry: NodeRegistry, node: str, local: Callable[[], set[str]]) -> None:
        self.turn = SweepTurn()
        self._client = client
        self._registry = registry
        self._node = node
        self._local = local
        self._dead: set[str] = set()

    async def run(self) -> None:
        """Sweep until cancelled."""
        loop, own_at = asyncio.get_running_loop(), 0.0
        while True:
            await asyncio.sleep(EVERY)
            parts = self.turn.take()
            if not (parts or self._dead or loop.time() >= own_at):
                continue
            own_at = loop.time() + OWN_EVERY
            try:
                await self.round(parts)
            except HeadgateError as error:
                _log.debug("a sweep ended early: %s", error)

    async def round(self, parts: Collection[int] = ALL) -> None:
        """Look once at all destinations and spool stores of some parts.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        namespace = self._client.namespace
        keys = await self._client.store.server.scan(f"hg:{{{namespace}/*}}")
        names = [parsed[1] for key in keys if (parsed := parse_key(key))]
        stores = [parsed[1] for key in keys if (parsed := parse_store_key(key))]
        mine = within(parts, names)
        addresses = [Address.of(namespace, name) for name in mine]
        addresses += [Address.of_store(namespace, name) for name in within(parts, stores)]
        for at in range(0, len(addresses), PAGE):
            await self._reap(addresses[at : at + PAGE])
        owners = {name: owner for name in names if (owner := owner_of(name)) is not None}
        own = {name for name, owner in owners.items() if owner == self._node} - self._local()
        # Those that were orphans before are looked at again here, whoever has their part now.
        others = {name: owners[name] for name in (*mine, *self._dead) if owners.get(name, self._node) != self._node}
        there = await self._registry.among(set(others.values()))
        await self._remove_replies(own | {name for name, owner in others.items() if owner not in there})

    async def _reap(self, addresses: list[Address]) -> None:
        server = self._client.store.server
        counts = await server.burst([
            (a.shared[0], words)
            for a in addresses
            for one in (a, a.by_key)
            for words in ((b"ZCARD", one.shared[2]), (b"HLEN", f"{one.key}:keyed"))
        ])  # fmt: skip
        fields = (b"moving", b"sliced", b"kind")
        found = await server.burst([(a.shared[0], (b"HMGET", a.shared[0], *fields)) for a in addresses])
        for at, address in enumerate(addresses):
            own, by_key = (
                any(isinstance(n, int) and n > 0 for n in counts[first : first + 2]) for first in (4 * at, 4 * at + 2)
            )
            if own and await self._reaped(address) == "KIND":
                await LimiterStore(server).sweep(address)
            if by_key:
                await LimiterStore(server).sweep(address.by_key)
            moving, sliced, kind = found[at] if isinstance(found[at], list) else (None, None, None)
            if sliced is not None and kind == b"limiter":
                await self._client.parts.registry.pinned.tidy(address)
            name = address.shown
            if moving is not None and (ended := await self._client.end_moves(name, older_than_ms=BROKE_OFF_MS)):
                _log.warning("%d messages of %r that a client was moving by hand as it died are back in their place",
                             ended, name)  # fmt: skip

    async def _reaped(self, address: Address) -> str:
        """Sweep a destination until none of the leases there is over; returns the code."""
        code, more_ms, calls = "OK", 0, 0
        while code == "OK" and more_ms == 0 and calls < MOST_REAPS:
            code, more_ms = await self._client.store.reap(address)
            calls += 1
        return code

    async def _remove_replies(self, orphans: set[str]) -> None:
        """Remove the reply queues that were orphans in two rounds, one after the other."""
        for name in orphans & self._dead:
            await self._client.remove(name)
        self._dead = orphans
