"""A request to the API is checked, read and answered here: who may, what is asked, and the answer."""

import asyncio
import functools
import re
from collections.abc import Awaitable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope

from headgate import InvalidName
from headgate_coordinator.admin.guard import headers_of
from headgate_coordinator.admin.http_connection import EXCHANGE, PATIENCE, HttpExchange
from headgate_coordinator.admin.openapi import POLICY_TYPES
from headgate_coordinator.admin.operations import AnswerWithHeaders, Call, Operation, Query
from headgate_coordinator.admin.problems import Refused
from headgate_coordinator.security.access import Access

JSON: Final = "application/json"
LARGEST_BODY: Final = 1 << 16
"""Bytes of a body that is no policy."""
LARGEST_POLICY: Final = 1 << 20
MOST_ERRORS: Final = 20
"""Errors of one request that its answer names, each in so many characters of text:"""
MOST_TEXT: Final = 200
LONGEST_IDEMPOTENCY_KEY: Final = 255
T = TypeVar("T")
B = TypeVar("B", bytes, bytearray)


def routes(operations: tuple[Operation, ...]) -> list[Route]:
    """Return a route for each path; what it does not allow is then answered with what it does."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.prefix + operation.path, {})[operation.method] = operation

    def route(path: str, methods: dict[str, Operation]) -> Route:
        async def answer(request: Request) -> Response:
            operation = methods["GET" if request.method == "HEAD" else request.method]
            name, scope = request.path_params.get("name", ""), request.scope
            access = scope.get("access") or Access()
            found = await respond(operation, name, scope, request.receive, headers_of(scope), access)
            return Response(found.model.model_dump_json(), media_type=JSON, headers=found.headers)

        return Route(path, answer, methods=list(methods))

    return [route(path, methods) for path, methods in by_path.items()]


async def respond(
    operation: Operation, name: str, scope: Scope, receive: Receive, headers: Mapping[str, str], access: Access
) -> AnswerWithHeaders:
    """Return the answer to a request.

    Args:
        operation: that it asks for.
        name: of a destination or a link in its path, as it was sent; empty where there is none.
        scope: of the request.
        receive: gives its body.
        headers: by their names in small letters.
        access: the rights of its caller.

    Raises:
        HeadgateError: it is refused, or failed.
    """
    exchange: HttpExchange | None = scope.get(EXCHANGE)
    whole = exchange.body if exchange is not None else None
    call = await _read(operation, name, scope, receive if whole is None else whole, headers, access)
    if operation.waits and exchange is not None:
        if exchange.over:
            raise _hung_up()
        result = await _while_heard(exchange, operation.run(call))
    else:
        result = await operation.run(call)
    return result if isinstance(result, AnswerWithHeaders) else AnswerWithHeaders(result)


async def _while_heard(exchange: HttpExchange, answering: Awaitable[T]) -> T:
    """Wait for an answer for as long as somebody waits for it: who hangs up leaves the line."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 -- this is a coroutine
    gone = False

    def leave() -> None:
        nonlocal gone
        gone = True
        task.cancel()

    exchange.when_hung_up(leave)
    try:
        return await answering
    except asyncio.CancelledError:
        if not gone or task.uncancel() > 0:
            raise
        raise _hung_up() from None
    finally:
        exchange.when_hung_up(None)


def _hung_up() -> Refused:
    return Refused(499, "hung-up", "the caller hung up")


_URGENCY: Final = re.compile(r"(?:^|,)\s*u=([0-7])\s*(?:$|[,;])", re.ASCII)
_WAIT: Final = re.compile(r"(?:^|,)\s*wait=(\d{1,6})\s*(?:$|[,;])", re.ASCII | re.IGNORECASE)


