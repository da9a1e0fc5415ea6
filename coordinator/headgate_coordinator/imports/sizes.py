"""Sizes as brokers written in Java have them in their files: a unit is 1024 of the one below."""

import re
from typing import Final

_SIZE: Final = re.compile(r"\s*(-?[0-9]{1,15})\s*([kmg]?)i?b?\s*", re.IGNORECASE)
_UNITS: Final = {"": 1, "k": 1024, "m": 1024**2, "g": 1024**3}


def bytes_of(text: str, *, least: int = 0) -> int:
    """Return the bytes that a text such as ``100``, ``64 mb`` or ``10M`` says.

    Raises:
        ValueError: it is no size, or below the least that means something there.
    """
    found = _SIZE.fullmatch(text)
    size = int(found[1]) * _UNITS[found[2].lower()] if found else least - 1
    if size < least:
        raise ValueError(text)
    return size
