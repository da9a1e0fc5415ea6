"""A watch on one destination tells when what is measured there may be another."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any, Final

from headgate import AccessDenied, Client
from headgate._util.tasks import stop
from headgate.redis.backend import AGAIN
from headgate.redis.keys import Address
from headgate.redis.stores.sliced_reads import slices_of
from headgate_coordinator.keda.changes import KeyChanges

PACE: Final = 0.5
"""Seconds between two looks, where it is written all the time."""
AGAIN_AFTER: Final = 30.0
"""Seconds after which nobody trusts that every change was reported, as KEDA itself asks that often."""
UNTOLD: Final = 2.0
"""The same, while nobody reports: the user may not subscribe to changes, or Redis is away."""
_log = logging.getLogger("headgate")


class DestinationWatch:
    """A destination watch tells when to look again: it was written, or what its workers work within has other settings.

    Args:
        client: connected; it stays the caller's.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slices: list[Address] = []
        self._changes: list[tuple[KeyChanges, list[tuple[str, bytes]]]] = []
        self._woken = asyncio.Event()
        self._looked = float("-inf")
        self._warned = self._moved = False

    @contextlib.asynccontextmanager
    async def on(self, *names: str) -> AsyncIterator[None]:
        """Watch a destination, and what else there is that limits its workers."""
        addresses = [Address.of(self._client.namespace, name) for name in names]
        self._slices = addresses[:1]
        channels = tuple(address.channels("")[1] for address in addresses)
        hints = self._client.parts.wake_ups
        try:
            await hints.subscribe(channels, self._hear, ("settings", "removed", AGAIN))
            yield
        finally:
            await hints.unsubscribe(channels, self._hear)
            await self._hang_up()

    def wake(self) -> None:
        """Have it looked at now."""
        self._woken.set()

    async def begin(self) -> None:
        """Note that it is looked at after this: of what is written from now on :meth:`wait` tells."""
        self._woken.clear()
        self._looked = time.monotonic()
        slices = await slices_of(self._client.store.server, self._slices[0])
        if self._moved or slices != self._slices or not self._notified:
            self._moved = False
            await self._hang_up()
            self._slices, self._changes = slices, await self._by_server(slices)
        try:
            for changes, reads in self._changes:
                await changes.follow(*reads)
        except AccessDenied as error:
            if not self._warned:
                _log.warning("%s; until then KEDA learns of work up to %g s late", error, UNTOLD)
            self._warned = True

    async def wait(self, most: float | None) -> None:
        """Wait until it is worth a look, for that many seconds at the most."""
        notified = self._notified
        patience = AGAIN_AFTER if notified else UNTOLD
        waits: list[asyncio.Task[Any]] = [asyncio.create_task(self._woken.wait(), name="headgate watch")]
        if notified:
            heard = (changes.heard() for changes, _ in self._changes)
            waits += [asyncio.create_task(one, name="headgate changes") for one in heard]
        try:
            await asyncio.wait(
                waits, timeout=patience if most is None else min(most, patience), return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for one in waits:
                await stop(one)
        await asyncio.sleep(max(0.0, self._looked + PACE - time.monotonic()))

    @property
    def _notified(self) -> bool:
        """Whether changes of all slices are reported now."""
        return bool(self._changes) and all(changes.notified for changes, _ in self._changes)

    async def _by_server(self, slices: Sequence[Address]) -> list[tuple[KeyChanges, list[tuple[str, bytes]]]]:
        """Return a connection to each server where a slice is, and what it reads to hear of those slices."""
        found: dict[Any, tuple[KeyChanges, list[tuple[str, bytes]]]] = {}
        for address in slices:
            key = address.shared[0]
            pool = (await self._dial(key)).connection_pool if len(slices) > 1 else None
            place = pool and tuple(pool.connection_kwargs.get(word) for word in ("host", "port"))
            found.setdefault(place, (KeyChanges(partial(self._dial, key)), []))[1].append(("HLEN", key))
        return list(found.values())

    async def _hang_up(self) -> None:
        for changes, _ in self._changes:
            await changes.close()
        self._changes = []

    async def _dial(self, key: bytes) -> Any:
        server: Any = self._client.store.server  # a node's is Redis itself, which other ways to the state have not
        return await server.subscriber(key, protocol=3)

    def _hear(self, words: list[str]) -> None:
        if words[0] == AGAIN:  # another server may be in charge now
            self._moved = True
        self._woken.set()
