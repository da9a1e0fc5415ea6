"""A site leaves letters at a pool of another site and reads its answers: it does nothing else there."""

from headgate.redis.backend import Backend
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pool_sites import Letter


async def read_answer(server: Backend, pool: PoolAddress, site: str) -> Letter:
    """Return what a pool answers a site."""
    key = pool.site_key(site)
    return Letter.read(await server.command(key, "HGET", key, "answer"))


async def leave_report(server: Backend, pool: PoolAddress, site: str, text: str) -> None:
    """Leave a report of a site to a pool."""
    key = pool.site_key(site)
    await server.command(key, "HSET", key, "report", text)
    await server.command(key, "PUBLISH", key, "report")
