"""A pacing keeps one producer or consumer to a rate, which may change while somebody waits for his turn."""

import asyncio
import contextlib
from typing import Final

from headgate.core.rate import Rate

ENDLESS: Final = float("inf")


class Pacing:
    """A pacing keeps to a rate, or to none. A change reaches those who wait: they take their turn anew, in their order.

    Args:
        rate: a second; None for no bound.
        ahead: seconds' worth of it that may go at once; one piece always may.

    Attributes:
        rate: a second; None for no bound. Change it with :meth:`set`.
    """

    def __init__(self, rate: float | None = None, *, ahead: float = 0.0) -> None:
        self._ahead = ahead
        self.rate = rate
        self._rate = self._of(rate)
        self._changed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def set(self, rate: float | None) -> None:
        """Change the rate."""
        if rate != self.rate:
            self.rate = rate
            self._rate = self._of(rate)
            self.wake()

    async def turn(self, amount: float = 1.0, *, patience: float = ENDLESS) -> float:
        """Wait until ``amount`` may go.

        Args:
            amount: of what the rate counts.
            patience: seconds; a turn that comes later is not waited for.

        Returns:
            0 when it may go; else the seconds in which it could, which are more than the patience.
        """
        deadline = self._loop.time() + patience
        while self._rate is not None:
            now = self._loop.time()
            delay = self._rate.delay(now, amount)
            if delay <= 0:
                break
            if now + delay > deadline:
                self._rate.put_back(amount)
                return delay
            try:
                async with asyncio.timeout(delay):
                    await self._changed.wait()
            except TimeoutError:
                break
        return 0.0

    async def until(self, deadline: float) -> None:
        """Wait until that time of the loop, or until the rate is changed or somebody is woken."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()

    def wake(self) -> None:
        """Have everybody who waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def put_back(self, amount: float = 1.0) -> None:
        """Put back a turn that was waited for and is not used."""
        if self._rate is not None:
            self._rate.put_back(amount)

    def _of(self, rate: float | None) -> Rate | None:
        return None if rate is None else Rate(rate, max(1.0, rate * self._ahead))
