"""The application puts probes, metrics, the JSON API and the live page behind one guard."""

import asyncio
import functools
import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib import resources
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from headgate import Client, HeadgateError, InvalidValue
from headgate_coordinator.admin import limits, metrics
from headgate_coordinator.admin.api import Api
from headgate_coordinator.admin.authentication import Authenticator
from headgate_coordinator.admin.fast_path import FastPath
from headgate_coordinator.admin.guard import GuardedApp, RequestGuard
from headgate_coordinator.admin.messages import Messages
from headgate_coordinator.admin.namespace_watch import CachedValue, NamespaceWatch
from headgate_coordinator.admin.openapi import document
from headgate_coordinator.admin.operations import PREFIX
from headgate_coordinator.admin.problems import problem, problem_of
from headgate_coordinator.admin.processes import Live, Processes, Ready
from headgate_coordinator.admin.requests import read_body, routes
from headgate_coordinator.fleet.node_facts import NodeView
from headgate_coordinator.fleet.reports import Siblings
from headgate_coordinator.fleet.waits import WaitTimes
from headgate_coordinator.holds import Holds
from headgate_coordinator.operate.eviction import eviction
from headgate_coordinator.security import Users

_SCRIPT: Final = "text/javascript; charset=utf-8"
_SCRIPTS: Final = (
    "page",
    "arrows",
    "ask",
    "chart",
    "cycles",
    "lists",
    "limiters",
    "losses",
    "messages",
    "meters",
    "panel",
    "pools",
    "stores",
    "strip",
    "words",
)
PAGE: Final = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
    **{f"/{name}.js": (f"{name}.js", _SCRIPT) for name in _SCRIPTS},
}
"""The live page's files, by path; they hold no data."""
PROBES: Final = ("/live", "/ready")
Handler = Callable[[Request], Awaitable[Response]]
RateLimits = Callable[[bytes], Awaitable[tuple[int, str]]]
"""Returns the status and the answer to a request of a proxy in JSON."""


