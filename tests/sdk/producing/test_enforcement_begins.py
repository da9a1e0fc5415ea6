"""From the call with which a limit begins to bind, nothing is stored above it, whatever credit was in hand before."""

import asyncio

import pytest

import headgate
from tests.sdk.observing import GUARD, field
from tests.support.waiting import wait_until

LIMIT = 256_000


async def wait_until_leased(client: headgate.Client, senders: int) -> None:
    async def leased() -> bool:
        return await field(client, "orders", "leased_bytes") >= senders * 400_000

    await wait_until(leased, timeout=GUARD, description="a window in the hands of each")


@pytest.mark.parametrize("how", ["a receiver starts", "switched on", "lowered"])
async def test_no_credit_of_before_is_stored_above_the_limit(
    client: headgate.Client, other: headgate.Client, how: str
) -> None:
    if how == "lowered":
        await client.apply("orders", kind="queue", limit="100MB")
    elif how == "switched on":
        await client.apply("orders", kind="queue", limit=LIMIT, enforce="off")
    else:
        await client.apply("orders", kind="queue", limit=LIMIT, enforce="with-consumers")
    async with other.session() as there:
        sessions = [await client.session().__aenter__() for _ in range(8)]
        producers = [await session.producer("orders") for session in sessions]
        for producer in producers:
            await producer.send(bytes(1000))
        await wait_until_leased(client, len(producers))
        if how == "lowered":
            await client.apply("orders", limit=LIMIT)
        elif how == "switched on":
            await client.apply("orders", enforce="always")
        else:
            await there.consumer("orders", window="pull")
        sends = [
            asyncio.create_task(producer.send(bytes(10_000), timeout=60)) for producer in producers for _ in range(20)
        ]

        async def used() -> bool:
            return await field(client, "orders", "pending_bytes") >= 0.95 * LIMIT

        await wait_until(used, timeout=GUARD, description="the limit is used")
        most = 0
        for _ in range(20):
            most = max(most, await field(client, "orders", "pending_bytes"))
            await asyncio.sleep(0.01)
        assert most <= LIMIT
        assert await field(client, "orders", "peak_bytes") >= LIMIT
        for send in sends:
            send.cancel()
        await asyncio.gather(*sends, return_exceptions=True)
        for session in sessions:
            await session.close()


async def test_what_is_idle_above_a_lowered_limit_goes_back_at_once(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", limit="1MB")
    async with client.session() as session:
        producer = await session.producer("orders", window=20_000)
        for _ in range(10):
            await producer.send(bytes(1000))
        await client.apply("orders", limit=10_500)

        async def below() -> bool:
            fields = [await field(client, "orders", name) for name in ("pending_bytes", "leased_bytes")]
            return sum(fields) <= 10_500

        await wait_until(
            below, timeout=1.5, description="less than the 2 s after which what is idle goes back by itself"
        )
