"""A sweep deletes segments that nobody else does: spent ones of destinations left alone, and those that are nobody's.

The users of a destination sweep it, so this is for those that nobody uses; nodes share them as they do when they reap
leases. For orphans one node at a time looks; two at once do no harm.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.redis.keys import Address
from headgate_coordinator.fleet.leases import LeaseStore

_log = logging.getLogger("headgate.node")
EVERY: Final = 5.0
"""Seconds between two looks at destinations, and between two claims of the lease on orphans."""
ORPHANS_EVERY: Final = 30.0
"""Seconds between two looks for orphans."""
LEASE: Final = "!spool"
"""Of who looks for orphans. It is no link's: those have a ``>`` in it."""
PAGE: Final = 100
"""Destinations that are looked at in one write."""
TTL_MS: Final = 15_000
"""After which another node goes on when the one that looks for orphans is not heard of."""
CLOSING: Final = 1.0


class SpoolSweep:
    """The part of a node in the sweeping of spool stores; ``mine`` returns the destinations that fall to it.

    Attributes:
        leads: whether it is this node that looks for orphans.
    """

    def __init__(self, client: Client, node: str, mine: Callable[[], Awaitable[list[str]]]) -> None:
        self.leads = False
        self._client, self._node, self._mine = client, node, mine
        self._leases = LeaseStore(client.store.server, client.namespace)
        self._orphans_at = 0.0

    async def run(self) -> None:
        """Sweep until cancelled; then another node may look for orphans at once."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                await asyncio.sleep(EVERY)
                for work in (self.spent, self._claim):
                    try:
                        await work()
                    except HeadgateError as error:
                        _log.debug("a sweep of spool stores ended early: %s", error)
                if self.leads and loop.time() >= self._orphans_at:
                    self._orphans_at = loop.time() + ORPHANS_EVERY
                    await self.orphans()
        finally:
            if self.leads:
                with contextlib.suppress(HeadgateError, TimeoutError):
                    async with asyncio.timeout(CLOSING):
                        await self._leases.call(self._node, (LEASE,), mode="release", ttl_ms=TTL_MS)

    async def spent(self) -> None:
        """Delete spent segments of the destinations that fall to this node.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        names = await self._mine()
        server = self._client.store.server
        for at in range(0, len(names), PAGE):
            addresses = [Address.of(self._client.namespace, name) for name in names[at : at + PAGE]]
            held = await server.burst([(a.shared[0], (b"HGET", a.shared[0], b"spooled_bytes")) for a in addresses])
            for address, size in zip(addresses, held, strict=True):
                if isinstance(size, bytes) and int(size) > 0:
                    await self._sweep(address)

    async def orphans(self) -> None:
        """Delete the segments of every store that nothing refers to; what a store does not do now it does next time."""
        spooling = self._client.parts.registry.spooling
        try:
            for name in await spooling.spools.names():
                try:
                    gone = await spooling.sweeper.sweep_orphans(await spooling.spools.get(name))
                except HeadgateError as error:
                    _log.warning("spool store %r was not swept: %s", name, error)
                else:
                    if gone:
                        _log.info("%d segments of spool store %r belonged to nobody, and are deleted", len(gone), name)
        except HeadgateError as error:
            _log.debug("a look for orphans ended early: %s", error)

    async def _sweep(self, address: Address) -> None:
        try:
            await self._client.parts.registry.spooling.sweeper.sweep(address)
        except OSError as error:  # of one store; others are not to wait for it
            _log.warning("spent segments of %r are not deleted yet: %s", address.name, error)

    async def _claim(self) -> None:
        held = await self._leases.call(self._node, (LEASE,), mode="alone", ttl_ms=TTL_MS, held=int(self.leads), total=1)
        self.leads = LEASE in held.fences
