"""A ticket lets one message go above the limit of a destination, or of all its slices."""

from dataclasses import replace

from headgate.core.names import decode_name, encode_name
from headgate.namespace.pool_slices import Pools
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pools import Share


async def give_ticket(pools: Pools, address: Address, session: str, *, since: int) -> str:
    """Let the message with which a session waits go above the limit, if its wait began then; returns the code.

    Where the message has gone another way meanwhile, that which the pools have lent for it goes back.

    Raises:
        CoordinatorUnavailable: Redis does not answer; who waits there gives back what was lent.
    """
    code, lacks = await pools.store.ticket(address, session, since=since)
    for pool, short in lacks.items():
        if not await _lend(pools, address, pool, short):
            code, lacks = "ABOVE", {}
            break
    if lacks:
        code, _ = await pools.store.ticket(address, session, since=since)
    return code


async def _lend(pools: Pools, address: Address, encoded: str, lacks: int) -> bool:
    """Have a slice hold what it needs for one message of that size; returns whether it does.

    Where something is above the limit, that may have been paid back, and the pool does not know of it yet.
    """
    pool, member = PoolAddress.of(address.namespace, decode_name(encoded)), encode_name(address.name)
    for is_again in (False, True):
        held = await pools.store.slice(address, encoded)
        need = held.returned + held.used + lacks
        drawn = await pools.draw(pool, member, replace(held, need=need), with_ticket=True)
        if drawn.code == "OK" and drawn.granted >= need and drawn.overdrawn is not None:
            share = Share.answered(member, held, drawn)
            now = await pools.store.slice(address, encoded, share=share, pool_epoch=drawn.pool_epoch, debt="ticket")
            return now.code == "OK"
        if drawn.code != "OK" or is_again:
            return False
        for share in await pools.store.members(pool):
            await pools.ask_back(pool, share, drawn.pool_epoch, lacks)
    return False
