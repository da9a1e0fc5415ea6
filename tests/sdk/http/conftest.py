"""A web server that counts how many requests it answers at a time, and a limiter for them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvicorn

import headgate
from tests.support.waiting import wait_until

PARTS = 3


class Site:
    """An ASGI application.

    Attributes:
        url: where it is served.
        under_way, most: requests, now and at the most.
        gone: clients that hung up before their answer had ended.
        codes: what it answers next; 200 when empty.
        go: holds back the second part of a body until it is set.
    """

    def __init__(self) -> None:
        self.url = ""
        self.under_way = self.most = self.seen = self.gone = 0
        self.codes: list[tuple[int, dict[str, str]]] = []
        self.go = asyncio.Event()
        self.go.set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        self.under_way += 1
        self.seen += 1
        self.most = max(self.most, self.under_way)
        hearing = asyncio.create_task(self._hear(receive))
        try:
            code, fields = self.codes.pop(0) if self.codes else (200, {})
            headers = [(name.encode(), value.encode()) for name, value in fields.items()]
            await send({"type": "http.response.start", "status": code, "headers": headers})
            for part in range(PARTS):
                await send({"type": "http.response.body", "body": b"x" * 70_000, "more_body": part < PARTS - 1})
                await self.go.wait()
        finally:
            hearing.cancel()
            self.under_way -= 1

    async def _hear(self, receive: Any) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.gone += 1


@asynccontextmanager
async def served(app: Any) -> AsyncIterator[str]:
    """Serve an application; yields its URL."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="off"))
    task = asyncio.create_task(server.serve())
    await wait_until(lambda: server.started)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/"
    finally:
        server.should_exit = server.force_exit = True
        await task


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    async with served(site) as site.url:
        yield site
        site.go.set()


@pytest.fixture
async def session(client: headgate.Client) -> AsyncIterator[headgate.Session]:
    async with client.session("web") as session:
        yield session


@pytest.fixture
async def slots(client: headgate.Client, session: headgate.Session) -> headgate.Limiter:
    """Two at a time."""
    await client.apply("slots", kind="limiter", limits={"slots": {"at_once": 2}})
    return await session.limiter("slots", in_hand=False)


async def held(limiter: headgate.Limiter) -> int:
    return (await limiter.state())["slots"].taken
