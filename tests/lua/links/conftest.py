"""A server under the test's own clock, for links between its destinations."""

from collections.abc import AsyncIterator

import pytest

from tests.lua.route import Route
from tests.support.rewriting import RewritingServer, virtual_clock


@pytest.fixture
async def server(redis_url: str) -> AsyncIterator[RewritingServer]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    yield server
    await server.close()


@pytest.fixture
async def route(server: RewritingServer, namespace: str) -> AsyncIterator[Route]:
    route = await Route.make(server, namespace)
    yield route
    await route.check()
    await route.close()
