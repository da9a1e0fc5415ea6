"""Settings are stale once a hint says so, or a failover may have taken back what was set last."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from headgate._util.reconnect import until_answered
from headgate._util.tasks import stop
from headgate.redis.keys import Address

AT_ONCE: Final = 16
"""Destinations that are read at a time: a failover makes all of a client's stale."""


class StaleSettings:
    """Stale settings are read again, of each destination apart: where one's master is away, others do not wait for it.

    Args:
        read: reads those of one destination.
    """

    def __init__(self, read: Callable[[Address], Awaitable[None]]) -> None:
        self._read = read
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._stale: set[str] = set()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def add(self, address: Address) -> None:
        """Have the settings of a destination read, once more if they are being read now."""
        self._stale.add(address.key)
        if address.key not in self._tasks:
            self._tasks[address.key] = asyncio.create_task(self._refresh(address), name="headgate settings")

    async def close(self) -> None:
        """Read none any more."""
        for task in list(self._tasks.values()):
            await stop(task)

    async def _refresh(self, address: Address) -> None:
        try:
            while address.key in self._stale:
                self._stale.remove(address.key)
                await until_answered(lambda _: None)(self._take_turn, address)
        finally:
            del self._tasks[address.key]  # in one step with the last look: what is stale from now on has another

    async def _take_turn(self, address: Address) -> None:
        async with self._turns:
            await self._read(address)
