"""A call waits in line for a connection as long as the server answers those before it."""

import asyncio
from collections.abc import Callable
from typing import Final

import redis.exceptions as rx

CALL_TIMEOUT: Final = 2.0
"""Seconds that a call may take before its connection is given up.

The timeout is ours: redis-py's own can swallow a cancellation on Python 3.11 (asyncio.wait_for)."""
LINE_TIMEOUT: Final = 10.0
"""Seconds that a call may stand in line before that; CALL_TIMEOUT where the server answers nobody meanwhile."""


class LineTimeoutError(rx.RedisError):
    """A call stood in line for too long although the server answers: its process makes too many."""


class PlaceInLine:
    """A call has a place in line for a connection.

    Args:
        patience: its timeout, which has no time yet.
        answered: counts the calls that the server answered.

    Attributes:
        too_long: whether it gave up although the server answers.
    """

    def __init__(self, patience: asyncio.Timeout, answered: Callable[[], int]) -> None:
        self.too_long = False
        self._patience = patience
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._give_up_at = self._loop.time() + LINE_TIMEOUT
        self._look_again()

    def _look_again(self) -> None:
        self._seen = self._answered()
        self._next = self._loop.call_later(CALL_TIMEOUT, self._look)

    def _look(self) -> None:
        """Give up where the server answered nobody since the last look, or it took too long; else go on."""
        self.too_long = self._loop.time() >= self._give_up_at
        if self.too_long or self._answered() == self._seen:
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
