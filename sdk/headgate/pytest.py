"""Fixtures for tests of services that use Headgate, on a real Redis that ends with them. pytest finds them by itself.

::

    def test_an_order_is_announced(headgate_client):
        with headgate_client.session("shop") as session:
            announce_order(session, 42)                              # the code under test
            assert session.consumer("orders").receive(timeout=5).headers == {"order": 42}

    async def test_the_same_without_threads(headgate):
        async with headgate.connect() as client: ...

Each test has a namespace of its own, in one private Redis for all tests of a process.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import headgate as library
    import headgate.sync


@dataclass(frozen=True)
class ScratchNamespace:
    """A scratch namespace is used by one test and nobody else.

    Attributes:
        url: of the private Redis, for services that connect by themselves.
        namespace: of this test.
    """

    url: str
    namespace: str

    def connect(self) -> "library.Client":
        """Return a client, as :func:`headgate.connect` does."""
        import headgate as library

        return library.connect(self.url, namespace=self.namespace)


@pytest.fixture(scope="session")
def headgate_url() -> Iterator[str]:
    """Start a private Redis; it ends with the tests."""
    from headgate.redis.embedded import EmbeddedRedis

    with EmbeddedRedis.start() as server:
        yield server.url


@pytest.fixture(name="headgate")
def place(headgate_url: str) -> ScratchNamespace:
    """Return where a test may do what it likes."""
    return ScratchNamespace(headgate_url, f"t{uuid.uuid4().hex[:20]}")


@pytest.fixture
def headgate_client(headgate: ScratchNamespace) -> "Iterator[headgate.sync.Client]":
    """Return a client for threads, closed after the test."""
    from headgate.sync import connect

    with connect(headgate.url, namespace=headgate.namespace) as client:
        yield client