async def _read(
    operation: Operation, raw_name: str, scope: Scope, body: Receive | bytes, headers: Mapping[str, str], access: Access
) -> Call:
    name = _name(raw_name)
    if operation.right is not None and not access.may(operation.right, name):
        raise Refused(403, "access-denied", access.refusal(operation.right, name))
    query = _query(operation, scope["query_string"]) if scope["query_string"] else None
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    read = await _body(body, operation, media_type) if operation.body is not None else None
    again = headers.get("idempotency-key", "")
    if len(again) > LONGEST_IDEMPOTENCY_KEY:
        raise Refused(400, "invalid-value", f"Idempotency-Key: use up to {LONGEST_IDEMPOTENCY_KEY} characters")
    urgency = _URGENCY.search(headers["priority"]) if "priority" in headers else None
    wait = _WAIT.search(headers["prefer"]) if "prefer" in headers else None
    return Call(
        name, query or _without(operation.query), read, media_type, access, again, int(urgency[1]) if urgency else None,
        float(wait[1]) if wait else None,
    )  # fmt: skip


@functools.cache
def _without(query: type[Query]) -> Query:
    """Return the parameters of a request that says nothing of them."""
    return query()


def _query(operation: Operation, raw: bytes) -> Query:
    try:
        pairs = parse_qsl(raw.decode(), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError:  # what stood for it would be another key, which others may have too
        raise Refused(400, "invalid-value", "the query is not UTF-8; percent-encode it as UTF-8") from None
    try:
        return operation.query.model_validate(dict(pairs))
    except ValidationError as error:
        raise _unreadable("the query", error) from None


def _name(raw: str) -> str:
    """Return the destination or link in a request's path, empty where there is none."""
    try:
        return unquote(raw, errors="strict") if "%" in raw else raw
    except UnicodeDecodeError:
        raise InvalidName(f"destination {raw!r}: percent-encode it as UTF-8") from None


async def _body(body: Receive | bytes, operation: Operation, media_type: str) -> Any:
    is_policy = operation.body == "policy"
    accepted, largest = (POLICY_TYPES, LARGEST_POLICY) if is_policy else ((JSON,), LARGEST_BODY)
    if media_type not in accepted:
        raise Refused(415, "media-type", f"Content-Type {media_type or 'is missing'}; send {' or '.join(accepted)}")
    try:
        text = (_bounded(body, largest) if isinstance(body, bytes) else await read_body(body, largest)).decode()
    except UnicodeDecodeError as error:
        raise Refused(400, "invalid-value", f"the body is not UTF-8 at byte {error.start}") from None
    if not isinstance(operation.body, type):
        return text
    try:
        return operation.body.model_validate_json(text)
    except ValidationError as error:
        raise _unreadable("the body", error) from None


async def read_body(receive: Receive, largest: int = LARGEST_BODY) -> bytes:
    """Return a body of so many bytes at the most.

    Raises:
        Refused: it is too large, or does not come.
    """
    raw, more = bytearray(), True
    try:
        async with asyncio.timeout(PATIENCE):
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise Refused(499, "hung-up", "the caller hung up in the middle of a body")
                raw += message.get("body", b"")
                more = message.get("more_body", False)
                _bounded(raw, largest)
    except TimeoutError:
        raise Refused(408, "timeout", f"the body did not arrive within {PATIENCE:g} s") from None
    return bytes(raw)


def _bounded(raw: B, largest: int) -> B:
    if len(raw) > largest:
        raise Refused(413, "too-large", f"the body is larger than {largest} bytes", largest=largest)
    return raw


def _unreadable(where: str, error: ValidationError) -> Refused:
    named = error.errors(include_url=False, include_context=False, include_input=False)[:MOST_ERRORS]
    errors = [{"place": ".".join(map(str, one["loc"]))[:MOST_TEXT], "text": one["msg"][:MOST_TEXT]} for one in named]
    first = errors[0]
    detail = f"{where} cannot be used: {first['place'] + ': ' if first['place'] else ''}{first['text']}"
    return Refused(400, "invalid-value", detail, errors=errors)
