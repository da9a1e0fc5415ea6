"""An SDK reports its callers' waits to the node that it is connected to, which counts them too."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from headgate._util.tasks import Running, in_background
from headgate.errors import HeadgateError
from headgate.waits import Wait

EVERY: Final = 1.0
"""Seconds for which waits are collected."""
MOST: Final = 256
"""Waits of one call; of more in that time nobody reports the others."""
_AT_THE_END: Final = 0.1
"""Seconds for the last of them, as the client is closed."""


class ReportedWaits:
    """Collects waits and tells of them; nobody waits for that, and what is lost is lost.

    Args:
        ask: makes a call.

    Attributes:
        wanted: whether the node takes them; older ones do not.
    """

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        self.wanted = False
        self._ask = ask
        self._rows: list[tuple[str, str, float, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._telling: Running = {}

    def hear(self, wait: Wait) -> None:
        """Take a wait that is over."""
        if not self.wanted or len(self._rows) >= MOST:
            return
        self._rows.append((wait.kind, wait.destination, wait.seconds, wait.outcome))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(EVERY, self._due)

    async def close(self) -> None:
        """Tell of the last."""
        if self._timer is not None:
            self._timer.cancel()
            self._due()
        if self._telling:
            await asyncio.wait(tuple(self._telling), timeout=_AT_THE_END)

    def _due(self) -> None:
        self._timer = None
        in_background(self._tell(), self._telling, "headgate waits")

    async def _tell(self) -> None:
        rows, self._rows = self._rows, []
        with contextlib.suppress(HeadgateError):
            await self._ask("waited", rows)
