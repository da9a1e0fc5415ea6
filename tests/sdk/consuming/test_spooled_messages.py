"""Whoever receives from a destination that spools gets payloads: shared, durable, by pattern, again and again."""

import asyncio
import math
from concurrent.futures import Future
from pathlib import Path

import pytest

import headgate
from headgate.core.credit import CreditLine
from headgate.core.outbox import Outbox, Outgoing
from headgate.spool.storage import Storage
from tests.sdk.consuming.test_consumer import receive
from tests.sdk.observing import GUARD, counts, drain, field
from tests.support.spooled import body, fill, first_segment, number_of, references, spooling, swept
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_a_producer_is_not_full_while_the_store_takes_what_waits(
    client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when who waits counts as blocked by others, though only the storage is waited for."""
    await spooling(client, tmp_path)
    go = asyncio.Event()
    write = Storage.write

    async def slow(storage: Storage, path: str, data: bytes) -> None:
        await go.wait()
        await write(storage, path, data)

    monkeypatch.setattr(Storage, "write", slow)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        sent = [asyncio.create_task(producer.send(body(n))) for n in range(60)]
        await wait_until(lambda: producer._account.outbox.spooling)
        assert (producer.is_blocked, producer._account.state.full) == (True, False)
        assert producer._account.waiters.ahead == 2 * 16 * 1024
        go.set()
        await asyncio.gather(*sent)
        assert len(producer._account.outbox) == 0


async def test_shared_consumers_and_redelivery_get_payloads(client: headgate.Client, tmp_path: Path) -> None:
    """What one gives back, tried or not, another gets whole. Breaks when the segment goes with the first delivery."""
    await spooling(client, tmp_path)
    await fill(client, 60)
    async with client.session("a") as one, client.session("b") as two:
        first = await one.consumer("orders", window=20)
        for number in range(20):
            message = await receive(first)
            assert message.body == body(number)
            await (message.release() if number % 2 else message.modify())
        await first.flush()
        await first.close()
        second = await two.consumer("orders")
        got = await drain(second, 60)
        assert sorted(message.body for message in got) == [body(n) for n in range(60)]
        counted = {number_of(message.body): message.delivery_count for message in got}
        assert counted == {n: int(n < 20 and n % 2 == 0) for n in range(60)}
    await swept(tmp_path)


async def test_a_pulling_consumer_gets_payloads(client: headgate.Client, tmp_path: Path) -> None:
    await spooling(client, tmp_path)
    await fill(client, 60)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window="pull")
        for number in range(60):
            message = await receive(consumer)
            assert message.body == body(number)
            await message.accept(confirm=True)
    assert (await counts(client, "orders"))[0] == 0


async def test_every_subscription_gets_every_payload(client: headgate.Client, tmp_path: Path) -> None:
    """Durable, shared and by pattern. Breaks when a segment goes once one of them has settled its messages."""
    await spooling(client, tmp_path, "news.sport", kind="topic")
    async with client.session("s") as session:
        durable = await session.consumer("news.sport", subscription="audit", durable=True)
        await durable.close()
        shared = [await session.consumer("news.sport", subscription="team", window=5) for _ in range(2)]
        wildcard = await session.consumer("news.*", subscription="all")
        await fill(client, 60, "news.sport", kind="topic")
        assert len(await references(client, "news.sport")) > 30
        assert [number_of(m.body) for m in await drain(wildcard, 60)] == list(range(60))
        took: list[int] = []

        async def take(consumer: headgate.Consumer) -> None:
            async for message in consumer:
                took.append(number_of(message.body))
                await message.accept()

        takers = [asyncio.create_task(take(consumer)) for consumer in shared]
        await wait_until(lambda: len(took) == 60, timeout=GUARD)
        for consumer in shared:
            await consumer.flush()
            await consumer.close()
        await asyncio.gather(*takers)
        assert sorted(took) == list(range(60))
        durable = await session.consumer("news.sport", subscription="audit", durable=True)
        assert [m.body for m in await drain(durable, 60)] == [body(n) for n in range(60)]
    await swept(tmp_path)


async def test_the_dead_letter_holds_the_payload(client: headgate.Client, tmp_path: Path) -> None:
    """After several attempts by several consumers. Breaks when what is stored goes there as it is."""
    await spooling(client, tmp_path, max_attempts=3, dead_letter="dead")
    await fill(client, 40)
    for attempt in range(3):
        async with client.session(f"s{attempt}") as session:
            consumer = await session.consumer("orders")
            for _ in range(40):
                await (await receive(consumer)).modify()
            await consumer.flush(timeout=GUARD)
    dead = [message async for message in client.browse("dead")]
    assert [message.body for message in dead] == [body(n) for n in range(40)]
    assert {message.headers["headgate-dead-attempts"] for message in dead} == {3}
    assert await references(client, "dead") == []
    await swept(tmp_path)


async def test_what_fails_with_its_session_is_dead_with_its_payload(client: headgate.Client, tmp_path: Path) -> None:
    """One that nobody settles, until it was delivered too often: the next consumer finds it dead."""
    await spooling(client, tmp_path, max_attempts=1, dead_letter="dead")
    await fill(client, 40)
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        for _ in range(40):
            await receive(consumer)
        while await client.store.detach(consumer.address, session.id, consumer.id, failed=True) == "MORE":
            pass  # as whoever finds its lease ended does
    async with client.session("t") as session:
        await session.consumer("orders")

        async def dead() -> bool:
            return "dead" in await client.destinations() and await field(client, "dead", "pending_messages") == 40

        await wait_until(dead, timeout=80)
    assert [m.body async for m in client.browse("dead")] == [body(n) for n in range(40)]


async def test_a_lost_segment_is_a_stub_among_the_dead_letters(client: headgate.Client, tmp_path: Path) -> None:
    await spooling(client, tmp_path, dead_letter="dead")
    await fill(client, 60)
    lost = await first_segment(client, tmp_path)
    lost.write_bytes(b"damaged")
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        async with asyncio.timeout(GUARD):
            got: list[int] = []
            while not got or got[-1] != 59:
                message = await receive(consumer)
                got.append(number_of(message.body))
                await message.accept()
        await consumer.flush()
    dead = [message async for message in client.browse("dead")]
    assert len(got) + len(dead) == 60
    assert all(lost.name in message.headers["headgate-lost-segment"] for message in dead)


async def test_all_come_in_order_though_there_is_no_room_for_references(
    client: headgate.Client, tmp_path: Path
) -> None:
    await spooling(client, tmp_path, limit_references=2000)
    async with client.session("s") as session, client.session("t") as other:
        producer = await session.producer("orders")
        sent = [asyncio.create_task(producer.send(body(n))) for n in range(400)]
        await wait_until(lambda: "references to spooled messages" in producer.reason)
        consumer = await other.consumer("orders")
        assert [number_of(m.body) for m in await drain(consumer, 400)] == list(range(400))
        await asyncio.gather(*sent)
    await swept(tmp_path)


def test_a_segment_whose_messages_are_back_in_line_does_not_go_out() -> None:
    """They went back as the segment before was not taken. Breaks when it is put in flight all the same."""
    outbox = Outbox(CreditLine())
    outbox.add(Outgoing(b"x" * 100, 100, math.inf, Future()))
    assert len(outbox.spool(10, 1000, lambda _: True)) == 1
    outbox.unspool()
    assert not outbox.fly([b"reference"], "disk/1 100")
    assert (outbox.flight, len(outbox.waiting)) == (None, 1)


def test_what_is_being_written_goes_another_way_before_what_waits_behind_it() -> None:
    """Values have other slices meanwhile. Breaks when it stays, and what came later goes first."""
    outbox = Outbox(CreditLine())
    first, second = items = [Outgoing(b"x" * 100, 100, math.inf, Future()) for _ in range(2)]
    for item in items:
        outbox.add(item)
    assert outbox.spool(1, 1000) == [first]
    assert outbox.take_out() == [first, second]
    assert not outbox.fly([b"reference"], "disk/1 100")
