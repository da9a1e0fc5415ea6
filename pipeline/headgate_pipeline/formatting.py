"""Numbers are shown as people read them."""

from datetime import UTC, datetime
from typing import Final

_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")


def size(value: float | None) -> str:
    """Return bytes as text: ``1.5 MiB``, ``no limit``, or ``not known`` of None."""
    if value is None:
        return "not known"
    if value == float("inf"):
        return "no limit"
    unit = 0
    while abs(value) >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{value:.0f} {_UNITS[unit]}" if unit == 0 or value >= 100 else f"{value:.3g} {_UNITS[unit]}"


def count(value: float | None) -> str:
    """Return a number with commas, or ``-`` of None."""
    return "-" if value is None else f"{value:,.0f}"


def span(ms: float | None) -> str:
    """Return a length of time as text: ``12 ms``, ``3.4 s``, ``5 min 20 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if ms is None:
        return "-"
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 99_500:
        return f"{ms / 1000:.3g} s"
    for big, small, of, text in ((60, 1, 3600, "min s"), (3600, 60, 86_400, "h min"), (86_400, 3600, None, "d h")):
        if of is None or ms < of * 1000:
            whole, rest = divmod(int(ms / 1000), big)
            first, second = text.split()
            return f"{whole} {first} {rest // small} {second}" if rest // small else f"{whole} {first}"
    raise AssertionError


def moment(ms: int) -> str:
    """Return a time as text, in UTC to the second."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def share(value: float | None) -> str:
    """Return a share in percent."""
    return "-" if value is None else f"{value:.0%}"
