"""Deadlocks of real sessions on a real Redis, found from snapshots alone."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import headgate
from headgate.core.deadlock import ConfirmedDeadlocks, Deadlock, Graph, deadlocks
from headgate.explain.wait_edges import owner_of
from headgate.redis.keys import link_id, session_id
from headgate.redis.stores.notes import NoteStore
from headgate_coordinator.deadlock.graph import look
from tests.sdk.observing import drain, waiting
from tests.support.waiting import wait_until

SIZE = 400


@contextlib.asynccontextmanager
async def program(client: headgate.Client, reads: str, writes: str) -> AsyncIterator[headgate.Session]:
    """One task that takes a message and sends two: it fills what it writes to, and then settles nothing any more."""
    async with client.session("program") as session:
        consumer = await session.consumer(reads, window=1)
        producer = await session.producer(writes, window=1)

        async def work() -> None:
            async for message in consumer:
                for _ in range(2):
                    await producer.send(b"x" * SIZE, timeout=600)
                await message.accept()

        task = asyncio.create_task(work())
        try:
            yield session
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def start(client: headgate.Client) -> None:
    """Make two queues with room for two messages, and put one into one of them."""
    for name in ("x", "y"):
        await client.apply(name, kind="queue", limit=2 * SIZE + 100)
    async with client.session("spark") as session:
        producer = await session.producer("x", window=1)
        await producer.send(b"x" * SIZE)


async def graph(client: headgate.Client) -> Graph:
    ties = await NoteStore(client.store.server, client.namespace).ties()
    return (await look(client.store, client.namespace, ties)).graph


async def found(client: headgate.Client) -> tuple[Deadlock, ...]:
    return deadlocks(await graph(client))


async def test_figure_14_two_programs_and_two_destinations(client: headgate.Client, other: headgate.Client) -> None:
    """The figure of the TIBCO EMS document: each program consumes what the other one sends."""
    await start(client)
    async with program(client, reads="x", writes="y") as a, program(other, reads="y", writes="x") as b:
        await wait_until(lambda: found(client))
        passes = ConfirmedDeadlocks()

        async def certain() -> tuple[Deadlock, ...]:
            return passes.look(await graph(client))

        (cycle,) = await wait_until(certain)
        assert str(cycle) == (
            f"queue x waits for session {a.id} to consume; session {a.id} waits for room in queue y; "
            f"queue y waits for session {b.id} to consume; session {b.id} waits for room in queue x"
        )


def test_a_link_is_told_from_a_session_by_its_id() -> None:
    assert str(owner_of(f"{link_id('orders to audit')}.1")).startswith("link link~orders-to-audit~")
    assert str(owner_of(f"{session_id('orders')}.1")).startswith("session orders~")


async def test_with_one_more_consumer_it_is_none(client: headgate.Client, other: headgate.Client) -> None:
    await start(client)
    async with program(client, reads="x", writes="y"), program(other, reads="y", writes="x"):
        await wait_until(lambda: found(client))
        async with other.session("helper") as helper:
            consumer = await helper.consumer("y", window=1)
            assert not await found(client), "one that waits for nobody may take what the others do not"
            await drain(consumer, 1)


async def test_one_more_consumer_that_has_nothing_to_settle_does_not_matter(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Mutant: whoever consumes may make room, though others have all messages in hand."""
    await start(client)
    async with (
        program(client, reads="x", writes="y"),
        program(client, reads="y", writes="x"),
        program(other, reads="y", writes="x"),
        other.session("helper") as helper,
    ):
        await wait_until(lambda: waiting(client, "x", at_least=2))
        await helper.consumer("y", window=1)
        await wait_until(lambda: found(client))


async def test_what_is_stopped_by_hand_is_none(client: headgate.Client, other: headgate.Client) -> None:
    await start(client)
    async with program(client, reads="x", writes="y"), program(other, reads="y", writes="x"):
        await wait_until(lambda: found(client))
        await client.block("y", "maintenance")
        assert not await found(client), "who stopped it can let it go on"


async def test_who_waits_for_a_slow_consumer_is_in_none(client: headgate.Client, other: headgate.Client) -> None:
    await start(client)
    async with other.session("slow") as slow, client.session("sender") as sender:
        consumer = await slow.consumer("x", window=1)
        producer = await sender.producer("x", window=1)
        await producer.send(b"x" * SIZE)
        waits = asyncio.ensure_future(producer.send(b"x" * SIZE, timeout=600))
        await wait_until(lambda: waiting(client, "x"))
        assert not await found(client)
        await drain(consumer, 1)
        await waits
