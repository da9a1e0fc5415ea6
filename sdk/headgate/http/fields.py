"""HTTP has fields that speak of limits: Retry-After, RateLimit and RateLimit-Policy."""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

from headgate.core.limits import Limit
from headgate.core.limits.limit import UNLIMITED
from headgate.explain.levels import LimiterState, LimitState

TOO_MANY: Final = (429, 503)
"""Codes of answers that may ask, by Retry-After, to come later."""
LONGEST: Final = 86_400.0
"""Seconds of a Retry-After that is heeded; a longer one counts as this."""
LARGEST: Final = 10**15 - 1
"""The largest Integer of a structured field (RFC 9651, 3.3.1); limits go up to 2**52."""
QUOTA_EXCEEDED: Final = "https://iana.org/assignments/http-problem-types#quota-exceeded"
"""The type of a problem that a limit is in the way, of the same draft as the fields."""
_SECONDS: Final = {"hour": 3600, "day": 86_400, "week": 604_800, "month": 2_678_400}


def read_retry_after(code: int, value: str | None) -> float | None:
    """Return the seconds for which an answer asks not to be called; None where it does not.

    Args:
        code: of the answer.
        value: of its Retry-After, seconds or a date (RFC 9110, 10.2.3); None without one.
    """
    if code not in TOO_MANY or value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:9]), LONGEST)
    try:
        date = parsedate_to_datetime(text[:64])
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return min(max(0.0, (date - datetime.now(UTC)).total_seconds()), LONGEST)


def retry_after(seconds: float | None) -> dict[str, str]:
    """Return the field of when to come again; none where nobody knows."""
    return {} if seconds is None else {"Retry-After": str(max(1, math.ceil(seconds)))}


def policy(limits: Iterable[Limit]) -> dict[str, str]:
    """Return the field of what may be taken at all (RateLimit-Policy, draft-ietf-httpapi-ratelimit-headers).

    Its units are the draft's: a limit called ``bytes``, or ``..._bytes``, counts bytes of content.
    """
    items = []
    for limit in (one for one in limits if one.most != UNLIMITED):
        window = f";w={_integer(limit.most / limit.rate)}" if limit.rate else ""
        window = f";w={_SECONDS[limit.window]}" if limit.window else window
        unit = ';qu="concurrent-requests"' if limit.form == "at_once" else ""
        unit = ';qu="content-bytes"' if f"_{limit.name}".endswith("_bytes") else unit
        items.append(f'"{limit.name}";q={_integer(limit.most)}{window}{unit}')
    return {"RateLimit-Policy": ", ".join(items)} if items else {}


def levels(state: LimiterState, limit: str = "", after: float | None = None) -> dict[str, str]:
    """Return the field of what may be taken now: of all keys together and of the key whichever is less.

    Args:
        state: of the limiter.
        limit: that refused a request; then nothing has more at a later time than Retry-After says.
        after: seconds until it would not refuse that; None where nobody knows.
    """
    names: Mapping[str, LimitState] = {**state.key_limits, **state.limits}
    items = []
    for name in names:
        level = state[name]
        if level.is_unlimited:
            continue
        until = level.reset_after if after is None else after if name == limit else 0
        items.append(f'"{name}";r={_integer(max(0, level.remaining))}{_reset(until)}')
    return {"RateLimit": ", ".join(items)} if items else {}


def refused(limit: str, after: float | None) -> dict[str, str]:
    """Return the fields of a limit that has nothing left, and of when to come again."""
    return {"RateLimit": f'"{limit}";r=0{_reset(after)}', **retry_after(after)}


def violated(limit: str) -> dict[str, list[str]]:
    """Return the member of a problem that names the policies in its way, as the same draft has it."""
    return {"violated-policies": [limit] if limit else []}


def _reset(seconds: float | None) -> str:
    return f";t={_integer(seconds)}" if seconds else ""


def _integer(number: float) -> int:
    return min(math.ceil(number), LARGEST)
