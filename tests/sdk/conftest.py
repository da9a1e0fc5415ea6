"""Clients on the shared servers, on servers of the test's own, and what was really stored."""

from collections.abc import AsyncIterator, Iterator

import pytest
import redis.asyncio

import headgate
from tests.sdk.scene import Scene
from tests.support.audited import audited
from tests.support.servers import RedisServer


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
async def other(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    """A second client of the same namespace: another host, as far as Redis can tell."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.fixture
def server() -> Iterator[RedisServer]:
    """A Redis of the test's own, to be killed and frozen; it keeps what it answered."""
    with RedisServer.start() as server:
        yield server


@pytest.fixture
async def scene(client: headgate.Client, redis_url: str) -> AsyncIterator[Scene]:
    async with redis.asyncio.Redis.from_url(redis_url) as direct:
        yield Scene(client, direct)


@pytest.fixture(autouse=True)
def ledgers_are_sound(no_key_left: None) -> Iterator[None]:
    """Fail the test whose ledgers break a promise, whatever it is about."""
    with audited() as found:
        yield
    assert not found, "\n".join(found)
