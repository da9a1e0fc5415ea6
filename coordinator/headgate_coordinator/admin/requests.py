"""Requests of the API: who may, what is asked, and the answer. Those to limiters come here past all other routes."""

import asyncio
import re
from collections.abc import Awaitable
from typing import Any, Final, TypeVar
from urllib.parse import parse_qsl, unquote

from pydantic import ValidationError
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from headgate import HeadgateError, InvalidName
from headgate_coordinator.admin.openapi import POLICY_TYPES
from headgate_coordinator.admin.operations import Answer, Call, Operation
from headgate_coordinator.admin.problems import Refused, problem_of
from headgate_coordinator.admin.visit import PATIENCE
from headgate_coordinator.security.access import Access

LARGEST_BODY: Final = 1 << 20
LONGEST_IDEMPOTENCY_KEY: Final = 255
SOON: Final = 0.05
"""Seconds that an answer takes before anybody looks whether its caller is still there."""
T = TypeVar("T")


class Straight:
    """Takes what is posted to limiters straight to its operation, by the path alone; all else goes its usual way.

    Args:
        app: that has the routes of all operations.
        operations: those that are posted to ``prefix/{name}/word`` are taken.
        prefix: of their paths.
    """

    def __init__(self, app: ASGIApp, operations: tuple[Operation, ...], prefix: str) -> None:
        self._app = app
        self._prefix = prefix.removesuffix("{name}")
        self._by_word = {
            one.path[1:]: one for one in operations if one.prefix == prefix and one.method == "POST" and one.path
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the application do it."""
        operation, name = None, ""
        if scope["type"] == "http" and scope["method"] == "POST" and scope["path"].startswith(self._prefix):
            name, _, word = scope["path"][len(self._prefix) :].partition("/")
            operation = self._by_word.get(word) if name else None
        if operation is None:
            await self._app(scope, receive, send)
            return
        try:
            response = await respond(operation, name, scope, receive)
        except HeadgateError as error:
            response = problem_of(error)
        await response(scope, receive, send)


def routes(operations: tuple[Operation, ...]) -> list[Route]:
    """Return a route for each path; what it does not allow is then answered with what it does."""
    by_path: dict[str, dict[str, Operation]] = {}
    for operation in operations:
        by_path.setdefault(operation.prefix + operation.path, {})[operation.method] = operation

    def route(path: str, methods: dict[str, Operation]) -> Route:
        async def answer(request: Request) -> Response:
            operation = methods["GET" if request.method == "HEAD" else request.method]
            return await respond(operation, request.path_params.get("name", ""), request.scope, request.receive)

        return Route(path, answer, methods=list(methods))

    return [route(path, methods) for path, methods in by_path.items()]


async def respond(operation: Operation, name: str, scope: Scope, receive: Receive) -> Response:
    """Return the answer to a request.

    Args:
        operation: that it asks for.
        name: of a destination or a link in its path, as it was sent; empty where there is none.
        scope: of the request, with the ``access`` of its caller where there is one.
        receive: gives its body.

    Raises:
        HeadgateError: it is refused, or failed.
    """
    call = await _read(operation, name, scope, receive)
    running = operation.run(call)
    result = await (_while_heard(receive, running) if operation.waits else running)
    model, headers = (result.model, result.headers) if isinstance(result, Answer) else (result, None)
    return Response(model.model_dump_json(), media_type="application/json", headers=headers)


async def _while_heard(receive: Receive, answering: Awaitable[T]) -> T:
    """Wait for an answer for as long as somebody waits for it: who hangs up leaves the line."""
    task = asyncio.current_task()
    assert task is not None  # noqa: S101 -- this is a coroutine
    listening: asyncio.Task[None] | None = None
    gone = False

    async def listen() -> None:
        nonlocal gone
        await receive()  # its body was read, so nothing else comes
        gone = True
        task.cancel()

    def begin() -> None:
        nonlocal listening
        listening = asyncio.create_task(listen())

    soon = asyncio.get_running_loop().call_later(SOON, begin)
    try:
        return await answering
    except asyncio.CancelledError:
        if not gone or task.uncancel() > 0:
            raise
        raise Refused(499, "hung-up", "the caller hung up") from None
    finally:
        soon.cancel()
        if listening is not None:
            listening.cancel()


_URGENCY: Final = re.compile(r"(?:^|,)\s*u=([0-7])\s*(?:$|[,;])", re.ASCII)
_WAIT: Final = re.compile(r"(?:^|,)\s*wait=(\d{1,6})\s*(?:$|[,;])", re.ASCII | re.IGNORECASE)


async def _read(operation: Operation, raw_name: str, scope: Scope, receive: Receive) -> Call:
    name, access = _name(raw_name), scope.get("access") or Access()
    if operation.right is not None and not access.may(operation.right, name):
        raise Refused(403, "access-denied", access.refusal(operation.right, name))
    query = scope["query_string"].decode("latin-1")
    try:
        parameters = operation.query.model_validate(dict(parse_qsl(query, keep_blank_values=True)) if query else {})
    except ValidationError as error:
        raise _unreadable("the query", error) from None
    headers = Headers(scope=scope)
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    body = await _body(receive, operation, media_type) if operation.body is not None else None
    again = headers.get("idempotency-key", "")
    if len(again) > LONGEST_IDEMPOTENCY_KEY:
        raise Refused(400, "invalid-value", f"Idempotency-Key: use up to {LONGEST_IDEMPOTENCY_KEY} characters")
    urgency, wait = _URGENCY.search(headers.get("priority", "")), _WAIT.search(headers.get("prefer", ""))
    return Call(
        name, parameters, body, media_type, access, again, int(urgency[1]) if urgency else None,
        float(wait[1]) if wait else None,
    )  # fmt: skip


def _name(raw: str) -> str:
    """Return the destination or link in a request's path, empty where there is none."""
    try:
        return unquote(raw, errors="strict") if "%" in raw else raw
    except UnicodeDecodeError:
        raise InvalidName(f"destination {raw!r}: percent-encode it as UTF-8") from None


async def _body(receive: Receive, operation: Operation, media_type: str) -> Any:
    accepted = POLICY_TYPES if operation.body == "policy" else ("application/json",)
    if media_type not in accepted:
        raise Refused(415, "media-type", f"Content-Type {media_type or 'is missing'}; send {' or '.join(accepted)}")
    try:
        text = (await read_body(receive)).decode()
    except UnicodeDecodeError as error:
        raise Refused(400, "invalid-value", f"the body is not UTF-8 at byte {error.start}") from None
    if not isinstance(operation.body, type):
        return text
    try:
        return operation.body.model_validate_json(text)
    except ValidationError as error:
        raise _unreadable("the body", error) from None


async def read_body(receive: Receive) -> bytes:
    """Return a body.

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
                if len(raw) > LARGEST_BODY:
                    raise Refused(413, "too-large", f"the body is larger than {LARGEST_BODY} bytes",
                                  largest=LARGEST_BODY)  # fmt: skip
    except TimeoutError:
        raise Refused(408, "timeout", f"the body has not come within {PATIENCE:g} s") from None
    return bytes(raw)


def _unreadable(where: str, error: ValidationError) -> Refused:
    errors = [{"place": ".".join(map(str, one["loc"])), "text": one["msg"]} for one in error.errors(include_url=False)]
    first = errors[0]
    detail = f"{where} cannot be used: {first['place'] + ': ' if first['place'] else ''}{first['text']}"
    return Refused(400, "invalid-value", detail, errors=errors)
