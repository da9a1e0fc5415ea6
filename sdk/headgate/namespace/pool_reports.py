"""A destination reports what it holds of a pool whose state may have been lost."""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from headgate.core.names import decode_name, encode_name
from headgate.namespace.slice_limits import agree
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pools import PoolStore

REPORTS_AT_ONCE: Final = 4
"""Destinations that are asked at a time what they hold: each call may take a connection of its own."""


async def ask_all(store: PoolStore, pool: PoolAddress, names: Sequence[str], pool_epoch: int) -> float:
    """Have all destinations of these names report what they hold of a pool, and forget those that are gone.

    Returns the seconds for which holders somewhere may still claim what they had; nobody is forgotten before.
    """
    learns = 0.0
    for at in range(0, len(names), REPORTS_AT_ONCE):
        asking = (_report(store, pool, name, pool_epoch) for name in names[at : at + REPORTS_AT_ONCE])
        learns = max(learns, *await asyncio.gather(*asking))
    if learns:
        return learns
    known = set(map(encode_name, names))
    for share in await store.members(pool):
        address = Address.of(pool.namespace, decode_name(share.member))
        if (
            not share.site
            and share.member not in known
            and (await store.slice(address, encode_name(pool.name))).code == "UNKNOWN"
        ):
            await store.forget(pool, share.member, share.epoch)
    return 0.0


async def _report(store: PoolStore, pool: PoolAddress, name: str, pool_epoch: int) -> float:
    """Have a destination say what it holds of a pool; returns the seconds after which that is certain."""
    address, encoded = Address.of(pool.namespace, name), encode_name(pool.name)
    held = await store.slice(address, encoded, pool_epoch=pool_epoch)
    if held.code == "UNBOUND":  # it may use more at any moment
        await agree(store.server, address)
        held = await store.slice(address, encoded, pool_epoch=pool_epoch)
    if held.learning_ms > 0 or held.code == "UNBOUND":
        return held.learning_ms / 1000 or math.inf
    if held.code == "OK" and (held.granted > 0 or held.used > 0):
        granted = max(held.granted, held.returned + held.used)
        await store.draw(pool, encode_name(name), replace(held, granted=granted, need=granted))
    return 0.0
