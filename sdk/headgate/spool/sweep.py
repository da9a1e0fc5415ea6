"""A sweep deletes segments whose messages are gone: from the storage, then at the store, then at their destination.

Each step may be repeated, by anybody, so a crash between two of them leaves what the next sweep finds.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Sequence
from typing import Final

from headgate._util.tasks import stop
from headgate.core.names import decode_name
from headgate.errors import HeadgateError, InvalidValue, PolicyError
from headgate.redis.keys import Address
from headgate.spool.stores import Spool, Spools, folder

_log = logging.getLogger("headgate")
EVERY: Final = 1.0
"""Seconds between sweeps of what this client uses."""
PAGES: Final = 8
"""Pieces of a destination's segments, of 256 each, that one sweep looks at."""
LOOKS: Final = 4
"""Times that a destination without segments is looked at before it is forgotten."""


class Sweeper:
    """A sweeper sweeps the destinations that one client sent spooled messages to or received them from."""

    def __init__(self, spools: Spools) -> None:
        self._spools = spools
        self._watched: dict[str, tuple[Address, int]] = {}
        self._discards: deque[tuple[Spool, Address, str]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._cursors: dict[str, int] = {}

    def watch(self, address: Address) -> None:
        """Look for spent segments of a destination from now on."""
        self._watched[address.key] = (address, 0)
        self._begin()

    def hurry(self) -> None:
        """Sweep now: somebody waits for room at a store."""
        self._hurry.set()

    def discard(self, spool: Spool, address: Address, name: str) -> None:
        """Delete one segment that nothing refers to, as soon as that is possible."""
        self._discards.append((spool, address, name))
        self._begin()

    async def close(self) -> None:
        """Stop; what was to be discarded is an orphan then."""
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(0.5):
                await self._discard()
        await stop(self._task)

    def _begin(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._keep(), name="headgate spool sweep")

    async def _keep(self) -> None:
        while self._watched or self._discards:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._hurry.wait()
                    await asyncio.sleep(EVERY / 10)
            self._hurry.clear()
            try:
                await self._discard()
                for key, (address, looks) in tuple(self._watched.items()):
                    left = await self.sweep(address)
                    if left:
                        self._watched[key] = (address, 0)
                    elif looks >= LOOKS:
                        del self._watched[key]
                    else:
                        self._watched[key] = (address, looks + 1)
            except (HeadgateError, OSError) as error:
                _log.warning("spent segments are not deleted yet: %s", error)

    async def sweep(self, address: Address) -> int:
        """Delete the spent segments of one destination; returns how many it still has.

        Raises:
            SpoolUnavailable: a storage does not delete.
            CoordinatorUnavailable: Redis does not answer.
        """
        after, left = self._cursors.pop(address.key, 0), 0
        for _ in range(PAGES):
            after, has, spent = await self._spools.calls.spent(address, after=after)
            left = has - len(spent)
            if spent:
                await self._delete(address, spent)
                after = max(0, after - len(spent))  # those behind moved up
            if not after:
                return left
        self._cursors[address.key] = after  # the next sweep goes on there
        return left

    async def sweep_orphans(self, spool: Spool) -> list[str]:
        """Delete the segments of a store that nothing refers to, nor will; returns them, ``<destination>/<name>``.

        They are left by who died between entering a segment and sending references to it, and by destinations that
        were removed. Segments that a living session may still send are left alone.

        Raises:
            SpoolUnavailable: the storage does not delete.
            CoordinatorUnavailable: Redis does not answer.
        """
        orphans: list[str] = []
        cursor = b""
        while cursor != b"0":
            cursor, held = await self._spools.calls.held(spool.address, cursor or b"0")
            for segment, (_, session) in held.items():
                encoded, _, name = segment.rpartition("/")
                address = Address.of(spool.address.namespace, decode_name(encoded))
                if await self._spools.calls.is_orphan(address, f"{spool.encoded}/{name}", session):
                    await self._free(spool, address, [name])
                    orphans.append(segment)
        return orphans

    async def _delete(self, address: Address, segments: list[str]) -> None:
        by_store: dict[str, list[str]] = {}
        for segment in segments:
            store, _, name = segment.partition("/")
            by_store.setdefault(store, []).append(name)
        for store, names in by_store.items():
            try:
                spool = await self._spools.get(decode_name(store))
            except (PolicyError, InvalidValue) as error:
                _log.warning("segments of %r cannot be deleted: %s", address.name, error)
                continue
            await self._free(spool, address, names)
            await self._spools.calls.unspool(address, [f"{store}/{name}" for name in names])

    async def _free(self, spool: Spool, address: Address, names: Sequence[str]) -> None:
        await spool.delete(address, names)
        await self._spools.calls.free(spool.address, [f"{folder(address)}/{name}" for name in names])

    async def _discard(self) -> None:
        """Discard all there is to discard; closing does so beside the sweep."""
        while self._discards:
            spool, address, name = first = self._discards[0]
            await self._free(spool, address, [name])
            if self._discards and self._discards[0] is first:
                self._discards.popleft()
