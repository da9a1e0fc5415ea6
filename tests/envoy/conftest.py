"""The rate limit service as proxies see it."""

import importlib.util
from collections.abc import AsyncIterator

import pytest

import headgate
from tests.support.servers import newest_server
from tests.support.shared import SharedServers

HERE = all(importlib.util.find_spec(name) for name in ("grpc", "envoy", "envoy.service"))
"""Whether headgate[envoy] is installed."""
collect_ignore = [] if HERE else ["test_port.py", "test_service.py"]


@pytest.fixture
def url(cleanup_namespace: str, shared_servers: SharedServers) -> str:
    """A single server, where the version makes no difference."""
    return shared_servers.standalone(newest_server())


@pytest.fixture
async def client(url: str, namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(url, namespace=namespace) as client:
        yield client