def create_app(
    client: Client,
    node: NodeView | None,
    *,
    token: str | None,
    read_token: str | None = None,
    open_metrics: bool = False,
    destinations: int = 1000,
    hosts: tuple[str, ...] = (),
    users: Users | None = None,
    rate_limits: RateLimits | None = None,
    charge: Callable[[str], Awaitable[str]] | None = None,
    quota: Callable[[str], str] = lambda _: "",
    siblings: Siblings | None = None,
) -> Starlette:
    """Return the admin application.

    Args:
        client: connected; it stays the caller's to close.
        node: that it runs in; None where there is none.
        token: that all requests must bear but those for probes and for the page's own files; None for no token.
        read_token: of who may read all and change nothing; None for none.
        open_metrics: whether ``/metrics`` needs no token.
        destinations: most that have metrics of their own; the rest are counted.
        hosts: names by which requests may call this host, beside localhost and addresses, where there is no token.
        users: of the node, who may use limits as their grants say, and where there is a token read with ``browse`` on
            ``#`` and change with ``manage``; None where everybody may who may call at all.
        rate_limits: answers at ``/json`` what proxies ask the rate limit service for; None where there is none.
        charge: counts a request of a user in its quota, and returns why it is refused; None where there are no quotas.
        quota: returns the limiter under which a user's holds count as in flight; empty where none does.
        siblings: the workers that the node is one of, which answers for all of them; None where it is alone.

    Raises:
        InvalidValue: a token is empty or not printable ASCII, there is one for readers alone, or both are the same; or
            ``destinations`` is negative.
    """
    for each in (token, read_token):
        if each is not None and not (each.isascii() and each.isprintable() and each.strip() == each != ""):
            raise InvalidValue("the admin token must be printable ASCII without blanks around it, and not empty")
    if read_token is not None and token in (None, read_token):
        raise InvalidValue("a read-only token goes with one that may make changes: give both, and make them different")
    if destinations < 0:
        raise InvalidValue(f"destinations with metrics of their own: {destinations}; use 0 or more")
    waited = WaitTimes(destinations)
    client.parts.waits.listeners.append(waited.hear)
    client.parts.waits.of_others.append(waited.hear)
    processes = Processes(client, node, waited, siblings)
    watch = NamespaceWatch(client)
    api = Api(client, node, processes, watch)
    holds = Holds(client, "http", quota)
    callers = Authenticator(users, token, read_token)
    operations = (*api.operations, *Messages(client, watch).operations, *limits.Limits(holds, charge).operations)

    @functools.cache
    def described() -> bytes:
        with_rates = rate_limits is not None
        found = document(operations, token=token is not None, open_metrics=open_metrics, rate_limits=with_rates)
        return bytes(JSONResponse(found).body)

    evicts = CachedValue(functools.partial(eviction, client))

    async def live(_: Request) -> Response:
        return JSONResponse(Live().model_dump())

    async def ready(_: Request) -> Response:
        why = await processes.why_not()
        state = Ready(status="not ready" if why else "ready", reason=why or "")
        return JSONResponse(state.model_dump(), status_code=503 if why else 200)

    async def scrape(request: Request) -> Response:
        picture = await watch.picture()
        reports = await processes.reports(counted=True)
        # In a thread: a thousand destinations are many lines, and the loop has messages to carry.
        text, media_type = await asyncio.to_thread(
            metrics.render,
            picture,
            client.namespace,
            reports,
            most=destinations,
            accept=request.headers.get("accept", ""),
            evicts=bool(await evicts.get()),
        )
        return Response(text, headers={"Content-Type": media_type})

    async def as_proxies(request: Request) -> Response:
        assert rate_limits is not None  # noqa: S101 -- else it has no route
        status, text = await rate_limits(await read_body(request.receive))
        return Response(text, status, media_type="application/json")

    async def openapi(_: Request) -> Response:
        # In a thread, when first asked for: it takes longer than a node takes to begin.
        return Response(await asyncio.to_thread(described), media_type="application/json")

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await holds.close()
        await evicts.close()
        await api.close()
        await processes.close()
        await watch.close()

    guard = RequestGuard(frozenset({*PROBES, *PAGE, *(("/metrics",) if open_metrics else ())}), callers, hosts)
    return Starlette(
        routes=[
            Route("/live", live),
            Route("/ready", ready),
            Route("/metrics", scrape),
            *(Route(path, _file(*found)) for path, found in PAGE.items()),
            *routes(operations),
            Route(f"{PREFIX}/openapi.json", openapi),
            *([Route("/json", as_proxies, methods=["POST"])] if rate_limits is not None else []),
        ],
        middleware=[
            Middleware(FastPath, guard=guard, operations=operations, prefix=limits.PREFIX),
            Middleware(GuardedApp, guard=guard),
        ],
        exception_handlers={HeadgateError: _failed, HTTPException: _refused, Exception: _failed},
        lifespan=lifespan,
    )


def _file(name: str, media_type: str) -> Handler:
    content = (resources.files("headgate_coordinator.admin") / "page" / name).read_bytes()
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Type": media_type}

    async def answer(request: Request) -> Response:
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers)

    return answer


async def _failed(_request: Request, error: Exception) -> Response:
    return problem_of(error) if isinstance(error, HeadgateError) else problem(500, "internal", "see the node's log")


async def _refused(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    headers = error.headers if isinstance(error, HTTPException) else None
    if status == 404:
        detail = f"there is nothing at {json.dumps(request.url.path)}; a slash in a name is written %2F"
    elif status == 405:
        detail = f"{request.method} is not possible here; it takes {(headers or {}).get('Allow', 'other methods')}"
    else:
        detail = getattr(error, "detail", "") or "it failed"
    return problem(status, {404: "not-found", 405: "method-not-allowed"}.get(status, "http"), detail, headers=headers)
