"""Pools of a policy: set with it, shared by what it matches, gone when it is replaced; checked before anything is."""

import asyncio

import pytest

import headgate
from headgate import CreditTimeout, PolicyError
from headgate.core.names import encode_name
from headgate.policy import loads
from headgate.redis.keys import Address, PoolAddress
from tests.policy.live import state
from tests.sdk.observing import GUARD, drain
from tests.support.waiting import wait_until

EACH = '[[destination]]\nmatch = "telemetry.#"\nlimit = { bytes = "2KB", scope = "each" }\n'
SHARED = EACH.replace('"each"', '"shared"')


async def fill(session: headgate.Session, *names: str) -> int:
    """Send 900 bytes to each destination until one waits; returns how many messages went."""
    sent = 0
    for name in names:
        producer = await session.producer(name, window=1000)
        for _ in range(2):
            try:
                await producer.send(b"x" * 900, timeout=1)
            except CreditTimeout:
                return sent
            sent += 1
    return sent


@pytest.mark.parametrize(("document", "goes"), [(EACH, 4), (SHARED, 2)])
async def test_a_limit_for_each_or_shared_by_all(client: headgate.Client, document: str, goes: int) -> None:
    """Artemis 2401: whether a pattern limits each or all together is said. Mutant: pools are not set."""
    await client.apply_policy(loads(document))
    async with client.session("s") as session:
        assert await fill(session, "telemetry.a", "telemetry.b") == goes
        assert await fill(session, "other", "others") == 4, "what no rule matches has no limit"


async def test_what_frees_in_one_serves_another_and_no_limit_is_left_behind(
    client: headgate.Client, other: headgate.Client
) -> None:
    """P12."""
    await client.apply_policy(loads(SHARED))
    async with client.session("s") as session, other.session("in") as into:
        assert await fill(session, "telemetry.a") == 2
        producer = await session.producer("telemetry.b", window=1000)
        blocked = asyncio.ensure_future(producer.send(b"y" * 900, timeout=60))
        consumer = await into.consumer("telemetry.a")
        await drain(consumer, 2)
        async with asyncio.timeout(GUARD):
            await blocked
        assert (await client.pools())[0].limit == 2000
        await other.apply_policy(loads(EACH))
        assert await client.pools() == []
        assert (await state(client, "telemetry.b")).get("pools") is None
        async with asyncio.timeout(GUARD):
            await producer.send(b"z" * 900)


async def test_a_pool_that_another_process_took_away_is_not_made_again(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Mutant: whoever knows it takes it for lost, in the midst of moving its slices."""
    await client.apply_policy(loads(SHARED))
    pools = client._pools
    async with client.session("s") as session:
        assert await fill(session, "telemetry.a") == 2
        producer = await session.producer("telemetry.b", window=1000)
        blocked = asyncio.ensure_future(producer.send(b"y" * 900, timeout=60))
        await wait_until(lambda: waits(client), description="it waits for the pool")
        pool = PoolAddress.of(client.namespace, (await client.pools())[0].name)
        lacking = await pools.store.slice(Address.of(client.namespace, "telemetry.b"), encode_name(pool.name))
        assert lacking.lacks > 0
        await other.apply_policy(loads(EACH))
        await pools.draw(pool, "telemetry.b", lacking)
        async with asyncio.timeout(GUARD):
            await blocked
    assert await client.pools() == []


async def waits(client: headgate.Client) -> bool:
    return any(pool.waiting for pool in await client.pools())


async def test_a_pool_that_cannot_be_set_leaves_the_policy_as_it_was(client: headgate.Client) -> None:
    """Mutant: pools are checked after the switch."""
    await client.apply_policy(loads(EACH))
    document = EACH + '[[pool]]\nname = "memory"\npercent = 50\n'
    with pytest.raises(PolicyError, match=r"policy.*:6: pool 'memory': a percent of Redis' maxmemory"):
        await client.apply_policy(loads(document))
    assert (await client.policy()).version == 1
    assert await client.pools() == []


async def test_a_policy_that_ends_late_leaves_the_pools_of_the_newer_one(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Whoever applied the older one may still be walking destinations. Mutant: versions are not compared."""
    older = await client.apply_policy(loads(EACH))
    await other.apply_policy(loads(SHARED))
    await client.apply_pools([], version=older, prune=True)
    assert len(await client.pools()) == 1
