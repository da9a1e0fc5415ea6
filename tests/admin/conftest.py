"""Admin HTTP as its clients see it: the application itself, and a real server with a browser before it."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import httpx
import pytest
from starlette.applications import Starlette

import headgate
from headgate_coordinator.admin import create_app
from headgate_coordinator.node.facts import NodeView
from tests.admin.standin import StandIn
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

Http = httpx.AsyncClient
Open = Callable[..., "AsyncIterator[Http]"]


@pytest.fixture
def url(cleanup_namespace: str, shared_servers: SharedServers) -> str:
    """A single server, where the version makes no difference."""
    return shared_servers.standalone(newest_server())


@pytest.fixture
async def client(url: str, namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(url, namespace=namespace) as client:
        yield client


@pytest.fixture
def node() -> StandIn:
    return StandIn()


@pytest.fixture
async def open_http() -> AsyncIterator[Callable[..., object]]:
    """Returns how to open HTTP clients of applications; they and their applications end with the test."""
    async with AsyncExitStack() as stack:

        async def open_one(
            client: headgate.Client, node: NodeView | None = None, *, token: str | None = None, **settings: object
        ) -> Http:
            app = create_app(client, node, token=token, **settings)  # type: ignore[arg-type]
            return await stack.enter_async_context(_Running(app))

        yield open_one


@pytest.fixture
async def http(client: headgate.Client, node: StandIn, open_http: Callable[..., object]) -> Http:
    found: Http = await open_http(client, node)  # type: ignore[misc]
    return found


class _Running:
    def __init__(self, app: Starlette) -> None:
        self._app = app
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Http:
        await self._stack.enter_async_context(self._app.router.lifespan_context(self._app))
        transport = httpx.ASGITransport(self._app, raise_app_exceptions=True)
        return await self._stack.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://node.example")
        )

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()
