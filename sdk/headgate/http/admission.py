"""A server answers a request that is not admitted with 413, 429 or 503, and a problem that says why."""

import json
from dataclasses import dataclass
from typing import Final

from headgate.charge import Charge, Held
from headgate.errors import CoordinatorUnavailable, CreditTimeout, DestinationFull, MessageTooLarge
from headgate.http import fields
from headgate.http.deadline import deadline_of, headers_of
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused
from headgate.units import parse_duration

OVER: Final = 429
"""The code of an answer to a request that a limit is in the way of."""


@dataclass(frozen=True)
class RequestRefused(Exception):
    """This error turns a request away, and says what the answer is.

    Attributes:
        code: of the answer: 413 for more than a limit ever admits, 429, or 503 where Redis does not answer.
        title: of the problem (RFC 9457).
        limit: that binds; empty where it is none.
        after: seconds until it could be admitted, if nobody else comes; None where nobody knows.
        headers: of the answer.
    """

    code: int
    title: str
    limit: str
    after: float | None
    headers: dict[str, str]

    def body(self) -> bytes:
        """Return the problem, as JSON."""
        problem: dict[str, object] = {"type": "about:blank", "title": self.title, "status": self.code}
        if self.limit:
            problem |= {"limit": self.limit, "retry_after": self.after}
        if self.code == OVER:
            problem |= {"type": fields.QUOTA_EXCEEDED, **fields.violated(self.limit)}
        return json.dumps(problem).encode()


async def admitted(charge: Charge, request: object) -> Held:
    """Return what a request is admitted with; it waits no longer than its headers say that its caller does.

    Raises:
        Turned: it is not admitted in time.
    """
    try:
        timeout = charge.within(request)
        if timeout is not None and timeout != 0:
            deadline = deadline_of(headers_of(request))
            if deadline is not None:
                timeout = min(parse_duration(timeout, "timeout"), deadline)
        if timeout is not None and timeout != 0:
            return await charge.admit_within(timeout, request)
        decision = await charge.attempt(request)
    except CreditTimeout as error:
        raise _too_many(charge, error.limit or "line", error.retry_after) from error
    except DestinationFull as error:
        raise _too_many(charge, "line", None) from error
    except MessageTooLarge as error:
        raise RequestRefused(413, "more than is ever admitted", error.name, None, {}) from error
    except CoordinatorUnavailable as error:
        raise RequestRefused(503, "the limits cannot be read", "", None, {}) from error
    if isinstance(decision, Refused):
        raise _too_many(charge, decision.limit, decision.retry_after)
    return decision


def _too_many(charge: Charge, limit: str, after: float | None) -> RequestRefused:
    on = charge.on
    policy = fields.policy(on.limits.values()) if isinstance(on, Limiter) else {}
    return RequestRefused(OVER, "too many requests", limit, after, {**policy, **fields.refused(limit, after)})
