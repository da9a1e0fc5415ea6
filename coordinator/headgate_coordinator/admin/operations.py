"""Each operation of the API is declared here: routes and the OpenAPI document are both made from that."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from headgate_coordinator.security import Action
from headgate_coordinator.security.access import Access

PREFIX: Final = "/api/v1"
Sort = Literal["name", "state", "pending", "leased", "limit", "used", "blocked", "consumers", "in", "out"]


class Query(BaseModel):
    """A query holds the parameters of a request; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class NoQuery(Query):
    """`NoQuery` allows no parameters."""


class Listing(Query):
    """A listing says which destinations to list, and in which order."""

    search: str = Field("", max_length=255, description="part of the name, whatever its case")
    only: Literal["all", "blocked"] = Field("all", description="blocked: only those that are not open")
    sort: Sort = Field("name", description="equal ones by name")
    descending: bool = Field(False, description="the largest first")
    offset: int = Field(0, ge=0, le=1_000_000, description="how many of those that match to skip first")
    limit: int = Field(100, ge=1, le=1000, description="at most how many")


class ViewQuery(Query):
    """A view query names the party whose view of a destination is asked for."""

    producer: str = Field("", max_length=120, description="id of a session: why its sends wait")
    consumer: str = Field("", max_length=120, description="id of a consumer: why it gets messages or does not")
    key: str | None = Field(None, max_length=255, description="key of a limiter: why its admissions wait")


class PutQuery(Query):
    """A put query holds the choices for putting a policy in force."""

    dry_run: bool = Field(False, description="say what would change, change nothing")
    expect: int | None = Field(None, ge=0, description="only over this version; 0: only where there is none")
    source: str = Field("", max_length=100, description="what the policy calls its file")


class BlockRequest(BaseModel):
    """A block request gives the reason for stopping a destination."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    reason: str = Field(min_length=1, max_length=200, description="the reason that waiters see")


@dataclass(frozen=True, slots=True)
class Call:
    """A call is a request that was read: the name in its path, its query, its body.

    Attributes:
        access: the rights of its caller, of an operation that takes one; else nobody's.
        idempotency: the key by which its repetition is known, empty without one.
        priority: its urgency (RFC 9218), 0 to 7; None without one.
        patience: seconds that it prefers to wait (RFC 7240); None where it does not say.
    """

    name: str
    query: Any
    body: Any
    media_type: str
    access: Access
    idempotency: str = ""
    priority: int | None = None
    patience: float | None = None


@dataclass(frozen=True, slots=True)
class AnswerWithHeaders:
    """An answer with headers has headers of its own beside its model."""

    model: BaseModel
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation declares how the API answers one method at one path.

    Attributes:
        method: of the request.
        path: after the prefix; ``{name}`` is a destination or a link, percent-encoded whole.
        summary: what it does.
        run: answers it.
        answers: what the answer may be.
        query: its parameters.
        body: model of its body; ``"policy"`` for a policy document; None for none.
        prefix: of the path.
        right: that its caller needs at the destination; None where the node's token is what lets callers in.
        waits: whether it may take long: it ends when its caller hangs up.
    """

    method: Literal["GET", "PUT", "POST"]
    path: str
    summary: str
    run: Callable[[Call], Awaitable[BaseModel | AnswerWithHeaders]]
    answers: tuple[type[BaseModel], ...]
    query: type[Query] = NoQuery
    body: type[BaseModel] | Literal["policy"] | None = None
    prefix: str = PREFIX
    right: Action | None = None
    waits: bool = False
