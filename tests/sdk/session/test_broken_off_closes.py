"""A close goes on to its end, though whoever asked for it is cancelled meanwhile: nothing stays in hand."""

import asyncio
from collections.abc import Awaitable, Callable

import headgate
from tests.sdk.observing import GUARD, counts

LIMIT = 1000


async def broken_off(close: Callable[[], Awaitable[None]], begun: Callable[[], bool]) -> None:
    """Cancel a close as soon as it has begun."""
    closing = asyncio.ensure_future(close())
    while not begun():  # noqa: ASYNC110 -- an interval would be long enough for all of it
        await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert closing.cancelled(), "it was closed before it could be interrupted"


async def in_hand(client: headgate.Client) -> tuple[headgate.Session, headgate.Consumer, headgate.Producer]:
    """Have a session hold a message, and all credit beside that."""
    await client.apply("orders", limit=LIMIT)
    session = client.session(ttl=60)
    producer, consumer = await session.producer("orders", window=LIMIT), await session.consumer("orders", window=1)
    await producer.send("first")
    assert await consumer.receive(timeout=GUARD)
    assert producer.in_hand
    return session, consumer, producer


async def is_given_back(other: headgate.Client) -> None:
    """See that another one gets the message, and all credit: each within less than a lease."""
    async with asyncio.timeout(GUARD), other.session() as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept(confirm=True)
        await producer.send(b"x" * (LIMIT - 50), timeout=GUARD)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept(confirm=True)
    assert await counts(other, "orders") == (0, 0)


async def test_a_session_that_is_cancelled_again_while_it_closes_keeps_nothing(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Breaks, e.g., for whoever stops a task by cancelling it until it ends: it renewed until its client closed."""
    session, *_ = await in_hand(client)
    ready = asyncio.Event()

    async def work() -> None:
        async with session:
            ready.set()
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await ready.wait()
    working.cancel()
    await broken_off(lambda: working, lambda: "closed" in repr(session))
    await is_given_back(other)
    assert not client._sessions


async def test_a_consumer_and_a_producer_whose_closes_are_interrupted_keep_nothing(
    client: headgate.Client, other: headgate.Client
) -> None:
    session, consumer, producer = await in_hand(client)
    await broken_off(consumer.close, lambda: consumer.is_closed)
    await broken_off(producer.close, lambda: producer.is_closed)
    await is_given_back(other)
    await session.close()


async def test_a_consumer_of_many_topics_whose_close_is_interrupted_keeps_nothing(
    client: headgate.Client, other: headgate.Client
) -> None:
    session, reader = client.session(ttl=60), other.session()
    topics = await session.consumer("orders.#", subscription="all", durable=True)
    producer = await reader.producer("orders.new", kind="topic")
    await producer.send("first")
    assert await topics.receive(timeout=GUARD)
    await broken_off(topics.close, lambda: topics.is_closed)
    again = await reader.consumer("orders.#", subscription="all", durable=True)
    message = await again.receive(timeout=GUARD)
    assert message is not None
    assert message.body == "first"
    await message.accept(confirm=True)
    await reader.close()
    await session.close()


async def test_a_limiter_whose_close_is_interrupted_keeps_nothing(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("model", kind="limiter", limits={"calls": {"at_once": 1}})
    session = client.session(ttl=60)
    limiter = await session.limiter("model")
    await limiter.admit(calls=1)
    await broken_off(limiter.close, lambda: "closed" in repr(limiter))
    async with other.session() as second, (await second.limiter("model")).admit(calls=1, timeout=GUARD):
        pass
    await session.close()


async def test_the_next_close_waits_for_the_one_that_was_interrupted(
    client: headgate.Client, other: headgate.Client
) -> None:
    """What is closed next is what the close still needs: a session's client, and its connections."""
    session, *_ = await in_hand(client)
    await broken_off(session.close, lambda: "closed" in repr(session))
    assert client._sessions
    await client.close()
    assert not client._sessions
    await is_given_back(other)


async def test_a_client_whose_close_is_interrupted_closes(client: headgate.Client, other: headgate.Client) -> None:
    await in_hand(client)
    await broken_off(client.close, lambda: "closed" in repr(client))
    await client.close()
    assert not client._sessions
    await is_given_back(other)
