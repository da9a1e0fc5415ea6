"""One link that this node works on, for as long as it has the lease."""

import asyncio
import contextlib
import logging
from typing import Final

from headgate.client import Client
from headgate.core.bridge import Bridge
from headgate.core.forwarding import MAX_HOPS, NO_ROOM, Forwarder, Forwarding
from headgate.errors import HeadgateError, PolicyError
from headgate.reconnect import AWAY
from headgate.redis.keys import Address, encode_name, link_id
from headgate.redis.link_store import LinkStore
from headgate.redis.link_worker import End, LinkWorker
from headgate.tasks import stop

_log = logging.getLogger("headgate.links")
STORES: Final = ("queue", "topic")
AGAIN: Final = 0.5
"""Seconds between two tries to find or make the ends, and between looks whether the target's pools have room."""


class Duty:
    """The work on one link under one lease. Its ends are made as the policy says, as any producer or consumer does.

    Args:
        client: connected.
        bridge: what the policy says.
        fence: number of the lease.
        ttl: seconds for which the target keeps its credit without hearing of it.

    Attributes:
        done: set when a later lease was found to be in force: nothing more will come of this one.
    """

    def __init__(self, client: Client, bridge: Bridge, fence: int, *, ttl: float) -> None:
        self.bridge, self.fence = bridge, fence
        self.done = False
        self._client, self._ttl = client, ttl
        self._worker: LinkWorker | None = None
        self._trouble: str | None = "it begins"
        self._task = asyncio.create_task(self._run(), name=f"headgate link {bridge.link}")

    @property
    def trouble(self) -> str | None:
        """Why nothing moves, None while it does."""
        return self._trouble if self._trouble or self._worker is None else self._worker.forwarder.trouble

    @property
    def forwarder(self) -> Forwarder | None:
        """How far it is; None until both ends are there."""
        return self._worker.forwarder if self._worker else None

    @property
    def later(self) -> int:
        """The number of the lease that was found to be in force, 0 where this one is."""
        return (self._worker.forwarder.fence or 0) if self._worker else 0

    @property
    def waits(self) -> str:
        """Names its wait in line at the target, another one after each message; empty while it does not wait there."""
        forwarder = self.forwarder
        return f"{forwarder.born}.{forwarder.mark}" if forwarder and self.trouble == NO_ROOM else ""

    async def stop(self, *, lost: bool = False) -> None:
        """Stop at once. What is in hand stays with the link; its credit goes back, unless the lease is lost."""
        await stop(self._task)
        if self._worker is not None and not lost and not self.done:
            with contextlib.suppress(HeadgateError):  # it ends by itself, with its lease
                await self._worker.leave()

    async def _run(self) -> None:
        while True:
            try:
                await self._work()
            except AWAY as error:
                self._trouble = str(error)
            except HeadgateError as error:
                if self._trouble != str(error):
                    _log.warning("bridge %s (%s) does not work: %s", self.bridge.name, self.bridge.link, error)
                self._trouble = str(error)
            if self.done:
                return
            await asyncio.sleep(AGAIN)

    async def _work(self) -> None:
        source, target = await self._end(self.bridge.source), await self._end(self.bridge.target)
        dead = await self._end(self.bridge.dead_letters) if self.bridge.dead_letters else None
        namespace = self._client.namespace
        how = Forwarding(
            f"{namespace}/{encode_name(self.bridge.source)}",
            f"{namespace}/{encode_name(self.bridge.target)}",
            max_hops=self.bridge.max_hops or MAX_HOPS,
            has_dead_letters=dead is not None,
        )
        link = link_id(self.bridge.link)
        worker = LinkWorker(link, source, target, how, fence=self.fence, dead=dead, ttl=self._ttl)
        self._worker, self._trouble = worker, None
        pools = asyncio.create_task(self._refill(target.address), name=f"headgate pools of {self.bridge.link}")
        try:
            await worker.run()
            self.done = worker.forwarder.fence is not None
        finally:
            await stop(pools)

    async def _end(self, name: str) -> End:
        parts = self._client.parts
        address = Address.of(self._client.namespace, name)
        try:
            await parts.registry.ensure(address, STORES, recover=False)
        except PolicyError as error:
            raise PolicyError(f"{name!r} cannot be an end of a link: {error}") from None
        return End(LinkStore(parts.store.server), address, parts.wake_ups)

    async def _refill(self, target: Address) -> None:
        """While the target has no room, fetch what it lacks from its pools."""
        parts = self._client.parts
        while True:
            await asyncio.sleep(AGAIN)
            names = parts.registry.pools(target)
            if names and self.trouble is not None:
                parts.pools.refill(target, names, lambda _name, _limit: None)
