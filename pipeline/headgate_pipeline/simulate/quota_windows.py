"""A quota's window is found as scripts reckon it: an hour, a day, a week or a month of a time zone."""

from calendar import monthrange
from datetime import UTC, datetime, timedelta

from headgate.core.limits.limit import Limit


def window_of(limit: Limit, zone: str, ms: float) -> tuple[float, float]:
    """Return when the window that holds a moment begins and ends, in ms since 1970.

    Args:
        limit: a quota.
        zone: offsets from UTC as settings keep them; empty for UTC.
        ms: the moment.

    >>> quota = Limit.of("spend", {"quota": "9/day", "resets": "06:00 UTC"})
    >>> window_of(quota, "", 7 * 3_600_000) == (6 * 3_600_000.0, 30 * 3_600_000.0)
    True
    """
    seconds, shift = int(ms // 1000), limit.minutes * 60
    begin, end = _local_window(limit.window, seconds + _offset(zone, seconds) - shift)
    return _to_utc(zone, begin + shift) * 1000.0, _to_utc(zone, end + shift) * 1000.0


def _local_window(window: str, seconds: int) -> tuple[int, int]:
    day = datetime.fromtimestamp(seconds, UTC).replace(hour=0, minute=0, second=0)
    match window:
        case "hour":
            begin, length = datetime.fromtimestamp(seconds - seconds % 3600, UTC), timedelta(hours=1)
        case "day":
            begin, length = day, timedelta(days=1)
        case "week":
            begin, length = day - timedelta(days=day.weekday()), timedelta(days=7)
        case _:
            begin, length = day.replace(day=1), timedelta(days=monthrange(day.year, day.month)[1])
    return int(begin.timestamp()), int((begin + length).timestamp())


def _offset(zone: str, seconds: int) -> int:
    numbers = [int(word) for word in zone.split()]
    known = [offset for start, offset in zip(numbers[::2], numbers[1::2], strict=True) if start <= seconds]
    return known[-1] if known else 0


def _to_utc(zone: str, local: int) -> int:
    return local - _offset(zone, local - _offset(zone, local))
