"""An answer tells a proxy of the limit that refused, and when to come again."""

import math
from typing import Final

from envoy.config.core.v3.base_pb2 import HeaderValue
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

from headgate.core.limits import Limit
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused

_UNITS: Final = {1: 1, 60: 2, 3600: 3, 86_400: 4}
"""Seconds -> the proxy's number of that unit."""
_WINDOWS: Final = {"hour": 3, "day": 4, "month": 5, "week": 7}


def describe(
    answer: RateLimitResponse, status: RateLimitResponse.DescriptorStatus, refused: Refused, limiter: Limiter | None
) -> None:
    """Say which limit refused, and when to come again.

    Args:
        answer: to the request.
        status: in it, of the descriptor that is refused.
        refused: why.
        limiter: that refused; None where this node has it not open.
    """
    status.current_limit.name = refused.limit
    if limiter is not None and refused.rule == "all" and (limit := limiter.limits.get(refused.limit)) is not None:
        requests, unit = _per_unit(limit)
        status.current_limit.requests_per_unit, status.current_limit.unit = requests, unit
    if refused.retry_after is not None:
        status.duration_until_reset.FromMilliseconds(math.ceil(refused.retry_after * 1000))
        seconds = str(max(1, math.ceil(refused.retry_after)))
        answer.response_headers_to_add.append(HeaderValue(key="retry-after", value=seconds))


def _per_unit(limit: Limit) -> tuple[int, int]:
    """Return a limit in whole requests for a unit of time, as proxies show it; of no unit what is not of time."""
    if limit.window:
        return min(limit.most, (1 << 32) - 1), _WINDOWS[limit.window]
    for seconds, unit in _UNITS.items():
        requests = (limit.rate or 0.0) * seconds
        if 1 <= requests < 1 << 32 and math.isclose(requests, round(requests), rel_tol=1e-9):
            return round(requests), unit
    return min(limit.most, (1 << 32) - 1), 0
