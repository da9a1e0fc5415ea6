"""Two servers, of different versions where there are two, with a link between them."""

from collections.abc import AsyncIterator, Iterator

import pytest

import headgate
from headgate.redis.server import Server
from headgate.redis.url import parse_url
from tests.links.chaos import SOURCE_LIMIT, TARGET_LIMIT
from tests.links.site import Site, Sites
from tests.support.audited import audited
from tests.support.servers import two_servers
from tests.support.shared import SharedServers


@pytest.fixture
async def sites(no_key_left: None, shared_servers: SharedServers, namespace: str) -> AsyncIterator[Sites]:
    servers = [Server(parse_url(shared_servers.standalone(binary))) for binary in two_servers()]
    for server in servers:
        await server.open()
    sites = Sites(*(Site(server, namespace) for server in servers))
    yield sites
    await sites.close()
    for server in servers:
        await server.close()


@pytest.fixture
async def ends(
    cleanup_namespace: str, shared_servers: SharedServers
) -> AsyncIterator[tuple[headgate.Client, headgate.Client]]:
    """Clients of the source's server and of the target's, each with a queue `orders` that has a limit."""
    here, there = (shared_servers.standalone(binary) for binary in two_servers())
    async with (
        headgate.connect(here, namespace=cleanup_namespace) as source,
        headgate.connect(there, namespace=cleanup_namespace) as target,
    ):
        await source.apply("orders", kind="queue", limit=SOURCE_LIMIT)
        await target.apply("orders", kind="queue", limit=TARGET_LIMIT)
        yield source, target


@pytest.fixture(autouse=True)
def ledgers_are_sound(no_key_left: None) -> Iterator[None]:
    """Fail the test whose ledgers break a promise, whatever it is about."""
    with audited() as found:
        yield
    assert not found, "\n".join(found)
