"""A node makes some calls at pools itself, for users who manage a destination and not the namespace."""

from typing import Any

from headgate.context import Context
from headgate.core.names import decode_name, encode_name, whole_name
from headgate.redis.keys import Address, PoolAddress


class PoolCalls:
    """The calls that such users need: to draw for a destination, and to end its accounts once it is removed."""

    def __init__(self, parts: Context) -> None:
        self._parts = parts

    async def draw(self, pool: PoolAddress, member: str) -> list[Any]:
        """Draw from a pool what a destination lacks, and say how it stands then."""
        pools, registry, encoded = self._parts.pools, self._parts.registry, encode_name(pool.name)
        address = Address.of(pool.namespace, decode_name(member))
        await registry.refresh(address)
        if encoded not in registry.pools(address).split():
            return [b"UNKNOWN"]
        pools.refill(address, encoded, lambda _name, _limit: None)
        drawn = await pools.draw(pool, member, await pools.store.slice(address, encoded))
        totals = (drawn.pool_epoch, drawn.granted, drawn.returned, drawn.place)
        return [drawn.code.encode(), *totals, str(drawn.limit).encode(), []]

    async def forget(self, pool: PoolAddress, member: str, epoch: int) -> list[Any]:
        """End the account of a destination that is gone; one that is there uses what it holds, and keeps it."""
        pools, code = self._parts.pools, "STALE"
        if epoch and await self._is_gone(Address.of(pool.namespace, decode_name(member))):
            code, served = await pools.store.forget(pool, member, epoch)
            await pools.deliver(pool, served, 0)
        return [code.encode(), 0, 0, []]

    async def unshare(self, pool: PoolAddress) -> list[Any]:
        """Delete the pool of the slices of a destination that is gone."""
        whole = Address.of(pool.namespace, whole_name(pool.name))
        if await self._is_gone(whole):
            await self._parts.registry.unshare(whole)
        return [b"OK", 0, 0, []]

    async def _is_gone(self, address: Address) -> bool:
        return await self._parts.registry.kind(address) is None
