"""Two clients of one namespace, on a single server and on three masters."""

from collections.abc import AsyncIterator

import pytest

import headgate
from tests.support.servers import newest_server
from tests.support.shared import SharedServers


@pytest.fixture(params=["standalone", "cluster"])
def url(request: pytest.FixtureRequest, cleanup_namespace: str, shared_servers: SharedServers) -> str:
    return shared_servers.cluster().url if request.param == "cluster" else shared_servers.standalone(newest_server())


@pytest.fixture
def one_url(cleanup_namespace: str, shared_servers: SharedServers) -> str:
    """A single server, where it makes no difference."""
    return shared_servers.standalone(newest_server())


@pytest.fixture
async def client(url: str, namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(url, namespace=namespace) as client:
        yield client


@pytest.fixture
async def other(url: str, namespace: str) -> AsyncIterator[headgate.Client]:
    """Another host, as far as Redis can tell."""
    async with headgate.connect(url, namespace=namespace) as client:
        yield client
