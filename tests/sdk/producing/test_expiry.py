"""Messages with a time to live, as a service sees them."""

import asyncio

import pytest

import headgate
from headgate import InvalidValue
from headgate.core.credit import CreditLine
from headgate.core.outbox import Outbox, Outgoing
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, counts, field
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def swept(client: headgate.Client) -> bool:
    await client.store.reap(Address.of(client.namespace, "orders"))
    return await field(client, "orders", "pending_messages") == 0


async def test_a_message_expires_and_frees_its_bytes_for_who_waits(client: headgate.Client) -> None:
    await client.apply("orders", limit=100, kind="queue")
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await producer.send(b"x" * 90, ttl="50ms")
        await asyncio.wait_for(producer.send(b"y" * 90, timeout=GUARD, ttl=GUARD), GUARD)
        await producer.close()
        consumer = await session.consumer("orders")
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        assert message.body == b"y" * 90
        await message.accept(confirm=True)
    assert await counts(client, "orders") == (0, 0)


async def test_a_message_in_hand_stays_until_it_is_given_back(client: headgate.Client) -> None:
    async with client.session("s") as session:
        consumer, producer = await session.consumer("orders"), await session.producer("orders")
        await producer.send(b"x", ttl=0.05)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await asyncio.sleep(0.06)
        assert not await swept(client)
        await message.release(confirm=True)
        assert await field(client, "orders", "pending_messages") == 0
        assert await consumer.receive(timeout=0.05) is None


async def test_the_destinations_time_to_live_holds_for_who_names_none(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", message_ttl="50ms")
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await producer.send(b"x")
        await producer.send(b"x", ttl=3600)
        await (await producer.post(b"x"))
        await wait_until(lambda: swept(client))


@pytest.mark.parametrize("ttl", [0, "0s", -1, "soon", 0.0001])
async def test_a_time_to_live_that_means_nothing_is_refused(client: headgate.Client, ttl: float | str) -> None:
    async with client.session("s") as session:
        producer = await session.producer("orders")
        with pytest.raises(InvalidValue, match="ttl"):
            await producer.send(b"x", ttl=ttl)


async def test_only_messages_that_expire_together_are_published_together() -> None:
    loop = asyncio.get_running_loop()
    credit = CreditLine()
    credit.raise_to(100, 100)
    outbox = Outbox(credit)
    for ttl_ms in (None, None, 5, 5, 7, None):
        outbox.add(Outgoing(b"x", 1, 9.0, loop.create_future(), ttl_ms=ttl_ms))
    sizes = []
    while batch := outbox.batch():
        assert len({item.ttl_ms for item in batch.items}) == 1
        sizes.append(len(batch.items))
        outbox.published(len(batch.items))
    assert sizes == [2, 2, 1, 1]
