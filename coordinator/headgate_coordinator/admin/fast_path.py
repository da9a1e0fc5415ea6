"""The short way of what is posted to limiters: past all other routes, and past the messages of ASGI."""

from collections.abc import Iterable, Mapping
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from headgate import HeadgateError
from headgate_coordinator.admin.guard import RAW_HEADERS, RequestGuard, headers_of
from headgate_coordinator.admin.http_connection import EXCHANGE, HttpExchange
from headgate_coordinator.admin.operations import Operation
from headgate_coordinator.admin.problems import problem_of
from headgate_coordinator.admin.requests import JSON, respond
from headgate_coordinator.security.access import Access


def _raw(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.lower().encode(), value.encode("latin-1")) for name, value in headers.items()]


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%s: %s\r\n" % one for one in headers])


_OF_ALL: Final = _lines(RAW_HEADERS)


class FastPath:
    """Takes what is posted to limiters straight to its operation, by the path alone; all else goes its usual way.

    Args:
        app: that has the routes of all operations, behind the same guard.
        guard: of all requests.
        operations: those that are posted to ``prefix/{name}/word`` are taken.
        prefix: of their paths.
    """

    def __init__(self, app: ASGIApp, guard: RequestGuard, operations: tuple[Operation, ...], prefix: str) -> None:
        self._app, self._guard = app, guard
        self._prefix = prefix.removesuffix("{name}").encode()
        self._by_word = {
            one.path[1:].encode(): one for one in operations if one.prefix == prefix and one.method == "POST"
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have the application do it."""
        operation, name = self._asked(scope)
        if operation is None:
            await self._app(scope, receive, send)
            return
        status = 200
        try:
            headers = headers_of(scope)
            access = await self._guard.see(scope, headers) or Access()
            found = await respond(operation, name, scope, receive, headers, access)
            body = found.model.model_dump_json().encode()
            raw = [(b"content-type", JSON.encode()), (b"content-length", b"%d" % len(body)), *_raw(found.headers)]
        except HeadgateError as error:
            problem = problem_of(error)
            status, raw, body = problem.status_code, problem.raw_headers, bytes(problem.body)
        exchange: HttpExchange | None = scope.get(EXCHANGE)
        if exchange is not None:
            await exchange.answer(status, _lines(raw) + _OF_ALL, body)
        else:
            await send({"type": "http.response.start", "status": status, "headers": [*raw, *RAW_HEADERS]})
            await send({"type": "http.response.body", "body": body})

    def _asked(self, scope: Scope) -> tuple[Operation | None, str]:
        """Return the operation that a request asks for, None where that is another's, and the name in its path."""
        path: bytes = scope.get("raw_path", b"")
        if scope["type"] != "http" or scope["method"] != "POST" or not path.startswith(self._prefix):
            return None, ""
        name, _, word = path[len(self._prefix) :].partition(b"/")
        return self._by_word.get(word) if name else None, name.decode("ascii", "replace")
