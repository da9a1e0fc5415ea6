"""Hold-offs of gates and buckets, as the state keeps them: ``<from ms> <until ms>`` of Redis' clock."""

import re
from typing import Final

_SPAN: Final = re.compile(r"(\d+) (\d+)\Z", re.ASCII)


def left_of(text: str, now_ms: float) -> float:
    """Return the seconds that a hold-off lasts still; one that begins later, for the clock was set back, is over."""
    span = _SPAN.match(text)
    return max(0.0, int(span[2]) - now_ms) / 1000 if span and int(span[1]) <= now_ms else 0.0
