"""A limiter under the test's own clock, on every server, and sessions that call it."""

from collections.abc import AsyncIterator

import pytest

from headgate.redis.keys import Address
from tests.lua.limiters.trial import Limiter
from tests.support.rewriting import RewritingServer, virtual_clock


@pytest.fixture
async def limiter(redis_url: str, namespace: str) -> AsyncIterator[Limiter]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    limiter = Limiter(server, Address.of(namespace, "llm"))
    yield limiter
    await server.forget(limiter.address, *limiter.sequence)
    await server.close()
