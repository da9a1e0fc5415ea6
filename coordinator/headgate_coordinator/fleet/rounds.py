"""Rounds renew what a node holds leases for, as long as Redis answers; work without a lease ends."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from headgate._util.tasks import stop
from headgate.errors import HeadgateError

_log = logging.getLogger("headgate.explain.links")


class LeaseRounds:
    """Rounds follow each other after a quarter of a lease, or as soon as there is something to do.

    Args:
        work: does one round; returns in how many ms a lease may become free, None when that is not known.
        lost: ends what is done under leases, which others may have by then.
        ttl: seconds that a lease lasts.
        name: of the work, for people.
    """

    def __init__(
        self, work: Callable[[], Awaitable[int | None]], lost: Callable[[], Awaitable[None]], *, ttl: float, name: str
    ) -> None:
        self._work, self._lost, self._ttl, self._name = work, lost, ttl, name
        self._due = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin."""
        self._task = asyncio.create_task(self._run(), name=f"headgate {self._name}")

    async def stop(self) -> None:
        """Begin no more rounds, and end the one that runs."""
        await stop(self._task)

    def hurry(self) -> None:
        """Begin the next round at once."""
        self._due.set()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        renewed = loop.time()
        while True:
            self._due.clear()
            began, pause = loop.time(), self._ttl / 4
            try:
                again_ms = await self._work()
                renewed = began
                pause = pause if again_ms is None else min(pause, again_ms / 1000)
            except HeadgateError as error:
                _log.debug("a round of the work on %s ended early: %s", self._name, error)
                if loop.time() - renewed > self._ttl:
                    await self._lost()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._due.wait()
