"""Sizes, durations and rates are read as people write them.

>>> parse_size("64KiB"), parse_size("10MB"), parse_size(512)
(65536, 10000000, 512)
>>> parse_duration("250ms"), parse_duration("3s"), parse_duration(1.5)
(0.25, 3.0, 1.5)
>>> parse_rate("100/s"), parse_rate("90/min"), parse_rate("1/2s"), parse_rate(5)
(100.0, 1.5, 0.5, 5.0)
>>> parse_amount("200k"), parse_amount("1_000_000"), parse_amount("64MiB")
(200000, 1000000, 67108864)
>>> parse_count("200k"), parse_count(512)
(200000, 512)
"""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Literal

from headgate.errors import InvalidValue
from headgate.figures import plain

Unlimited = Literal["unlimited"]

MAX_SIZE: Final = 2**52
"""Bytes; counters in Redis stay below 2**53, where integers are exact."""
MAX_WINDOW: Final = 2**40
"""Bytes that one holder may have in hand unused."""
MAX_DURATION: Final = 36_525 * 86_400
"""Seconds, a hundred years: added to the time, they stay exact in microseconds."""
MIN_RATE: Final = 1e-9
"""A second; once in 31 years."""
MAX_RATE: Final = 1e15
MAX_SUBSCRIPTIONS: Final = 10_000
"""Most subscriptions that a topic may be allowed: calls look through all of them."""
MAX_WEIGHT: Final = 1000
MAX_BURST_TIME: Final = 3_652.5 * 86_400
"""Seconds, ten years, in which a burst has to be whole again."""

_SIZES: Final = {
    "": 1, "B": 1,
    "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12,
    "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40,
}  # fmt: skip
_DURATIONS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
_QUANTITY: Final = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?|\.\d{1,40})\s*([A-Za-z]*)\s*\Z", re.ASCII)
_RATE: Final = re.compile(
    r"\s*([^/]{1,40}?)\s*/\s*(\d{1,9}(?:\.\d{1,9})?)?\s*(ms|s|min|h|hour|day|week|month)\s*\Z", re.ASCII
)
_PERIODS: Final = {
    "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "hour": 3600.0, "day": 86400.0, "week": 604800.0,
    "month": 2629800.0,
}  # fmt: skip
"""Seconds; a month of a rate is the twelfth part of 365.25 days."""
_THOUSANDS: Final = {"k": 1000, "K": 1000, "M": 10**6, "G": 10**9}
_COUNTED: Final = re.compile(r"\s*(\d{1,40}(?:\.\d{1,40})?)\s*([kKMG])\s*\Z", re.ASCII)
_BYTES: Final = re.compile(r"[bB]\s*\Z")
_GROUPED: Final = re.compile(r"(?<=\d)_(?=\d)")


def parse_size(value: int | str, what: str = "size") -> int:
    """Return bytes from an int or text such as ``"64KiB"`` or ``"10MB"``.

    Args:
        value: a whole number of bytes; in text B, KB, MB, GB, TB count in thousands, KiB, MiB, GiB, TiB in 1024s.
        what: what the value is for, to name the place in the error.

    Raises:
        InvalidValue: not of that form, negative, a fraction of a byte, or 2**52 and more.
    """
    size: float | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _QUANTITY.match(value)):
        unit = _SIZES.get(match[2].upper())
        size = float(match[1]) * unit if unit and "." in match[1] else int(match[1]) * unit if unit else None
    if size is None or size < 0 or size != int(size):
        raise InvalidValue(
            f"{_shown(value)} is not a size; write bytes (512) or text such as '64KiB' or '10MB'", setting=what
        )
    if size >= MAX_SIZE:
        raise InvalidValue(f"{_shown(value)} is too large; the most is {MAX_SIZE - 1} bytes", setting=what)
    return int(size)


def parse_limit(
    value: int | str, what: str = "limit", parse: Callable[[int | str, str], int] = parse_size
) -> int | Unlimited:
    """Return bytes, or what else a function reads, or ``"unlimited"`` for that word.

    Raises:
        InvalidValue: not a size, or zero: a limit of nothing admits nothing, pause consumers or block instead.
    """
    if value == "unlimited":
        return "unlimited"
    try:
        size = parse(value, what)
    except InvalidValue as error:
        raise InvalidValue(f"{error.problem}, or 'unlimited'", setting=what) from None
    if size == 0:
        raise InvalidValue("0 has no meaning of its own here; write 'unlimited' or at least 1", setting=what)
    return size


def parse_duration(value: float | str, what: str = "duration") -> float:
    """Return seconds from a number of seconds or text such as ``"250ms"``, ``"3s"``, ``"2min"``.

    A number in a text needs a unit, unless it is 0: where durations are written as text, some mean seconds by a bare
    number and others milliseconds.

    Raises:
        InvalidValue: not of that form, negative, infinite or not a number, or more than a hundred years.
    """
    if type(value) in (int, float) and 0 <= value <= MAX_DURATION:  # type: ignore[operator]  # what most calls have
        return float(value)
    seconds: float | None = None
    form = "seconds (1.5) or text such as"
    if isinstance(value, int | float) and not isinstance(value, bool):
        seconds = _double(value)
    elif isinstance(value, str):
        form = "text such as"
        if (match := _QUANTITY.match(value)) and match[2] in _DURATIONS:
            seconds = float(match[1]) * _DURATIONS[match[2]]
        elif match and not match[2]:
            seconds = float(match[1])
            if seconds:
                number = match[1]
                raise InvalidValue(
                    f"{number} has no unit; write '{number}s' for seconds or '{number}ms' for milliseconds",
                    setting=what,
                )
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        raise InvalidValue(f"{_shown(value)} is not a duration; write {form} '250ms', '3s', '2min'", setting=what)
    if seconds > MAX_DURATION:
        raise InvalidValue(f"{_shown(value)} is too long; the most is {MAX_DURATION} s, a hundred years", setting=what)
    return seconds


