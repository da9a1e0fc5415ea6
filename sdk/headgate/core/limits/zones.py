"""A time zone has offsets from UTC, here as text: Redis, by whose clock windows are reckoned, knows no zones.

>>> offsets_text("UTC")
'0 0'
>>> offsets_text("Europe/Berlin")[:31]
'0 3600 1774746000 7200 17928900'
"""

from collections.abc import Callable
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from headgate.errors import InvalidValue

FIRST_YEAR: Final = 2026
YEARS: Final = 30
MOST_OFFSETS: Final = 128
_BEGIN: Final = int(datetime(FIRST_YEAR, 1, 1, tzinfo=UTC).timestamp())
_CONTINENTS: Final = ("Africa/", "America/", "Asia/", "Australia/", "Europe/", "Pacific/")
_STEP: Final = 5 * 86400
"""Seconds between looks: two changes of one zone are further apart."""


@lru_cache(maxsize=64)
def offsets_text(zone: str, what: str = "zone") -> str:
    """Return ``<from s> <offset s> ...`` of a zone: its offset before 2026, and each change of the 30 years after.

    Args:
        zone: its name in the database of time zones, such as ``Europe/Berlin``.
        what: what errors call it.

    Raises:
        InvalidValue: there is none of that name.
    """
    offset = _reader(zone, what)
    at, end = (int(datetime(year, 1, 1, tzinfo=UTC).timestamp()) for year in (FIRST_YEAR, FIRST_YEAR + YEARS))
    now = offset(at)
    found = [(0, now)]
    while at < end and len(found) < MOST_OFFSETS:
        follower = offset(at + _STEP)
        if follower != now:
            low, high = at, at + _STEP
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if offset(middle) == now else (low, middle)
            found.append((high, offset(high)))
            now = found[-1][1]
        at += _STEP
    return " ".join(f"{start} {seconds}" for start, seconds in found)


def _reader(zone: str, what: str) -> Callable[[int], int]:
    """Return what tells the offset at that many seconds since 1970."""
    try:
        info: tzinfo = UTC if zone == "UTC" else ZoneInfo(zone)
    except (KeyError, ValueError, OSError, TypeError):
        raise InvalidValue(
            f"{zone!r} is not a time zone known here; write e.g. 'Europe/Berlin' or 'UTC'", setting=what
        ) from None

    def offset(seconds: int) -> int:
        shift = datetime.fromtimestamp(seconds, info).utcoffset()
        return int(shift.total_seconds()) if shift is not None else 0

    return offset


@lru_cache(maxsize=64)
def zone_named(text: str) -> str | None:
    """Return the name of a time zone that has these offsets, for the state keeps no names; None where none is known.

    Several may have them: of those the shortest name of a continent's city, and for UTC that.

    >>> zone_named(offsets_text("Asia/Tokyo")), zone_named("0 1")
    ('Asia/Dili', None)
    """
    numbers = [int(word) for word in text.split()]
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    probes = [(max(start, _BEGIN) + after, offset) for start, offset in pairs for after in (0, 86400)]
    found = ["UTC"] if text == "0 0" else []
    for zone in sorted(available_timezones()) if not found else ():
        offset = _reader(zone, "zone")
        if (
            zone.startswith(_CONTINENTS)
            and all(offset(at) == shift for at, shift in probes)
            and offsets_text(zone) == text
        ):
            found.append(zone)
    return min(found, key=lambda zone: (len(zone), zone), default=None)


def zone_shown(text: str) -> str:
    """Return offsets as people read them: the first, and how many changes are known.

    >>> zone_shown(offsets_text("Europe/Berlin"))
    'UTC+01:00 and 60 changes'
    """
    numbers = text.split()
    sign, minutes = "-" if int(numbers[1]) < 0 else "+", abs(int(numbers[1])) // 60
    return f"UTC{sign}{minutes // 60:02}:{minutes % 60:02} and {len(numbers) // 2 - 1} changes"
