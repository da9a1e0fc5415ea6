"""A message may have a time before which it is not delivered; a call to Redis says it in this form."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Final

from headgate.errors import InvalidValue
from headgate.units import parse_duration

MOST_LATER: Final = 366 * 86_400
"""Seconds from now at the most, for which a message may wait for its time."""
_LAST: Final = 2**52
"""Ms since 1970; no clock of Redis' comes there."""


def delay_ms(value: float | str, what: str) -> int:
    """Return for how many ms a message is to wait.

    Raises:
        InvalidValue: it is no duration, or more than 366 days.
    """
    seconds = parse_duration(value, what)
    if seconds > MOST_LATER:
        raise InvalidValue(f"{value!r} is too far ahead; the most is {MOST_LATER} s, 366 days", setting=what)
    return math.ceil(seconds * 1000)


def moment_ms(value: datetime | float, what: str, now: float) -> int:
    """Return a moment in ms since 1970; by Redis' clock it is due then.

    Raises:
        InvalidValue: it is none, has no time zone, or is more than 366 days after ``now``, in seconds.
    """
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidValue(f"{value!r} has no time zone; use datetime.now(UTC) + ..., or seconds", setting=what)
        seconds = value.timestamp()
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _LAST:
        seconds = float(value)
    else:
        raise InvalidValue(f"{value!r} is not a time; use a datetime, or seconds since 1970", setting=what)
    if seconds > now + MOST_LATER:
        raise InvalidValue(f"{value!r} is too far ahead; the most is {MOST_LATER} s, 366 days", setting=what)
    return max(0, math.ceil(seconds * 1000))


def due(at: datetime | float | None, delay: float | str | None, now: Callable[[], float]) -> str:
    """Return when a message is due, as ``lua/publish.lua`` reads it; empty for at once. ``now`` tells this host's time.

    Raises:
        InvalidValue: one of them cannot be used, or there are both.
    """
    if at is None and delay is None:
        return ""
    if at is not None and delay is not None:
        raise InvalidValue("at and delay both say when a message is due; give one of them", setting="at")
    if at is not None:
        return f"@{moment_ms(at, 'at', now())}"
    ms = delay_ms(delay or 0, "delay")
    return str(ms) if ms else ""