def parse_timeout(value: float | str, what: str = "timeout") -> float:
    """Return the seconds that a call may wait: a duration, or infinity for ``"unlimited"``.

    Raises:
        InvalidValue: neither of these.
    """
    if value == "unlimited":
        return math.inf
    try:
        return parse_duration(value, what)
    except InvalidValue as error:
        raise InvalidValue(f"{error.problem}, or 'unlimited' to wait for ever", setting=what) from None


def check_timeout(value: float | str | None, what: str = "timeout") -> None:
    """See at once that a call may wait so long, although it may not have to wait; None is some default.

    Raises:
        InvalidValue: as :func:`parse_timeout`.
    """
    if value is not None and not (value.__class__ in (int, float) and 0 <= value <= MAX_DURATION):
        parse_timeout(value, what)


def duration_text(seconds: float) -> str:
    """Return a duration as :func:`parse_duration` reads it, to the microsecond.

    >>> duration_text(3.0), duration_text(0.25), duration_text(1e6)
    ('3s', '0.25s', '1000000s')
    """
    return f"{seconds:.6f}".rstrip("0").rstrip(".") + "s"


def parse_amount(value: int | str, what: str = "amount") -> int:
    """Return a count or bytes: what :func:`parse_size` reads, ``"200k"`` and ``"2M"``, and ``_`` between digits.

    Raises:
        InvalidValue: not of that form, or out of its range.
    """
    if isinstance(value, str):
        value = _GROUPED.sub("", value)
        if match := _COUNTED.match(value):
            thousands = _THOUSANDS[match[2]]
            exact = float(match[1]) * thousands if "." in match[1] else int(match[1]) * thousands
            value = int(exact) if exact == int(exact) else value
    return parse_size(value, what)


def parse_count(value: int | str, what: str = "count") -> int:
    """Return how many of something: what :func:`parse_amount` reads, but bytes.

    Raises:
        InvalidValue: not of that form, negative, or 2**52 and more.
    """
    with suppress(InvalidValue):
        if not (isinstance(value, str) and _BYTES.search(value)):
            return parse_amount(value, what)
    raise InvalidValue(
        f"{_shown(value)} is not a count; write a whole number below 2**52, such as 1000 or '200k'",
        setting=what,
    )


def parse_rate(value: float | str, what: str = "rate") -> float:
    """Return a number a second from a number or text such as ``"100/s"``, ``"90/min"``, ``"1MB/s"``, ``"1/2s"``.

    The second part is ms, s, min, h or hour, day, week or month, or several of these.

    Raises:
        InvalidValue: not of that form, or not from 1e-9 to 1e15.
    """
    return split_rate(value, what)[0]


def split_rate(value: float | str, what: str = "rate") -> tuple[float, int]:
    """Return the number a second of a rate, and the amount that it is written with: 500 of ``"500/min"``.

    Raises:
        InvalidValue: as of :func:`parse_rate`.
    """
    rate, amount = None, 0
    if isinstance(value, int | float) and not isinstance(value, bool):
        rate = _double(value)
        amount = int(value) if math.isfinite(rate) else 0
    elif isinstance(value, str) and (match := _RATE.match(value)):
        with suppress(InvalidValue):  # what is no amount is no rate either
            amount = parse_amount(match[1], what)
        period = float(match[2] or 1) * _PERIODS[match[3]]
        rate = amount / period if period else None
    if rate is None or not math.isfinite(rate) or rate <= 0:
        raise InvalidValue(
            f"{_shown(value)} is not a rate; write a number a second (500) or text such as '90/min', '1000/day' or "
            "'1/2s'",
            setting=what,
        )
    if not MIN_RATE <= rate <= MAX_RATE:
        raise InvalidValue(f"{_shown(value)} is out of range; use {MIN_RATE:g} to {MAX_RATE:g} a second", setting=what)
    return rate, amount


def _double(value: float) -> float:
    """Return a number as a double; one that is too large for that is infinite."""
    with suppress(OverflowError):
        return float(value)
    return math.inf if value > 0 else -math.inf


def _shown(value: object) -> str:
    return (
        f"a number of {value.bit_length()} bits"
        if isinstance(value, int) and value.bit_length() > 256
        else f"{value!r:.80}"
    )


def check_burst(rate: float, burst: int, what: str = "burst") -> None:
    """See that a burst is whole again within ten years.

    Raises:
        InvalidValue: the rate is too low for it.
    """
    if burst > rate * MAX_BURST_TIME:
        most = max(1, int(rate * MAX_BURST_TIME))
        raise InvalidValue(
            f"{burst} at {plain(rate)} a second takes more than ten years; use at most {most}, or a higher rate",
            setting=what,
        )
