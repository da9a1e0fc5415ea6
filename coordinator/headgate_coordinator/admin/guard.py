"""Who may ask, and what every answer carries: the token, cross-site requests, security headers."""

import hmac
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate_coordinator.admin.problems import problem

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
HARMLESS: Final = ("GET", "HEAD", "OPTIONS")


class Guard:
    """Lets requests through that may be answered.

    Args:
        app: behind it.
        token: that requests must bear; None lets everybody in.
        open_paths: that need no token: probes, and the page's own files, which hold no data.
    """

    def __init__(self, app: ASGIApp, token: str | None, open_paths: frozenset[str]) -> None:
        self._app = app
        self._token = token.encode() if token is not None else None
        self._open = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let the application do it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        headers = Headers(scope=scope)
        if scope["method"] not in HARMLESS and _from_elsewhere(headers):
            refusal = problem(403, "cross-site", "a page of another site may not change anything here")
        elif self._token is not None and scope["path"] not in self._open and not self._bears(headers):
            refusal = problem(
                401, "token-missing", "send the node's admin token: Authorization: Bearer <token>",
                headers={"WWW-Authenticate": 'Bearer realm="headgate"'},
            )  # fmt: skip
        else:
            await self._app(_with_raw_path(scope), receive, send_with_headers)
            return
        await refusal(scope, receive, send_with_headers)

    def _bears(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Compared in constant time, whatever was given: its answer's time says nothing about the token.
        right = hmac.compare_digest(given.strip().encode(), self._token or b"")
        return right and scheme.lower() == "bearer"


def _from_elsewhere(headers: Headers) -> bool:
    """Whether a browser sent it for a page of another origin. Browsers say so; other clients say nothing."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


def _with_raw_path(scope: Scope) -> Scope:
    """Route the API by the path as it was sent, so that an encoded slash stays part of a name."""
    if scope["path"].startswith("/api/") and scope.get("raw_path"):
        return {**scope, "path": scope["raw_path"].decode("ascii", "replace").partition("?")[0]}
    return scope
