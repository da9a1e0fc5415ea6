"""A watch on one destination: when what is measured there may be another."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from headgate import AccessDenied, Client
from headgate._util.tasks import stop
from headgate.redis.backend import AGAIN
from headgate.redis.keys import Address
from headgate_coordinator.keda.changes import Changes

PACE: Final = 0.5
"""Seconds between two looks, where it is written all the time."""
AGAIN_AFTER: Final = 30.0
"""Seconds after which nobody trusts that all is told, as KEDA itself asks that often."""
UNTOLD: Final = 2.0
"""The same, while nobody tells: the user may not have changes told, or Redis is away."""
_log = logging.getLogger("headgate")


class Watch:
    """Tells when to look at a destination again: it was written, or what its workers work within has other settings.

    Args:
        client: connected; it stays the caller's.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changes = Changes(self._dial)
        self._key = b""
        self._woken = asyncio.Event()
        self._looked = float("-inf")
        self._warned = self._moved = False

    @contextlib.asynccontextmanager
    async def on(self, *names: str) -> AsyncIterator[None]:
        """Watch a destination, and what else there is that limits its workers."""
        addresses = [Address.of(self._client.namespace, name) for name in names]
        self._key = addresses[0].shared[0]
        channels = tuple(address.channels("")[1] for address in addresses)
        hints = self._client.parts.wake_ups
        try:
            await hints.subscribe(channels, self._hear, ("settings", "removed", AGAIN))
            yield
        finally:
            await hints.unsubscribe(channels, self._hear)
            await self._changes.close()

    def wake(self) -> None:
        """Have it looked at now."""
        self._woken.set()

    async def begin(self) -> None:
        """Note that it is looked at after this: of what is written from now on :meth:`wait` tells."""
        self._woken.clear()
        self._looked = time.monotonic()
        if self._moved:
            self._moved = False
            await self._changes.close()
        try:
            await self._changes.follow(("HLEN", self._key))
        except AccessDenied as error:
            if not self._warned:
                _log.warning("%s; until then KEDA hears of work up to %g s late", error, UNTOLD)
            self._warned = True

    async def wait(self, most: float | None) -> None:
        """Wait until it is worth a look, for so many seconds at the most."""
        told = self._changes.told
        patience = AGAIN_AFTER if told else UNTOLD
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._woken.wait(), name="headgate watch")]
        if told:
            waits.append(asyncio.create_task(self._changes.heard(), name="headgate changes"))
        try:
            await asyncio.wait(
                waits, timeout=patience if most is None else min(most, patience), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for one in waits:
                await stop(one)
        await asyncio.sleep(max(0.0, self._looked + PACE - time.monotonic()))

    async def _dial(self) -> Any:
        server: Any = self._client.store.server  # a node's is Redis itself, which other ways to the state have not
        return await server.subscriber(self._key, protocol=3)

    def _hear(self, words: list[str]) -> None:
        if words[0] == AGAIN:  # another server may be in charge now
            self._moved = True
        self._woken.set()
