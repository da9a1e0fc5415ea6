"""A pool is shared fairly by destinations that want more of it than there is, however many send at each."""

import asyncio
from unittest.mock import AsyncMock

import pytest

import headgate
from headgate.namespace.pool_slices import Pools
from headgate.redis.keys import Address
from tests.sdk.observing import waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
GUARD = 60.0


async def test_one_that_never_frees_takes_its_share_by_weight_of_one_that_does(client: headgate.Client) -> None:
    """Thirty send to heavy, whose messages are consumed; those of light stay: sixteen of twenty have room."""
    await client.set_pool("memory", limit=20 * 1000)
    await client.apply("heavy", pools="memory")
    await client.apply("light", pools="memory", pool_weight=4)
    done = False

    async def send(producer: headgate.Producer) -> None:
        while not done:
            await producer.send(b"x" * 996, timeout="unlimited")

    async def blocked() -> bool:
        return await waiting(client, "heavy")

    async def used(name: str) -> int:
        return (await client._pools.store.slice(Address.of(client.namespace, name), "memory")).used

    async def consume() -> None:
        message = await consumer.receive(timeout=GUARD)
        assert message
        await wait_until(blocked, timeout=GUARD, description="heavy wants more than it has")
        await message.accept()

    async with client.session("heavy") as session, client.session("light") as other:
        heavy, light = await session.producer("heavy", window=1), await other.producer("light", window=1)
        consumer = await session.consumer("heavy", window=2)
        tasks = [asyncio.ensure_future(send(heavy)) for _ in range(30)]
        tasks += [asyncio.ensure_future(send(light)) for _ in range(20)]
        async with asyncio.timeout(2 * GUARD):
            while await used("light") < 15 * 1000:
                await consume()
            for _ in range(40):
                await consume()
        assert await used("light") <= 17 * 1000
        done = True

        async def all_sent() -> bool:
            for name in ("heavy", "light"):
                await client.purge(name)
            return all(task.done() for task in tasks)

        await wait_until(all_sent, timeout=GUARD)
        await asyncio.gather(*tasks)


async def test_what_a_lowered_pool_lent_too_much_comes_back_at_once(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever lowered it died as it was lowered. Mutant: one is asked for what the first in line lacks, no more."""
    monkeypatch.setattr(Pools, "take_beyond", AsyncMock())
    await client.set_pool("memory", limit="4MB")
    for name in ("wide", "narrow"):
        await client.apply(name, pools="memory")
    async with client.session("a") as session:
        wide, narrow = await session.producer("wide"), await session.producer("narrow")
        consumer = await session.consumer("wide")
        await asyncio.gather(*(wide.send(b"x" * 10_000, timeout=GUARD) for _ in range(100)))
        for _ in range(99):
            message = await consumer.receive(timeout=GUARD)
            assert message
            await message.accept()
        (pool,) = await client.pools()
        assert pool.granted > 900_000
        await client.set_pool("memory", limit="100KB")
        await narrow.send(b"x" * 100, timeout=GUARD / 2)
        (pool,) = await client.pools()
        assert 0 < pool.used <= pool.granted <= 100_000


async def test_a_pool_that_is_lowered_takes_what_is_not_in_use_back_from_all(client: headgate.Client) -> None:
    """Mutants: each goes on with what it was lent, up to the limit, while nobody waits; some are asked for all."""
    await client.set_pool("memory", limit="40MB")
    async with client.session("a") as session:
        for number in range(3):
            await client.apply(f"q{number}", pools="memory")
            producer, consumer = await session.producer(f"q{number}"), await session.consumer(f"q{number}", window=100)
            await asyncio.gather(*(producer.send(b"x" * 10_000, timeout=GUARD) for _ in range(100)))
            for _ in range(99):
                message = await consumer.receive(timeout=GUARD)
                assert message
                await message.accept()
            await consumer.close()
        (pool,) = await client.pools()
        assert pool.granted > 2_700_000
        await client.set_pool("memory", limit="600KB")
        (pool,) = await client.pools()
        assert 30_000 <= pool.used <= pool.granted <= 600_000
