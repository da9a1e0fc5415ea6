"""Two servers, of different versions where there are two, with a link between them."""

from collections.abc import AsyncIterator

import pytest

from headgate.redis.server import Server
from headgate.redis.url import parse_url
from tests.links.site import Site, Sites
from tests.support.servers import available_servers
from tests.support.shared import SharedServers


@pytest.fixture
async def sites(no_key_left: None, shared_servers: SharedServers, namespace: str) -> AsyncIterator[Sites]:
    binaries = available_servers()
    servers = [Server(parse_url(shared_servers.standalone(binary))) for binary in (binaries[-1], binaries[0])]
    for server in servers:
        await server.open()
    sites = Sites(*(Site(server, namespace) for server in servers))
    yield sites
    await sites.close()
    for server in servers:
        await server.close()
