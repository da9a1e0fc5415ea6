"""A throttle bounds the lines of a log that strangers cause: it lets a few through, and then counts the others."""

import logging
import time
from collections.abc import Callable
from typing import Final

AT_ONCE: Final = 10
"""Lines of one sort before it is seldom."""
EVERY: Final = 10.0
"""Seconds for which these are enough."""


class LogThrottle:
    """A throttle passes warnings of one sort to a log, by a clock in seconds."""

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._since = -EVERY
        self._lines = 0

    def warn(self, text: str, *words: object) -> None:
        """Log a warning, unless there were enough of late."""
        now = self._clock()
        if now - self._since >= EVERY:
            if self._lines > AT_ONCE:
                self._log.warning("%d more such warnings in %.0f s", self._lines - AT_ONCE, now - self._since)
            self._since, self._lines = now, 0
        self._lines += 1
        if self._lines <= AT_ONCE:
            self._log.warning(text, *words)
