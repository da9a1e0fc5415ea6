"""A link follows how its target is spread, waits for a change as senders do, and takes its steps."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from headgate.client import Client
from headgate.core.limits.spread import Spread, is_spread
from headgate.namespace.spreads import Spreads
from headgate.redis.keys import Address
from headgate.redis.stores.spreads import SpreadStore

SOON: Final = 0.1
"""Seconds between steps of a change."""


class TargetSpread:
    """A target spread says by which values messages go to the slices of a link's target.

    Args:
        client: of the site of the target.
        whole: the target.

    Attributes:
        now: how it was spread when that was settled last; None where all goes to the first slice.
        changed: set when it is, or may be, spread in another way.
    """

    def __init__(self, client: Client, whole: Address) -> None:
        self.now: Spread | None = None
        self.changed = asyncio.Event()
        self._whole, self._registry = whole, client.parts.registry
        self._store = SpreadStore(client.store.server)
        self._spreads = Spreads(self._registry, self._store)

    async def settle(self, waits: Callable[[], None]) -> None:
        """Learn how it is spread, by what the registry has just read; wait until no other way is to come.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        while is_spread(self._registry.fields(self._whole)):
            self.now, to = await self._store.in_force(self._whole)
            if not to:
                break
            waits()
            if await self._spreads.change(self._whole, to):
                await asyncio.sleep(SOON)
            await self._registry.refresh(self._whole)
        else:
            self.now = None
        self.changed.clear()

    async def run(self, work: Callable[[], Awaitable[int]]) -> int:
        """Work until it is spread in another way; returns 0 then, and else what the work does.

        Raises:
            Exception: the work does.
        """
        await self._registry.follow(self._whole, self._hear)
        task, changed = asyncio.ensure_future(work()), asyncio.ensure_future(self.changed.wait())
        try:
            self._hear(self._registry.fields(self._whole))
            await asyncio.wait({task, changed}, return_when=asyncio.FIRST_COMPLETED)
            return task.result() if task.done() else 0
        finally:
            await self._registry.unfollow(self._whole, self._hear)
            for one in (task, changed):
                one.cancel()
            await asyncio.gather(task, changed, return_exceptions=True)

    async def is_in_force(self) -> bool:
        """Return whether it is still spread so; where it is not, `changed` is set."""
        now, to = await self._store.in_force(self._whole)
        if to or now != self.now:
            self.changed.set()
            return False
        return True

    async def stopped(self, part: Address) -> None:
        """See why a slice takes nothing: a change is to come, or is over and its slice was not let go."""
        if await self.is_in_force():
            await self._spreads.release(part)

    def _hear(self, fields: Mapping[str, str]) -> None:
        now, to = (Spread.read(fields.get("spread", "")), fields.get("spread_to")) if is_spread(fields) else (None, "")
        if fields and (to or now != self.now):
            self.changed.set()
