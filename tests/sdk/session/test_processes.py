"""P4 with real processes: what the killed held is back within their TTL, and what the living hold is untouched."""

import asyncio
from contextlib import ExitStack

import pytest
import redis

import headgate
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, counts, drain, field, look, stored_bodies
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

TTL = 2.0
BACK = TTL + 1 + 3  # P4 says TTL + 1 s; the rest is for a busy machine


async def reaped(client: headgate.Client, destination: str) -> int:
    """Sweep, as nodes do for what nobody else touches; return the bytes that are leased."""
    await client.store.reap(Address.of(client.namespace, destination))
    return await field(client, destination, "leased_bytes")


async def test_the_credit_of_a_killed_producer_is_back_within_its_ttl(client: headgate.Client, redis_url: str) -> None:
    await client.apply("orders", limit="1MB")
    with Worker("producer", redis_url, client.namespace, "orders", TTL) as worker:
        await asyncio.to_thread(worker.ready)
        assert await field(client, "orders", "leased_bytes") > 0
        worker.kill9()
        assert await field(client, "orders", "leased_bytes") > 0
        await wait_until(
            lambda: _none_leased(client), timeout=BACK, description="the credit is back, with no node at work"
        )
    assert (await look(client, "orders")).sessions == 0
    pending, leased = await counts(client, "orders")
    assert (pending > 0, leased) == (True, 0)


async def _none_leased(client: headgate.Client) -> bool:
    return await reaped(client, "orders") == 0


async def test_a_blocked_producer_is_served_what_a_killed_one_held(client: headgate.Client, redis_url: str) -> None:
    await client.apply("gate", kind="gate", limit=1000)
    with Worker("gates", redis_url, client.namespace, "gate", TTL, 1, 1000) as worker:
        await asyncio.to_thread(worker.ready)
        async with client.session("s") as session:
            gate = await session.gate("gate", window=1000)
            assert gate.try_admit(1) is None
            worker.kill9()
            async with asyncio.timeout(BACK), gate.admit(1000, timeout=BACK):
                pass
    assert await counts(client, "gate") == (0, 0)


async def test_what_a_killed_consumer_held_is_delivered_again_and_counted_as_tried(
    client: headgate.Client, redis_url: str
) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders")
        for number in range(15):
            await producer.send(f"{number}")
        with Worker("consumer", redis_url, client.namespace, "orders", TTL, 10) as worker:
            held = await asyncio.to_thread(worker.ready)
            assert held == [str(number) for number in range(10)]
            worker.kill9()
            messages = await drain(await session.consumer("orders"), 15)
    assert sorted(int(message.body) for message in messages) == list(range(15))
    attempts = {message.body: message.delivery_count for message in messages}
    assert attempts == {str(number): int(number < 10) for number in range(15)}
    assert await counts(client, "orders") == (0, 0)


@pytest.mark.whole
async def test_half_of_two_hundred_holders_are_killed_and_exactly_their_credit_comes_back(
    client: headgate.Client, redis_url: str
) -> None:
    window, each, ttl = 1000, 50, 5.0  # two hundred tell in time that they live, on a busy machine too
    await client.apply("gate", kind="gate", limit=4 * each * window)
    with ExitStack() as stack:
        workers = [
            stack.enter_context(Worker("gates", redis_url, client.namespace, "gate", ttl, each, window))
            for _ in range(4)
        ]
        sessions = [await asyncio.to_thread(worker.ready) for worker in workers]
        assert [len(ids) for ids in sessions] == [each] * 4
        assert await counts(client, "gate") == (0, 4 * each * window)
        for worker in workers[:2]:
            worker.kill9()

        async def reclaimed() -> bool:
            leased = await reaped(client, "gate")
            assert leased >= 2 * each * window, "of the living"
            return leased == 2 * each * window

        await wait_until(reclaimed, timeout=60)
        with redis.Redis.from_url(redis_url) as direct:
            known = {name.decode() for name in direct.hkeys(f"{Address.of(client.namespace, 'gate').key}:sessions")}
        assert known == {*sessions[2], *sessions[3]}
        assert await counts(client, "gate") == (0, 2 * each * window)
        for worker in workers[2:]:
            worker.tell("report")
            assert await asyncio.to_thread(worker.next_line) == [str(each * (window // 2))], "in force as before"


async def test_the_late_data_of_a_producer_that_was_frozen_past_its_ttl_is_paid_anew(
    client: headgate.Client, redis_url: str
) -> None:
    total, limit = 3000, 3000
    await client.apply("orders", limit=limit)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=20)
        received: list[headgate.Message] = []

        async def consume() -> None:
            async for message in consumer:
                received.append(message)
                await message.accept()

        consuming = asyncio.ensure_future(consume())
        with Worker("numbered", redis_url, client.namespace, "orders", 1, total) as worker:
            await asyncio.to_thread(worker.ready)
            await wait_until(lambda: len(received) > 300)
            worker.sigstop()
            at_stop = len(received)

            async def reclaimed() -> bool:
                await reaped(client, "orders")
                await asyncio.sleep(0.05)
                return (await look(client, "orders")).sessions == 1

            await wait_until(reclaimed, timeout=BACK)
            assert at_stop <= len(received) < total
            greedy = await session.producer("orders", window=limit)  # others take what it held, and all the rest
            await wait_until(lambda: greedy.in_hand > limit // 2)
            assert (await counts(client, "orders"))[1] == greedy.in_hand
            worker.sigcont()
            await greedy.close()
            assert await asyncio.to_thread(worker.next_line) == ["done", str(total)]
            await wait_until(lambda: len(received) >= total, timeout=GUARD)
        await consumer.close()
        await consuming
        assert [message.body for message in received] == [str(number) for number in range(total)], "each once, in order"
        assert await field(client, "orders", "peak_bytes") <= limit
        assert stored_bodies(redis_url, client.namespace, "orders") == []
