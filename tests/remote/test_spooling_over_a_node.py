"""SDKs that come over a node get payloads of spooled messages: the node reads them, for their store is not theirs."""

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.core.names import slice_name
from headgate.core.segment import Reference, is_reference
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate.redis.scripts import Script
from headgate.redis.server import Server
from headgate.redis.stores.spreads import SpreadStore
from headgate.spool.storage import Storage
from headgate.spool.stores import store_fields
from headgate_coordinator.node.gateway import payloads, spooled_batches
from headgate_coordinator.node.node import Node
from tests.sdk.consuming.test_consumer import receive
from tests.sdk.observing import GUARD, counts, drain
from tests.support.spooled import PAYLOAD, body, fill, first_segment, number_of, references, segments, spooling, swept
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


async def test_at_slices_they_go_to_the_store_and_come_with_their_payloads_too(
    here: headgate.Client, client: headgate.Client, tmp_path: Path
) -> None:
    """Mutant: the node looks for what a slice refers to at the first."""
    await spooling(here, tmp_path, slices=3)
    sessions = [client.session(f"s{number}") for number in range(3)]
    for session in sessions:
        producer = await session.producer("orders")
        await asyncio.gather(*(producer.send(body(n), timeout=GUARD) for n in range(40)))
    assert all([await references(here, slice_name("orders", number)) for number in range(1, 3)])
    assert len([message async for message in client.browse("orders")]) == 120
    consumer = await sessions[0].consumer("orders")
    assert sorted(number_of(message.body) for message in await drain(consumer, 120)) == sorted([*range(40)] * 3)
    await swept(tmp_path)
    for session in sessions:
        await session.close()


