"""A call waits in line for a connection as long as the server answers those before it."""

import asyncio
from collections.abc import Callable
from typing import Final

import redis.exceptions as rx

CALL_TIMEOUT: Final = 2.0
"""Seconds that a call may take before its connection is given up.

The timeout is ours: redis-py's own can swallow a cancellation on Python 3.11 (asyncio.wait_for)."""
LINE_TIMEOUT: Final = 10.0
"""Seconds that a call may stand in line before that; CALL_TIMEOUT where the server answers nobody meanwhile, and at
nodes, whose clients wait no longer: a call that they gave up is not to be made after those that they made since."""


class LineTimeoutError(rx.RedisError):
    """A call stood in line for too long although the server answers: its process makes too many.

    Attributes:
        within: seconds that it was to stand there at the most.
    """

    def __init__(self, within: float) -> None:
        super().__init__(f"not in {within:g} s")
        self.within = within


class PlaceInLine:
    """A call has a place in line for a connection.

    Args:
        patience: its timeout, which has no time yet.
        answered: counts the calls that the server answered.
        within: seconds that it may stand there at the most.
        every: seconds within which somebody has to be answered.

    Attributes:
        within: the same.
        too_long: whether it gave up although the server answers.
    """

    def __init__(self, patience: asyncio.Timeout, answered: Callable[[], int], within: float, every: float) -> None:
        self.within, self.too_long, self._every = within, False, every
        self._patience = patience
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._give_up_at = self._loop.time() + within
        self._look_again()

    def _look_again(self) -> None:
        self._seen = self._answered()
        self._next = self._loop.call_later(self._every, self._look)

    def _look(self) -> None:
        """Give up where the server answered nobody since the last look, or it took too long; else go on."""
        silent = self._answered() == self._seen  # which is more than too long, where both are
        self.too_long = not silent and self._loop.time() >= self._give_up_at
        if silent or self.too_long:
            self._patience.reschedule(self._loop.time())
        else:
            self._look_again()

    def go(self) -> None:
        """Have as much time as a call may take: it has a connection."""
        self.leave()
        if self._patience.when() is None:  # else it was ended as its turn came
            self._patience.reschedule(self._loop.time() + CALL_TIMEOUT)

    def leave(self) -> None:
        """Leave the line."""
        self._next.cancel()
