"""Pools over the sites of :mod:`tests.links.sites`: their policies, the work of nodes on them, and what they hold."""

import contextlib
from collections.abc import AsyncIterator, Iterable

from headgate.redis.keys import Address, PoolAddress
from headgate.redis.replies import record
from headgate.redis.stores.pools import PoolStore
from headgate_coordinator.links.sites import Sites
from headgate_coordinator.pools.supervisor import PoolSupervisor
from tests.links.sites import TTL, SiteOf

POOLED = "[[destination]]\nmatch = '#'\nkind = 'queue'\npools = ['orders']\n"


def whole(limit: int, *, least: int = 0, **most: int) -> str:
    """Return the policy of the site whose pool it is; each other has so much at least."""
    form = "{0} = {{ most = {1}, least = {2} }}" if least else "{0} = {1}"
    parts = ", ".join(form.format(name, size, least) for name, size in most.items())
    return f"[[pool]]\nname = 'orders'\nlimit = {limit}\nsites = {{ {parts} }}\n{POOLED}"


def part(site: str) -> str:
    """Return the policy of a site with a part in it."""
    return f"[[pool]]\nname = 'orders'\nsite = '{site}'\n{POOLED}"


def reached_by_env(site: SiteOf) -> str:
    """Return what a policy says of a site whose URL its nodes have from their environment."""
    name = site.name
    return (
        f"[[site]]\nname = '{name}'\nurl = 'env:HEADGATE_SITE_{name.upper()}'\nnamespace = '{site.client.namespace}'\n"
    )


@contextlib.asynccontextmanager
async def working(*sites: SiteOf, count: int = 1) -> AsyncIterator[list[PoolSupervisor]]:
    """Have so many nodes at each of these sites work on pools."""
    async with contextlib.AsyncExitStack() as stack:
        nodes = []
        for site in sites:
            for number in range(count):
                clients = Sites(site.client.namespace, site.reach)
                stack.push_async_callback(clients.close)
                node = PoolSupervisor(site.client, f"{site.name}-{number}", clients, ttl=TTL)
                await node.start()
                stack.push_async_callback(node.close)
                nodes.append(node)
        yield nodes


async def shared(site: SiteOf) -> dict[str, int]:
    """Return the bytes that the pool of a site has lent: to destinations, and to sites."""
    store = PoolStore(site.client.store.server)
    return {share.member: share.held for share in await store.members(PoolAddress.of(site.client.namespace, "orders"))}


async def drawn(site: SiteOf) -> int:
    """Return the bytes that the pool of a site holds of the other."""
    fields = await PoolStore(site.client.store.server).fields(PoolAddress.of(site.client.namespace, "orders"))
    share = record(fields.get("share", "granted=0 returned=0").encode())
    return int(share["granted"]) - int(share["returned"])


async def in_use(site: SiteOf, names: Iterable[str]) -> int:
    """Return the bytes pending and leased at a site."""
    size = 0
    for name in names:
        key = Address.of(site.client.namespace, name).key
        counters = await site.client.store.server.command(key.encode(), "HMGET", key, "pending_bytes", "leased_bytes")
        size += sum(int(n or 0) for n in counters)
    return size
