"""A job does this node's work on one pool over sites: rounds, as something is heard of and at least every second."""

import asyncio
import logging
import math
import time
from abc import ABC, abstractmethod
from typing import Final

from headgate._util.tasks import stop
from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.redis.keys import PoolAddress

_log = logging.getLogger("headgate.explain.links")
EVERY: Final = 1.0
"""Seconds between rounds where nobody waits: a site is heard of as often."""
WAITING: Final = 0.2
"""The same while somebody waits."""
AT_LEAST: Final = 0.005
"""Seconds between rounds, whatever is heard."""
AGAIN: Final = 60.0
"""Seconds for which what comes and goes is logged once."""


class PoolJob(ABC):
    """A job does the work on one pool under one lease. Two at once do no harm, for all that they say is totals."""

    def __init__(self, client: Client, pool: PoolAddress) -> None:
        self.client, self.pool = client, pool
        self.trouble = ""
        self._logged, self._logged_at = "", -math.inf
        self._heard = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name=f"headgate pool {pool.name} over sites")

    async def stop(self) -> None:
        """Stop at once; what is lent stays lent."""
        await stop(self._task)
        await self._leave()

    def hear(self, _words: list[str]) -> None:
        """Begin a round."""
        self._heard.set()

    def fail(self, trouble: str) -> None:
        """Note why nothing moves; empty while it does."""
        now = time.monotonic()
        if trouble not in ("", self.trouble) and (trouble != self._logged or now - self._logged_at > AGAIN):
            _log.warning("pool %s over sites: %s", self.pool.name, trouble)
            self._logged, self._logged_at = trouble, now
        self.trouble = trouble

    async def _run(self) -> None:
        wake_ups, channels = self.client.parts.wake_ups, (self.pool.key,)
        await wake_ups.subscribe(channels, self.hear)
        try:
            while True:
                self._heard.clear()
                pause = EVERY
                try:
                    if await self._round():
                        pause = WAITING
                except (HeadgateError, OSError) as error:
                    self.fail(str(error))
                await asyncio.sleep(AT_LEAST)
                try:
                    async with asyncio.timeout(pause):
                        await self._heard.wait()
                except TimeoutError:
                    continue
        finally:
            await wake_ups.unsubscribe(channels, self.hear)

    @abstractmethod
    async def _round(self) -> bool:
        """Do once what is to be done; returns whether somebody waits."""

    @abstractmethod
    async def _leave(self) -> None:
        """Stop listening elsewhere."""
