"""A destination, or a pool and its destinations, under the test's own clock, on every server."""

from collections.abc import AsyncIterator, Iterator

import pytest

from headgate.redis.keys import Address
from tests.lua.place import Place
from tests.lua.pool_world import PoolWorld, Runner
from tests.lua.world import World
from tests.support.rewriting import RewritingServer, virtual_clock
from tests.support.servers import newest_server


@pytest.fixture
def share(request: pytest.FixtureRequest) -> int:
    """By what examples are divided on the test's server: 3 on all but the newest, until `make soak` runs them all."""
    binary = request.node.callspec.params.get("redis_url")
    return 3 if binary and binary != newest_server() else 1


@pytest.fixture
async def place(redis_url: str, namespace: str) -> AsyncIterator[Place]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    place = Place(server, Address.of(namespace, "orders"))
    yield place
    await server.forget(place.address, *place.sessions)
    await server.close()


@pytest.fixture
def runner(redis_url: str, namespace: str) -> Iterator[Runner]:
    runner = Runner(redis_url, namespace)
    yield runner
    runner.close()


@pytest.fixture
async def world(redis_url: str, namespace: str) -> AsyncIterator[PoolWorld]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    world = PoolWorld(server, namespace)
    yield world
    await world.close()
    await server.close()


@pytest.fixture
def as_functions() -> bool:
    """Whether a state machine's scripts are called as functions, where the server has such."""
    return True


@pytest.fixture
def driven(redis_url: str, namespace: str, as_functions: bool) -> Iterator[World]:
    """What a state machine drives beside the model."""
    world = World(redis_url, namespace, as_functions=as_functions)
    yield world
    world.close()


@pytest.fixture
def driven_cluster(cluster_url: str, namespace: str) -> Iterator[World]:
    world = World(cluster_url, namespace)
    yield world
    world.close()
