"""The rate limit service as proxies see it."""

from collections.abc import AsyncIterator

import pytest

import headgate
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

pytest.importorskip("envoy.service.ratelimit.v3.rls_pb2", reason="headgate[envoy] is not installed")


@pytest.fixture
def url(cleanup_namespace: str, shared_servers: SharedServers) -> str:
    """A single server, where the version makes no difference."""
    return shared_servers.standalone(newest_server())


@pytest.fixture
async def client(url: str, namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(url, namespace=namespace) as client:
        yield client
