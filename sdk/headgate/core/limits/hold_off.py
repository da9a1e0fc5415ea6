"""Hold-offs of gates and buckets, as the state keeps them: ``<from ms> <until ms>`` of Redis' clock."""

import re
from typing import Final

from headgate.core.printable import printable
from headgate.errors import InvalidValue

_SPAN: Final = re.compile(r"(\d+) (\d+)\Z", re.ASCII)

MAX_REASON: Final = 200
"""Characters."""


def left_of(text: str, now_ms: float) -> float:
    """Return the seconds that a hold-off lasts still; one that begins later, for the clock was set back, is over."""
    span = _SPAN.match(text)
    return max(0.0, int(span[2]) - now_ms) / 1000 if span and int(span[1]) <= now_ms else 0.0


def read_reason(reason: str) -> str:
    """Return why something is held off, as the state keeps it.

    Raises:
        InvalidValue: it is no text.
    """
    if not isinstance(reason, str):
        raise InvalidValue(f"{reason!r:.80} is not text", setting="reason")
    return printable(reason)[:MAX_REASON]
