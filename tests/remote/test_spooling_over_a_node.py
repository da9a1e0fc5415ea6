"""SDKs that come over a node get payloads of spooled messages: the node reads them, for their store is not theirs."""

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.core.segment import is_reference
from headgate.spool.storage import Storage
from headgate_coordinator.node.gateway import payloads
from tests.sdk.consuming.test_consumer import receive
from tests.sdk.observing import GUARD, counts, drain
from tests.support.spooled import body, fill, first_segment, number_of, references, spooling, swept
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
async def here(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    """A client on Redis, which spools."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


async def test_messages_come_with_their_payloads(
    here: headgate.Client, client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when the node answers with what Redis has."""
    await spooling(here, tmp_path)
    assert await fill(here, 60) > 30
    came: list[bytes] = []
    settle = client.store.settle

    async def seen(*args: Any, **named: Any) -> Any:
        answer = await settle(*args, **named)
        came.extend(stored for _, stored, _ in answer.messages)
        return answer

    monkeypatch.setattr(client.store, "settle", seen)
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        assert [message.body for message in await drain(consumer, 60)] == [body(n) for n in range(60)]
    assert len(came) == 60
    assert not any(map(is_reference, came))
    await swept(tmp_path)


async def test_browsing_over_a_node_shows_payloads(
    here: headgate.Client, client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much that is: what is beyond one answer is asked for. Breaks when a look is answered without payloads."""
    monkeypatch.setattr(payloads, "LOOK", 5000)
    await spooling(here, tmp_path)
    await fill(here, 60)
    assert [message.body async for message in client.browse("orders")] == [body(n) for n in range(60)]


async def test_browsing_over_a_node_shows_a_stub_for_what_is_lost(
    here: headgate.Client, client: headgate.Client, tmp_path: Path
) -> None:
    """Breaks when the answer does not tell what is wrong."""
    await spooling(here, tmp_path)
    await fill(here, 60)
    lost = await first_segment(here, tmp_path)
    lost.unlink()
    client_sees = [message async for message in client.browse("orders")]
    stubs = [message for message in client_sees if "headgate-lost-segment" in message.headers]
    assert (len(client_sees), bool(stubs)) == (60, True)
    assert all("there is no such segment" in str(message.body) for message in stubs)
    assert all(lost.name in message.headers["headgate-lost-segment"] for message in stubs)


async def test_a_lost_segment_goes_to_the_dead_letters(
    here: headgate.Client, client: headgate.Client, tmp_path: Path
) -> None:
    """Breaks when what is wrong does not get to the client: it has to move the stub."""
    await spooling(here, tmp_path, dead_letter="dead")
    await fill(here, 60)
    lost = await first_segment(here, tmp_path)
    lost.unlink()
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        got: list[int] = []
        while not got or got[-1] != 59:
            message = await receive(consumer)
            got.append(number_of(message.body))
            await message.accept()
        await consumer.flush(timeout=GUARD)
    dead = [message async for message in here.browse("dead")]
    assert len(dead) + len(got) == 60
    assert all(lost.name in message.headers["headgate-lost-segment"] for message in dead)


async def test_a_slow_store_holds_up_nothing_else_of_the_connection(
    here: headgate.Client, client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More consumers than calls that may be under way wait for the store, and a queue beside them goes on.

    Breaks when an answer that waits for payloads keeps its place among the calls of its connection.
    """
    await spooling(here, tmp_path)
    await fill(here, 120)
    go = threading.Event()
    read = Storage.read

    async def slow(storage: Storage, path: str, start: int, end: int) -> bytes:
        await asyncio.to_thread(go.wait)
        return await read(storage, path, start, end)

    monkeypatch.setattr(payloads, "WITHIN", 60.0)
    monkeypatch.setattr(Storage, "read", slow)
    async with client.session("s") as session:
        consumers = [await session.consumer("orders", window=1) for _ in range(60)]
        try:
            producer, beside = await session.producer("plain"), await session.consumer("plain")
            async with asyncio.timeout(GUARD):
                for number in range(20):
                    await producer.send(f"{number}")
                    assert (await receive(beside)).body == f"{number}"
        finally:
            go.set()
        for consumer in consumers:
            await consumer.close()


async def test_what_takes_too_long_is_asked_for_again_and_comes_once(
    here: headgate.Client, client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when what was read too late is thrown away, or a repeated answer is taken for new messages."""
    await spooling(here, tmp_path)
    await fill(here, 60)
    monkeypatch.setattr(payloads, "WITHIN", 0.05)
    read = Storage.read
    reads: list[str] = []

    async def slow(storage: Storage, path: str, start: int, end: int) -> bytes:
        reads.append(path)
        await asyncio.sleep(0.2)
        return await read(storage, path, start, end)

    monkeypatch.setattr(Storage, "read", slow)
    async with client.session("s") as session:
        consumer = await session.consumer("orders")
        assert [message.body for message in await drain(consumer, 60)] == [body(n) for n in range(60)]
    assert len(reads) == len(set(reads))
    await swept(tmp_path)


async def test_who_sends_over_a_node_waits_for_memory(
    here: headgate.Client, client: headgate.Client, tmp_path: Path
) -> None:
    """As with `block`. Breaks when it tries the store, which it may not even see."""
    await spooling(here, tmp_path)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        sent = [asyncio.create_task(producer.send(body(n))) for n in range(60)]
        await wait_until(lambda: producer.reason)
        assert "grant" not in producer.reason
        assert await references(here) == []
        consumer = await session.consumer("orders")
        assert [number_of(message.body) for message in await drain(consumer, 60)] == list(range(60))
        await asyncio.gather(*sent)
    assert (await counts(here, "orders"))[0] == 0
