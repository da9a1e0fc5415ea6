"""An error is answered with an RFC 9457 problem document: a stable type, what happened, what to do, and the facts."""

import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from headgate import (
    AccessDenied,
    Closed,
    CoordinatorUnavailable,
    DestinationFull,
    HeadgateError,
    InvalidName,
    InvalidValue,
    MessageTooLarge,
    MessageUnavailable,
    PolicyConflict,
    PolicyError,
    Shed,
    UnknownDestination,
)
from headgate.policy import BadDocument
from headgate_coordinator.holds import HoldOver
from headgate_coordinator.security.creation_quota import TooManyDestinations

MEDIA_TYPE: Final = "application/problem+json"
STATUSES: Final[tuple[tuple[type[HeadgateError], int], ...]] = (
    (InvalidName, 400),
    (InvalidValue, 400),
    (BadDocument, 422),
    (UnknownDestination, 404),
    (PolicyConflict, 409),
    (PolicyError, 409),
    (AccessDenied, 502),
    (CoordinatorUnavailable, 503),
    (Shed, 429),
    (DestinationFull, 503),
    (MessageTooLarge, 422),
    (MessageUnavailable, 409),
    (TooManyDestinations, 403),
    (Closed, 503),
    (HoldOver, 410),
    (HeadgateError, 500),
)
"""Which status an error is answered with; the first that fits."""


class ProblemDocument(BaseModel):
    """A problem document describes an error (RFC 9457); facts of the error are further members."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(description="urn:headgate:problem:<word>; stable, for programs")
    title: str = Field(description="the same for every problem of its type")
    status: int
    detail: str = Field(description="what happened, and what to do")


class Refused(HeadgateError):
    """A request is refused with a problem of its own.

    Attributes:
        status: of the answer.
        word: that its type ends with.
        facts: further members.
        headers: of the answer.
    """

    def __init__(
        self, status: int, word: str, detail: str, *, headers: Mapping[str, str] | None = None, **facts: Any
    ) -> None:
        self.status = status
        self.word = word
        self.facts = facts
        self.headers = headers
        super().__init__(detail)


def problem(
    status: int,
    word: str,
    detail: str,
    facts: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    """Return an answer that says what went wrong.

    Args:
        status: of the answer.
        word: that its type ends with, with hyphens.
        detail: what happened, and what to do.
        facts: further members.
        headers: further ones.
    """
    body = {
        **(facts or {}),
        "type": f"urn:headgate:problem:{word}",
        "title": word.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
    }
    return JSONResponse(body, status_code=status, headers=dict(headers or {}), media_type=MEDIA_TYPE)


def problem_of(error: HeadgateError) -> JSONResponse:
    """Return the answer to a request that failed."""
    if isinstance(error, Refused):
        return problem(error.status, error.word, str(error), error.facts, error.headers)
    status = next(status for kind, status in STATUSES if isinstance(error, kind))
    word = re.sub(r"(?<=[a-z])(?=[A-Z])", "-", type(error).__name__).lower()
    facts = {name: plain for name, value in vars(error).items() if (plain := _plain(value)) is not None}
    return problem(status, word, str(error), facts)


def _plain(value: Any) -> Any:
    if isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, list | tuple):
        return [plain for one in value if (plain := _plain(one)) is not None]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else None