async def test_a_segment_says_what_its_client_saw_of_the_slice(
    here: headgate.Client, client: headgate.Client, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: the client does not say it, or the node leaves it out."""
    await spooling(here, tmp_path, memory=PAYLOAD // 2, slices=2, order_by="header:from")
    server = node.client.store.server
    call = server.call
    said: list[str] = []

    async def heard(op: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        if op.name == "publish":
            said.append(argv[op.arguments.index("segment")].split()[3])
        return await call(op, keys, argv)

    monkeypatch.setattr(server, "call", heard)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await asyncio.gather(*(producer.send(body(n), headers={"from": str(n)}, timeout=GUARD) for n in range(12)))
        assert said
        parts = [Address.of(here.namespace, slice_name("orders", number)) for number in range(2)]
        assert set(said) <= {await SpreadStore(here.store.server).seen(part) for part in parts}
        consumer = await session.consumer("orders")
        assert len(await drain(consumer, 12)) == 12
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


async def test_who_sends_over_a_node_spools_through_it(
    here: headgate.Client, client: headgate.Client, tmp_path: Path
) -> None:
    """Memory first, then the store; all arrives once and in order. Breaks when it waits for memory."""
    await spooling(here, tmp_path)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        receipts = await asyncio.gather(*(producer.send(body(n), timeout=GUARD) for n in range(60)))
        assert len({receipt.seq for receipt in receipts}) == 60
        assert len(await references(here)) > 30
        assert 0 < len(segments(tmp_path)) < 10, "few segments for what waits at a time"
        consumer = await session.consumer("orders")
        assert [message.body for message in await drain(consumer, 60)] == [body(n) for n in range(60)]
    assert (await counts(here, "orders"))[0] == 0
    await swept(tmp_path)


async def test_a_store_without_room_is_waited_for_and_heard_of(
    here: headgate.Client, client: headgate.Client, tmp_path: Path
) -> None:
    """Its room comes long before the client would look by itself. Breaks when nobody tells it."""
    await spooling(here, tmp_path, store_limit="16KiB")
    async with client.session("s") as session:
        producer = await session.producer("orders")
        sent = [asyncio.create_task(producer.send(body(n), timeout=GUARD)) for n in range(60)]
        await wait_until(lambda: "spool store" in producer.reason and "left" not in producer.reason)
        assert sum(path.stat().st_size for path in segments(tmp_path)) <= 16 << 10
        assert not all(task.done() for task in sent)
        consumer = await session.consumer("orders", window=4)
        assert [message.body for message in await drain(consumer, 60)] == [body(n) for n in range(60)]
        await asyncio.gather(*sent)
    await swept(tmp_path)


@pytest.mark.parametrize(("when_full", "error"), [("fail", headgate.DestinationFull), ("drop", None)])
async def test_a_full_store_decides_what_happens_next(
    here: headgate.Client, client: headgate.Client, tmp_path: Path, when_full: str, error: type[Exception] | None
) -> None:
    """Breaks when the node does not say how its store wants it."""
    await spooling(here, tmp_path, store_limit="8KiB", store_when_full=when_full)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        sent = [producer.send(body(n), timeout=GUARD) for n in range(60)]
        ends = await asyncio.gather(*sent, return_exceptions=True)
        failed = [end for end in ends if isinstance(end, Exception)]
        assert all(error and isinstance(end, error) for end in failed)
        if error is not None:
            assert failed
    held = (await here.explain("orders")).fields
    stored = int(held["pending_messages"])
    assert 20 <= stored < 60
    assert stored + len(failed) + int(held.get("dropped_messages", 0)) == 60


async def test_what_is_too_large_for_the_store_says_so(
    here: headgate.Client, client: headgate.Client, tmp_path: Path
) -> None:
    await spooling(here, tmp_path, store_limit="32KiB")
    async with client.session("s") as session:
        producer = await session.producer("orders")
        with pytest.raises(headgate.MessageTooLarge) as error:
            await producer.send(b"x" * 40_000, timeout=GUARD)
        assert error.value.limit == 32 << 10
        await producer.send(b"x" * 30_000, timeout=GUARD)
    assert len(await references(here)) == 1


async def test_a_slow_write_is_waited_for_and_stored_once(
    here: headgate.Client, client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when each repeated call writes anew, or what was written too late is thrown away."""
    await spooling(here, tmp_path)
    await fill(here, 19)
    monkeypatch.setattr(spooled_batches, "WITHIN", 0.05)
    write = Storage.write
    written: list[str] = []

    async def slow(storage: Storage, path: str, data: bytes) -> None:
        written.append(path)
        await asyncio.sleep(0.4)
        await write(storage, path, data)

    monkeypatch.setattr(Storage, "write", slow)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        for number in range(19, 24):
            await producer.send(body(number), timeout=GUARD)
        consumer = await session.consumer("orders")
        assert [message.body for message in await drain(consumer, 24)] == [body(n) for n in range(24)]
    assert len(written) <= 5
    await swept(tmp_path)


@pytest.mark.parametrize("applied", [True, False])
async def test_a_lost_answer_doubles_nothing_and_leaves_nothing_behind(
    here: headgate.Client, client: headgate.Client, node: Node, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, *, applied: bool,
) -> None:  # fmt: skip
    """Redis does not answer the node, whether it did as it was asked or not.

    Breaks when the segment of a batch that is stored is deleted, or the batch is stored twice.
    """
    await spooling(here, tmp_path)
    server = node.client.store.server
    call = server.call
    lost: list[str] = []

    async def losing(op: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        if op.name == "publish" and argv[op.arguments.index("beyond")] == "spool" and len(lost) < 2:
            lost.append(argv[op.arguments.index("segment")])
            if applied:
                await call(op, keys, argv)
            raise headgate.CoordinatorUnavailable("no answer")
        return await call(op, keys, argv)

    monkeypatch.setattr(server, "call", losing)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await asyncio.gather(*(producer.send(body(n), timeout=GUARD) for n in range(40)))
        assert len(lost) == 2
        assert lost[0] == lost[1], "the same call has the same segment"
        consumer = await session.consumer("orders")
        assert [message.body for message in await drain(consumer, 40)] == [body(n) for n in range(40)]
    await swept(tmp_path)


async def test_a_client_that_goes_to_another_node_is_stored_once(
    here: headgate.Client, client: headgate.Client, node: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connection is lost while the node writes. Breaks when the segment stays."""
    await spooling(here, tmp_path)
    write = Storage.write
    cut: list[str] = []

    async def cutting(storage: Storage, path: str, data: bytes) -> None:
        await write(storage, path, data)
        if not cut:
            cut.append(path)
            for connection in tuple(node.connections):
                connection._transport.abort()
            await asyncio.sleep(0.2)

    monkeypatch.setattr(Storage, "write", cutting)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await asyncio.gather(*(producer.send(body(n), timeout=GUARD) for n in range(40)))
        assert cut
        consumer = await session.consumer("orders")
        assert [message.body for message in await drain(consumer, 40)] == [body(n) for n in range(40)]
    await swept(tmp_path)


async def test_nobody_sends_references_or_segments_of_his_own_over_a_node(
    here: headgate.Client, client: headgate.Client, tmp_path: Path
) -> None:
    """Not even where payloads are spooled. Breaks when the node takes what it is to make itself."""
    await spooling(here, tmp_path)
    await fill(here, 40)
    reference = (await references(here))[0]
    account = Account("s", 1, 1)
    address = Address.of(client.namespace, "orders")
    for bodies, segment in (([reference], "-"), ([b"x"], "disk/mine 1 1"), ([reference], "1-0"), ([b"x"], "mine 1 1")):
        with pytest.raises(headgate.AccessDenied, match="only nodes"):
            await client.store.publish(
                address, account, seq=1, bodies=bodies, ttl_ms=1000, beyond="spool", segment=segment
            )


async def test_slices_of_a_topic_are_sent_references_alone(
    here: headgate.Client, client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: `SpooledBatches.publish` sends the payloads along, of which a slice keeps no copies."""
    await spooling(here, tmp_path, kind="topic", slices=3)
    sent: list[int] = []
    inner = Server.call

    async def called(self: Server, script: Script, keys: Sequence[bytes], argv: Sequence[Any], *rest: Any) -> Any:
        if script.name == "publish" and "spool" in argv:
            sent.append(sum(len(word) for word in argv if isinstance(word, bytes)))
        return await inner(self, script, keys, argv, *rest)

    monkeypatch.setattr(Server, "call", called)
    async with client.session("s") as session:
        consumers = [await session.consumer("orders", subscription=name, durable=True) for name in ("a", "b")]
        producer = await session.producer("orders", kind="topic")
        await asyncio.gather(*(producer.send(body(n), timeout=GUARD) for n in range(100)))
        assert sum(sent) < 100 * PAYLOAD // 4
        for consumer in consumers:
            assert [number_of(message.body) for message in await drain(consumer, 100)] == list(range(100))
    assert sent
    await swept(tmp_path)


async def test_a_topic_spools_for_who_is_behind_and_no_other(
    here: headgate.Client, client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when the node sends no copies of payloads along: all would be read back."""
    await spooling(here, tmp_path, kind="topic", memory=80_000)
    reads: list[str] = []
    read = Storage.read

    async def counted(storage: Storage, path: str, start: int, end: int) -> bytes:
        reads.append(path)
        return await read(storage, path, start, end)

    monkeypatch.setattr(Storage, "read", counted)
    async with client.session("s") as session:
        behind = await session.consumer("orders", subscription="behind", durable=True, window=1)
        fast = await session.consumer("orders", subscription="fast", durable=True)
        producer = await session.producer("orders", kind="topic")
        for number in range(120):
            await producer.send(body(number), timeout=GUARD)
            message = await receive(fast)
            assert number_of(message.body) == number
            await message.accept()
        assert len(await references(here)) > 20
        assert not reads
        assert [number_of(message.body) for message in await drain(behind, 120)] == list(range(120))
    await swept(tmp_path)


async def test_each_delivery_mode_goes_to_its_own_store(
    here: headgate.Client, client: headgate.Client, tmp_path: Path
) -> None:
    """Breaks when the node takes one store for all."""
    spools = here.parts.registry.spooling.spools
    await spools.set("temp", store_fields(f"file://{tmp_path}/temp", limit="64MiB"))
    await spooling(here, tmp_path / "disk", store_nonpersistent="temp")
    async with client.session("s") as session:
        producer = await session.producer("orders")
        for number in range(40):
            await producer.send(body(number), headers={"amqp.durable": number % 3 == 0}, timeout=GUARD)
        kinds = {Reference.parse(stored).store for stored in await references(here)}
        assert kinds == {"disk", "temp"}
        consumer = await session.consumer("orders")
        messages = await drain(consumer, 40)
        assert [number_of(message.body) for message in messages] == list(range(40))
    await swept(tmp_path)
