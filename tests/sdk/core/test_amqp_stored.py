"""Messages of AMQP clients at a destination: consumers, browsers and dead letters take them like any other."""

import proton
import pytest

import headgate
import headgate.sync
from headgate import InvalidValue, MessageFormatError
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from tests.sdk.consuming.test_consumer import receive
from tests.sdk.observing import drain

pytestmark = pytest.mark.one_server

THEIRS = bytes(
    proton.Message(
        body=b"content", inferred=True, durable=True, subject="new", properties={"tenant": proton.symbol("a")}
    ).encode()
)
DAMAGED = b"\0\x53\x75\xa0\xff"


async def store(client: headgate.Client, destination: str, *stored: bytes) -> None:
    """Store messages as a node does that got them from an AMQP client."""
    address, size = Address.of(client.namespace, destination), sum(map(len, stored))
    account = Account("node~1", inc=1, epoch=0, weight=1, need=size, need_m=len(stored), want=size, want_m=len(stored))
    credit = await client.store.acquire(address, account, ttl_ms=5000)
    paid = Account("node~1", inc=1, epoch=credit.epoch, weight=1, need=size, need_m=len(stored), want=size,
                   want_m=len(stored), granted=credit.granted, granted_m=credit.granted_m)  # fmt: skip
    answer = await client.store.publish(address, paid, seq=1, bodies=list(stored), ttl_ms=5000)
    assert answer.code == "OK", answer
    await client.store.acquire(address, paid, ttl_ms=5000, leave=True)


async def test_a_consumer_reads_both_forms(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue")
    await store(client, "orders", THEIRS)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await producer.send("ours", headers={"n": 1})
        consumer = await session.consumer("orders")
        theirs, ours = await receive(consumer), await receive(consumer)
        assert (theirs.body, theirs.size, theirs.stored) == (b"content", len(THEIRS), THEIRS)
        assert theirs.headers == {"amqp.durable": True, "amqp.subject": "new", "tenant": "a"}
        assert theirs.headers is theirs.headers
        assert (ours.body, ours.headers) == ("ours", {"n": 1})
        await producer.send(theirs.body, headers=theirs.headers)
        assert (await receive(consumer)).headers == theirs.headers


async def test_a_message_that_cannot_be_read_harms_nobody_but_who_reads_it(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue")
    await store(client, "orders", DAMAGED, THEIRS)
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        damaged, theirs = await receive(consumer), await receive(consumer)
        assert damaged.id in repr(damaged)
        for read in (lambda: damaged.body, lambda: damaged.headers):
            with pytest.raises(MessageFormatError, match=f"message {damaged.id} cannot be read") as refused:
                read()
            assert refused.value.id == damaged.id
            assert isinstance(refused.value, InvalidValue)
        assert damaged.stored == DAMAGED
        found = [message async for message in client.browse("orders")]
        assert [message.stored for message in found] == [DAMAGED, THEIRS]
        assert found[1].body == b"content"
        with pytest.raises(MessageFormatError, match=found[0].id):
            _ = found[0].body
        await damaged.reject("damaged", confirm=True)
        await theirs.accept(confirm=True)


async def test_dead_letters_keep_what_they_were(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", dead_letter="dead")
    await store(client, "orders", THEIRS, DAMAGED)
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        for _ in range(2):
            await (await receive(consumer)).reject("bad", confirm=True)
        dead, unreadable = await drain(await session.consumer("dead"), 2)
        theirs = proton.Message()
        theirs.decode(dead.stored)
        assert (theirs.body, theirs.durable, theirs.subject) == (b"content", True, "new")
        assert theirs.properties == {
            "tenant": proton.symbol("a"),
            "headgate-dead-reason": "rejected: bad",
            "headgate-dead-from": "orders",
            "headgate-dead-attempts": 0,
            "headgate-dead-id": dead.headers["headgate-dead-id"],
        }
        assert unreadable.body == DAMAGED
        assert unreadable.headers["headgate-dead-reason"] == "rejected: bad"
        assert "255 bytes are expected here" in unreadable.headers["headgate-dead-unreadable"]


async def test_a_pattern_gets_them_too(client: headgate.Client) -> None:
    await client.apply("shop.orders", kind="topic")
    async with client.session("s") as session:
        consumer = await session.consumer("shop.*", subscription="all", durable=True)
        await store(client, "shop.orders", DAMAGED, THEIRS)
        _, theirs = await drain(consumer, 2)
        assert (theirs.destination, theirs.body) == ("shop.orders", b"content")


async def test_threads_read_them_too(client: headgate.Client, redis_url: str) -> None:
    await client.apply("orders", kind="queue")
    await store(client, "orders", DAMAGED, THEIRS)
    with headgate.sync.connect(redis_url, namespace=client.namespace) as threads, threads.session("s") as session:
        consumer = session.consumer("orders")
        damaged, theirs = consumer.receive(timeout=5), consumer.receive(timeout=5)
        assert damaged is not None
        assert theirs is not None
        assert damaged.id in repr(damaged)
        with pytest.raises(MessageFormatError, match=damaged.id):
            _ = damaged.body
        assert (theirs.body, theirs.headers["tenant"], theirs.stored) == (b"content", "a", THEIRS)
