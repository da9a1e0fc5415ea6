"""A slice is lent what it may deliver of a rate that all slices share, for messages that are there."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from headgate._util.tasks import Running, in_background
from headgate.consuming.sink import Sink
from headgate.core.fetching import Fetching
from headgate.errors import HeadgateError
from headgate.namespace.shared_rates import SharedRates
from headgate.redis.keys import Address

AGAIN_MS: Final = 1000
"""Milliseconds until the next look where it cannot be had, as the slice says too."""


class LentDeliveries:
    """A feed has what its slice lacks of the rate fetched here, beside its calls, so that settlements go on.

    Args:
        rates: lends.
        address: the slice.
        machine: looks again when more may be delivered.
        sink: hears then that nothing is to be had now.
        wake: has the feed make what is due.
        running: tasks, which the feed stops when it is closed.
    """

    __slots__ = ("_address", "_draws", "_machine", "_rates", "_running", "_sink", "_wake")

    def __init__(
        self,
        rates: SharedRates,
        address: Address,
        machine: Fetching[Any],
        sink: Sink,
        wake: Callable[[], None],
        running: Running,
    ) -> None:
        self._rates, self._address, self._machine = rates, address, machine
        self._sink, self._wake, self._running = sink, wake, running
        self._draws = False

    def draw(self, lacks: tuple[int, ...]) -> bool:
        """Fetch what an answer says that the slice lacks; returns whether it is being fetched."""
        if lacks and not self._draws:
            self._draws = True
            in_background(self._draw(*lacks), self._running, f"headgate rate of {self._address.name}")
        return bool(lacks)

    async def _draw(self, need: int, want: int) -> None:
        again_ms = AGAIN_MS
        try:
            again_ms = await self._rates.lend(self._address, "delivery", need, want)
        except HeadgateError:
            pass  # the feed looks again, and hears of it itself
        finally:
            self._draws = False
        again_at = asyncio.get_running_loop().time() + again_ms / 1000
        self._machine.look_at = min(self._machine.look_at, again_at)
        if again_ms:
            self._sink.delivered(found_all=True)
        self._wake()
