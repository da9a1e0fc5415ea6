"""A guard checks every request and answer: the token, cross-site requests, security headers."""

import functools
import ipaddress
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headgate_coordinator.admin.authentication import Authenticator
from headgate_coordinator.admin.problems import Refused, problem_of
from headgate_coordinator.security import EVERYTHING, Action
from headgate_coordinator.security.access import Access

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
RAW_HEADERS: Final = [
    (name.lower().encode(), value.encode()) for name, value in {**HEADERS, "Cache-Control": "no-store"}.items()
]
_FOREIGN: Final = (
    "without a token this node answers to localhost, to addresses and to the host of --public only: any page may have "
    "its own name lead here; use one of these, or set HEADGATE_ADMIN_TOKEN"
)
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+?)\.?(?::[0-9]*)?")
OWN: Final = "/v1/limits/"
"""Paths where each request says by itself what its caller needs; all others take the whole namespace."""
OF_ONE: Final = re.compile(
    r"(?:GET|HEAD) /api/v1/destinations/[^/]+/messages|POST /api/v1/destinations/[^/]+/messages/(?:move|delete)"
)
"""Likewise: these need a right at one destination, or two."""
IDENTIFIES: Final = "headgate.identifies"
"""Stands in the scope of a request while its password waits for a check: nobody has a right to that connection yet."""
HARMLESS: Final = ("GET", "HEAD", "OPTIONS")


class RequestGuard:
    """A request guard says which requests may be answered.

    Args:
        open_paths: that need no token: probes, and the page's own files, which hold no data.
        callers: who may come: with a token, or everybody where there is none; users, for what their grants say.
        hosts: names by which requests may call this host, beside localhost and addresses, where there is no token.
    """

    def __init__(self, open_paths: frozenset[str], callers: Authenticator, hosts: tuple[str, ...] = ()) -> None:
        self._open = open_paths
        self._callers = callers
        self._hosts = frozenset(host.lower() for host in ("localhost", *hosts) if host)

    async def see(self, scope: Scope, headers: Mapping[str, str]) -> Access | None:
        """Return the rights of who sent a request; None where its path is open to everybody.

        Raises:
            Refused: it may not be answered.
        """
        if not self._callers.has_token and not all(map(self._is_ours, _hosts(scope))):
            raise Refused(403, "foreign-host", _FOREIGN)
        if scope["method"] not in HARMLESS and _from_elsewhere(headers):
            raise Refused(403, "cross-site", "pages of other sites may not change anything here")
        return None if scope["path"] in self._open else await self._identify(headers, scope)

    async def _identify(self, headers: Mapping[str, str], scope: Scope) -> Access:
        scope[IDENTIFIES] = True  # in the very scope that its connection looks at
        try:
            if scope["path"].startswith(OWN):
                return await self._callers.identify(headers, scope.get("client"))
            access = await self._callers.operator(headers, scope.get("client"))
        finally:
            del scope[IDENTIFIES]
        if OF_ONE.fullmatch(f"{scope['method']} {_with_raw_path(scope)['path']}"):
            return access
        right = Action.BROWSE if scope["method"] in HARMLESS else Action.MANAGE
        if not access.may(right, EVERYTHING):
            raise Refused(403, "access-denied", access.refusal(right, EVERYTHING))
        return access

    def _is_ours(self, host: str) -> bool:
        """Return whether a request calls this host by a name of its own, not one led here."""
        name = _name_of(host)
        return name in self._hosts or (name != "" and _is_address(name.strip("[]")))


class GuardedApp:
    """Lets requests through to an application that may be answered, and has all answers bear the headers.

    Args:
        app: behind the guard.
        guard: of it.
    """

    def __init__(self, app: ASGIApp, guard: RequestGuard) -> None:
        self._app, self._guard = app, guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or let the application do it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in RAW_HEADERS if one[0] not in own)]
            await send(message)

        try:
            access = await self._guard.see(scope, headers_of(scope))
        except Refused as error:
            await problem_of(error)(scope, receive, send_with_headers)
            return
        if access is not None:
            scope = {**scope, "access": access}
        await self._app(_with_raw_path(scope), receive, send_with_headers)


def headers_of(scope: Scope) -> dict[str, str]:
    """Return the headers of a request by their names in small letters; of those that come twice the first."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def _hosts(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]


@functools.lru_cache(256)
def _name_of(host: str) -> str:
    """Return the name in the header of a host, empty where it has none."""
    found = _HOST.fullmatch(host.lower())
    return found[1] if found is not None else ""


@functools.lru_cache(256)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _from_elsewhere(headers: Mapping[str, str]) -> bool:
    """Return whether a browser sent it for a page of another origin. Browsers say so; other clients say nothing."""
    if headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        return True
    origin = headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != headers.get("host")


def _with_raw_path(scope: Scope) -> Scope:
    """Route the API by the path as it was sent, so that an encoded slash stays part of a name."""
    if scope["path"].startswith(("/api/", "/v1/")) and scope.get("raw_path"):
        return {**scope, "path": scope["raw_path"].decode("ascii", "replace").partition("?")[0]}
    return scope
