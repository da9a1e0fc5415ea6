"""Messages of brokers whose clients count messages: up to the hard limit they are stored, above it refused."""

import asyncio
from typing import Any

import pytest

import headgate
from headgate.errors import DestinationFull
from headgate.producing.inflow import Inflow
from tests.conformance.story import body
from tests.sdk.observing import GUARD, counts, field, outcomes, outgoing, stored_bodies
from tests.support.faultproxy import FaultProxy
from tests.support.waiting import wait_until


def inflow(producer: headgate.Producer) -> Inflow:
    return Inflow(producer._account, producer._requested, "queue", rate=None)


def put(producer: headgate.Producer, *sizes: int) -> list[Any]:
    items = [outgoing(body(size), beyond=True) for size in sizes]
    inflow(producer).put(items)
    return [item.done for item in items]


async def test_they_go_up_to_the_hard_limit_in_order_and_no_further(client: headgate.Client, redis_url: str) -> None:
    await client.apply("orders", limit=1000, hard_limit=1500)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        told = await outcomes(put(producer, 900, 101, 300, 301, 199, 100, 3))
        assert [getattr(each, "seq", type(each)) for each in told] == [
            1,
            2,
            3,
            DestinationFull,
            4,
            DestinationFull,
            DestinationFull,
        ]
        assert "1500" in str(told[3])
        assert [len(text) + 3 + (len(text) > 255) for text in stored_bodies(redis_url, client.namespace, "orders")] == [
            900, 101, 300, 199,
        ]  # fmt: skip
        assert inflow(producer).room(1) is None
        assert await counts(client, "orders") == (1500, 0)
        consumer = await session.consumer("orders", window=1)
        for _ in range(4):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept(confirm=True)
        inflow(producer).seek()
        await wait_until(lambda: inflow(producer).room(1) is not None)
        assert (await producer.send(body(500), timeout=GUARD)).seq == 5


async def test_others_of_the_same_producer_wait_at_the_limit_and_keep_their_place(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000, hard_limit=1500)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await producer.send(body(1000), timeout=GUARD)
        waits = asyncio.ensure_future(producer.send(body(100), timeout=GUARD))
        await wait_until(lambda: producer.is_blocked)
        (behind,) = put(producer, 100)
        consumer = await session.consumer("orders")
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        assert not waits.done()
        assert not behind.done()
        await message.accept(confirm=True)
        assert [(await waits).seq, (await behind).seq] == [2, 3]


async def test_what_is_dropped_when_full_is_dropped_above_the_hard_limit(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000, hard_limit=1500, when_full="drop")
    async with client.session("s") as session:
        producer = await session.producer("orders")
        told = await outcomes(put(producer, 1000, 500, 10))
        assert [receipt.dropped for receipt in told] == [False, False, True]


async def test_without_a_hard_limit_they_wait_like_all_others(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        first, second = put(producer, 1000, 10)
        await first
        await wait_until(lambda: producer.is_blocked)
        await client.apply("orders", hard_limit=1500)
        assert (await second).seq == 2


@pytest.mark.one_server
async def test_over_a_bad_line_each_is_stored_once(client: headgate.Client, redis_url: str) -> None:
    await client.apply("orders", limit=1000, hard_limit=3000)
    async with (
        FaultProxy(redis_url) as proxy,
        headgate.connect(proxy.url, namespace=client.namespace) as theirs,
        theirs.session("s") as session,
    ):
        producer = await session.producer("orders")
        await asyncio.gather(*put(producer, 1000))
        proxy.lose_every(5)
        receipts = await outcomes(put(producer, *(100 for _ in range(20))))
        proxy.pass_through()
        assert [receipt.seq for receipt in receipts] == list(range(2, 22))
    assert await field(client, "orders", "pending_bytes") == 3000
