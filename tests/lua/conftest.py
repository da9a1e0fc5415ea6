"""A destination under the test's own clock, on every server."""

from collections.abc import AsyncIterator

import pytest

from headgate.redis.keys import Address
from tests.lua.place import Place
from tests.support.rewriting import RewritingServer, virtual_clock


@pytest.fixture
async def place(redis_url: str, namespace: str) -> AsyncIterator[Place]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    place = Place(server, Address.of(namespace, "orders"))
    yield place
    await server.forget(place.address, *place.sessions)
    await server.close()
