"""Redis fails over to a replica that is behind, or comes back empty: who uses it is told, and nothing gets stuck."""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import redis

import headgate
import headgate.sync
from headgate.redis.keys import Address
from tests.links.forwarding.test_failovers import AT_ONCE, Pair, replica_of
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        primary = stack.enter_context(RedisServer.start(port=0, persist=False, config=AT_ONCE))
        yield Pair(primary, stack.enter_context(replica_of(primary)))


async def take(consumer: headgate.Consumer, number: int) -> list[headgate.Message]:
    found = [await consumer.receive(timeout=20) for _ in range(number)]
    return [message for message in found if message is not None]


@pytest.mark.longest
async def test_deliveries_whose_settlement_a_failover_lost_come_again_while_their_consumer_lives(
    pair: Pair, cleanup_namespace: str
) -> None:
    """Mutant: `Strays` gives nothing back; then half of the limit is taken until the consumer closes."""
    async with pair.proxy, headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as client:
        await client.apply("orders", kind="queue", limit_messages=8)
        async with client.session() as session:
            producer, consumer = await session.producer("orders"), await session.consumer("orders", window=16)
            for number in range(8):
                await producer.send(str(number))
            first = await take(consumer, 8)
            kept, settled = first[:2], first[2:]
            pair.part()
            for message in settled:
                await message.accept(confirm=True)
            pair.fail_over()
            again = await take(consumer, 6)
            assert [message.body for message in again] == [message.body for message in settled]
            assert all(message.delivery_count == 0 for message in again), "nobody failed"
            for message in (*kept, *again):
                await message.accept(confirm=True)
            await producer.send("new", timeout=60)
            (new,) = await take(consumer, 1)
            assert new.body == "new"
            await new.accept(confirm=True)
        assert (await client.recount("orders")).equal
        assert (await client.recount("orders")).stored[1] == 0


@pytest.mark.longest
@pytest.mark.parametrize("left", [False, True])
async def test_what_a_failover_lost_is_told_once_by_each_session(
    pair: Pair, cleanup_namespace: str, caplog: pytest.LogCaptureFixture, left: bool
) -> None:
    """Also where a session had nothing to send meanwhile, and had left. Mutant: an idle account leaves for good."""
    told: list[headgate.StateLoss] = []
    async with pair.proxy, headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as client:
        client.on_state_loss(told.append)
        await client.apply("orders", kind="queue")
        ann, bob = client.session("ann"), client.session("bob")
        producers = [await ann.producer("orders"), await bob.producer("orders")]
        for producer in producers:
            await producer.send("kept")

        async def nobody_is_there() -> bool:
            return not await client.store.sessions(Address.of(cleanup_namespace, "orders"))

        if left:
            await wait_until(nobody_is_there, timeout=60, description="both left")
        pair.part()
        for producer, number in zip(producers, (3, 2), strict=True):
            for _ in range(number):
                await producer.send("lost")
        if left:
            await wait_until(nobody_is_there, timeout=60, description="both left again")
        assert not told
        pair.fail_over()
        with caplog.at_level(logging.WARNING, "headgate"):
            for producer in producers:
                await producer.send("after", timeout=60)
        await wait_until(lambda: len(told) == 2, timeout=60, description="both told")
        assert sorted(loss.lost for loss in told) == [2, 3]
        assert len({(loss.destination, loss.epoch) for loss in told}) == 1
        assert sum("may have lost its last writes to 'orders'" in text for text in caplog.messages) == 2
        with redis.Redis.from_url(pair.replica.url) as server:
            found = [
                b"".join(fields.values()) for _, fields in server.xrange(f"hg:{{{cleanup_namespace}/orders}}:ledger")
            ]
        assert sorted(text[text.index(b"lost:") :][:6] for text in found if b"lost:" in text) == [b"lost:2", b"lost:3"]


async def test_a_redis_that_was_emptied_is_told(pair: Pair, cleanup_namespace: str) -> None:
    """Mutant: a session without a receipt lost nothing."""
    told: list[headgate.StateLoss] = []
    async with headgate.connect(pair.primary.url, namespace=cleanup_namespace) as client:
        end = client.on_state_loss(told.append)
        async with client.session() as session:
            producer = await session.producer("orders")
            receipts = [await producer.send("lost") for _ in range(5)]
            with redis.Redis.from_url(pair.primary.url) as server:
                server.flushall()
            after = await producer.send("after", timeout=60)
            assert [(loss.destination, loss.lost) for loss in told] == [("orders", 5)]
            assert "has receipts for: 5" in str(told[0])
            assert after.seq not in {receipt.seq for receipt in receipts}, "no number is given again"
            end()
            with redis.Redis.from_url(pair.primary.url) as server:
                server.flushall()
            await producer.send("after", timeout=60)
            assert len(told) == 1, "it was ended"


async def test_threads_are_told_in_a_thread_of_their_own(pair: Pair, cleanup_namespace: str) -> None:
    told: list[headgate.StateLoss] = []
    with headgate.sync.connect(pair.primary.url, namespace=cleanup_namespace) as client:

        def tell(loss: headgate.StateLoss) -> None:
            client.destinations()  # it may use the client
            told.append(loss)

        def work() -> None:
            client.on_state_loss(tell)
            producer = client.session().producer("orders")
            producer.send("lost")
            with redis.Redis.from_url(pair.primary.url) as server:
                server.flushall()
            producer.send("after", timeout=60)

        await asyncio.to_thread(work)
        await wait_until(lambda: bool(told), timeout=30, description="told")
        assert [(loss.destination, loss.lost) for loss in told] == [("orders", 1)]
        await asyncio.to_thread(client.close)
