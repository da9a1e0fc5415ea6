"""A pool is read at most so often, however many sessions wait for what it lends."""

import asyncio
import heapq
import math
import time
from typing import Final

from headgate.core.names import decode_name
from headgate.errors import AccessDenied
from headgate.redis.backend import Backend
from headgate.redis.keys import PoolAddress
from headgate.redis.replies import PoolRecord, pairs, records
from headgate.redis.stores.pool_sites import SILENT, now_ms, since
from headgate.redis.stores.pools import shown_member, site_of

POOL_FRESH: Final = 1.0
"""Seconds for which a pool that was read is read no more: many destinations of one client may wait for it."""
HOLDERS: Final = 4
"""How many destinations that hold slices of a pool are known by name: three others, and the one that waits."""


def _shown(member: str, seen_ms: int, now: int) -> str:
    name, silent = shown_member(member), since(seen_ms, now)
    return f"{name} (cut off for {silent:.0f} s)" if site_of(member) and silent > SILENT else name


class PoolsRead:
    """`PoolsRead` keeps the pools that were read a moment ago."""

    def __init__(self, server: Backend) -> None:
        self._server = server
        self._known: dict[str, tuple[float, PoolRecord]] = {}

    async def of(self, namespace: str, encoded: str) -> dict[str, PoolRecord]:
        """Return pools by their encoded names, which have blanks between."""
        names = encoded.split()
        read = (self._pool(PoolAddress.of(namespace, decode_name(name))) for name in names)
        return dict(zip(names, await asyncio.gather(*read), strict=True))

    async def _pool(self, pool: PoolAddress) -> PoolRecord:
        read_at, known = self._known.get(pool.key, (-math.inf, None))
        now = time.monotonic()
        if known is not None and now - read_at < POOL_FRESH:
            return known
        if known is not None:
            self._known[pool.key] = now, known  # those who ask during the call take what was there
        found = await self._read_pool(pool)
        self._known[pool.key] = now, found
        return found

    async def _read_pool(self, pool: PoolAddress) -> PoolRecord:
        flat = await self._server.command(pool.keys[0], "HGETALL", pool.key)
        fields = {name: value.decode() for name, value in pairs(flat).items()}
        try:
            # One piece, however many members there are: those that hold most of a usual pool are among them.
            _, members = await self._server.command(pool.keys[0], "HSCAN", pool.keys[1], b"0", "COUNT", 500)
        except AccessDenied:
            return PoolRecord(fields)
        found = records(members)
        slices = ((int(one["granted"]) - int(one["returned"]), name) for name, one in found.items())
        most = heapq.nlargest(HOLDERS, slices)
        over_sites = "part_of" in fields or any(site_of(name) for _, name in most)
        now = await now_ms(self._server, pool.keys[0]) if over_sites else 0
        names = (_shown(name, int(found[name]["seen"]), now) for _, name in most)
        return PoolRecord(fields, tuple(zip(names, (held for held, _ in most), strict=True)), now)
