"""A limit around HTTP: how much it adds to a request of httpx, and at an ASGI application, out of what is in hand."""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

import httpx

import headgate
from bench.harness import Figure
from headgate.http.asgi import LimitedApp
from headgate.http.httpx import AsyncLimitedTransport

MOST_CLIENT_US: Final = 60.0
MOST_SERVER_US: Final = 40.0
ROUNDS: Final = 15


async def _app(_: Any, __: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"found"})


async def _receive() -> MutableMapping[str, Any]:
    return {"type": "http.request", "body": b""}


async def _send(_: MutableMapping[str, Any]) -> None: ...


async def _cost(call: Callable[[], Awaitable[object]], times: int) -> float:
    """Return the microseconds of processor time that a call takes."""
    began = time.process_time()
    for _ in range(times):
        await call()
    return (time.process_time() - began) / times * 1e6


async def measure(*, quick: bool) -> list[Figure]:
    """Measure requests with and without a limit in turn, on the processor's time."""
    rounds, times = (3, 200) if quick else (ROUNDS, 2000)
    async with headgate.connect() as client, client.session("bench") as session:
        limits = {"slots": {"at_once": 1000}, "calls": {"rate": "10M/s"}}
        await client.apply("legacy", kind="limiter", limits=limits)
        limiter = await session.limiter("legacy")
        inner = httpx.ASGITransport(_app)
        limited = AsyncLimitedTransport(limiter, slots=1, calls=1, inner=inner)
        more: dict[str, list[float]] = {"client": [], "at once": [], "in line": []}
        async with httpx.AsyncClient(transport=inner) as bare, httpx.AsyncClient(transport=limited) as web:
            for _ in range(rounds):
                alone = await _cost(lambda: bare.get("http://legacy.example/"), times)
                more["client"].append(await _cost(lambda: web.get("http://legacy.example/"), times) - alone)
                alone = await _cost(lambda: _app({}, _receive, _send), times)
                for name, timeout in (("at once", 0), ("in line", 5)):
                    app = LimitedApp(_app, limiter, timeout=timeout, slots=1, calls=1)
                    taken = await _cost(lambda app=app: app({"type": "http"}, _receive, _send), times)  # type: ignore[misc]  # bound now
                    more[name].append(taken - alone)
    return [
        Figure.typical("httpx transport: more a request", more["client"], "us", at_most=MOST_CLIENT_US),
        Figure.typical("ASGI, refused at once: more a request", more["at once"], "us", at_most=MOST_SERVER_US),
        Figure.typical("ASGI, in line: more a request", more["in line"], "us", at_most=MOST_SERVER_US),
    ]
