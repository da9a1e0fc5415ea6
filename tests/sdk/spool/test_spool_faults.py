"""A storage that is away, slow, full or damaged: senders and receivers wait or go on, and nothing is lost or left."""

import asyncio
import errno
import logging
from collections.abc import AsyncIterator, Callable

import pytest

import headgate
from headgate.core.account.waiters import Waiters
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD
from tests.sdk.spooling import Depot, body, received, sent
from tests.support.faultyfs import FaultyStorage
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")
READ_ONLY = OSError(errno.EROFS, "Read-only file system")
AWAY = ConnectionError("the storage is away")


@pytest.fixture
async def depot(client: headgate.Client, namespace: str) -> AsyncIterator[Depot]:
    storage = FaultyStorage(namespace)
    yield Depot(client, storage)
    storage.close()


@pytest.mark.parametrize("error", [NO_SPACE, READ_ONLY, AWAY], ids=["full", "read-only", "away"])
async def test_what_cannot_be_written_waits_and_goes_in_order(depot: Depot, error: OSError) -> None:
    """Mutant: `Writer._done` does not put back what was being written."""
    await depot.make()
    async with depot.client.session("s") as session, depot.client.session("out") as out:
        producer = await session.producer("orders")
        depot.storage.faults.fail("write", error=error)
        sending = asyncio.gather(*(producer.send(body(n), timeout=600) for n in range(60)))
        await wait_until(lambda: depot.storage.faults.calls.get("write", 0) >= 2)
        await wait_until(lambda: "write" in producer.reason or "memory" in producer.reason)
        assert await depot.spooled() == 0
        consumer = await out.consumer("orders", window=1)
        assert await received(consumer, 5) == list(range(5)), "memory serves them meanwhile"
        depot.storage.faults.heal()
        assert await received(consumer, 55) == list(range(5, 60))
        async with asyncio.timeout(GUARD):
            assert [receipt.seq for receipt in await sending] == list(range(1, 61))
        await depot.empty()
    await depot.no_credit_left()


async def test_while_the_storage_does_not_write_memory_is_used_as_it_becomes_free(depot: Depot) -> None:
    await depot.make()
    depot.storage.faults.fail("write", error=AWAY)
    async with depot.client.session("s") as session, depot.client.session("out") as out:
        producer = await session.producer("orders")
        sending = asyncio.gather(*(producer.send(body(n), timeout=600) for n in range(60)))
        assert await received(await out.consumer("orders"), 60) == list(range(60))
        async with asyncio.timeout(GUARD):
            await sending
        assert await depot.spooled() == 0
        depot.storage.faults.heal()
        await depot.empty()


async def test_a_write_that_hangs_is_given_up_and_leaves_no_object(depot: Depot) -> None:
    """It may end long after. Mutant: `Storage` does not delete what was written too late."""
    await depot.make()
    spool = await depot.spool()
    spool.storage._patience = 0.2
    depot.storage.faults.hang("write")
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        sending = [asyncio.ensure_future(producer.send(body(n), timeout=600)) for n in range(40)]
        await wait_until(lambda: depot.storage.faults.under_way >= 2)
        depot.storage.faults.heal()
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*sending)
        assert await received(await session.consumer("orders"), 40) == list(range(40))
        await depot.empty()
    await depot.no_credit_left()


@pytest.mark.parametrize("manner", [None, "fail"], ids=["its own time", "its own when_full"])
async def test_senders_that_go_on_in_one_turn_each_wait_as_long_as_they_are_to(
    depot: Depot, manner: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: `CreditAccount.submit` looks at no deadline, or no `when_full`, of who comes behind; no turn is over."""
    kept: list[object] = []
    turns: list[bool] = []
    """Of turns in which one came behind another: whether all that wait are seen to in time."""
    turn_over = Waiters.turn_over

    def noted(waiters: Waiters) -> None:
        waiting = waiters.outbox.waiting
        if waiters.ahead_in_turn is not None and len(waiting) > 1:
            turns.append(waiters.attend_at <= min(item.deadline for item in waiting))
        turn_over(waiters)
        kept.append(waiters.ahead_in_turn)

    monkeypatch.setattr(Waiters, "turn_over", noted)
    await depot.make()
    async with depot.client.session("s") as session:
        producer, hasty = await session.producer("orders"), await session.producer("orders", when_full=manner)
        await sent(producer, 20)  # memory is full

        async def go_on(way: headgate.Producer, number: int, timeout: float) -> headgate.Receipt:
            await producer.send(body(number), timeout=GUARD)
            if manner:
                depot.storage.faults.fail("write", error=AWAY)
            else:
                depot.storage.faults.hang("write")
            return await way.send(body(number + 1), timeout=timeout)

        first = asyncio.ensure_future(go_on(producer, 100, GUARD))
        second = asyncio.ensure_future(go_on(hasty, 200, GUARD if manner else 0.2))
        with pytest.raises(headgate.DestinationFull if manner else headgate.CreditTimeout):
            await asyncio.wait_for(second, GUARD / 2)
        assert not first.done()
        assert turns
        assert all(turns)
        assert not any(kept), "who comes later is counted in as ever"
        depot.storage.faults.heal()
        await asyncio.wait_for(first, GUARD)
        assert len(await received(await session.consumer("orders"), 23)) == 23
        await depot.empty()


@pytest.mark.parametrize("error", [AWAY, READ_ONLY], ids=["away", "denied"])
async def test_what_cannot_be_read_now_is_waited_for(depot: Depot, error: OSError) -> None:
    """It is there: it must not go to the dead letters. Mutant: `Reader` takes any error for a loss."""
    await depot.make(dead_letter="dead")
    async with depot.client.session("s") as session:
        await sent(await session.producer("orders"), 60)
        depot.storage.faults.fail("read", error=error)
        consumer = await session.consumer("orders")
        assert await received(consumer, 16) == list(range(16))
        await wait_until(lambda: depot.storage.faults.calls.get("read", 0) >= 2)
        assert await consumer.receive(timeout=0.05) is None
        depot.storage.faults.heal()
        assert await received(consumer, 44) == list(range(16, 60))
        await depot.empty()


async def test_a_read_that_hangs_is_tried_again(depot: Depot) -> None:
    await depot.make()
    spool = await depot.spool()
    async with depot.client.session("s") as session:
        await sent(await session.producer("orders"), 40)
        spool.storage._patience = 0.2
        depot.storage.faults.hang("read")
        consumer = await session.consumer("orders")
        assert await received(consumer, 16) == list(range(16))
        await wait_until(lambda: depot.storage.faults.calls.get("read", 0) >= 2)
        depot.storage.faults.heal()
        assert await received(consumer, 24) == list(range(16, 40))
        await depot.empty()


@pytest.mark.parametrize("error", [NO_SPACE, READ_ONLY, AWAY], ids=["full", "read-only", "away"])
async def test_what_cannot_be_deleted_is_deleted_later_and_stays_counted(
    depot: Depot, error: OSError, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutant: the store is told that it is free before it is."""
    await depot.make()
    async with depot.client.session("s") as session:
        await sent(await session.producer("orders"), 60)
        depot.storage.faults.fail("delete", error=error)
        assert await received(await session.consumer("orders"), 60) == list(range(60))
        await wait_until(lambda: depot.storage.faults.calls.get("delete", 0) >= 2)
        memory, store = await depot.usage()
        assert memory == 0
        assert store > 40_000
        assert len(depot.storage.objects()) >= 10
        assert any("deleted" in record.message for record in caplog.records if record.levelno == logging.WARNING)
        depot.storage.faults.heal()
        await depot.empty()


def missing(_: bytes) -> None:
    return None


def cut(data: bytes) -> bytes:
    return data[:-1]


def damaged(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def emptied(_: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("how", [missing, cut, damaged, emptied], ids=lambda how: how.__name__)
@pytest.mark.parametrize("dead_letter", ["dead", None])
async def test_a_segment_that_is_lost_is_reported_and_the_queue_goes_on(
    depot: Depot, how: Callable[[bytes], bytes | None], dead_letter: str | None
) -> None:
    """Mutants: it is delivered as it is; the consumer waits for it for ever; the name is not said."""
    await depot.make(dead_letter=dead_letter)
    async with depot.client.session("s") as session:
        await sent(await session.producer("orders"), 60)
        path = depot.storage.objects()[1]
        segments = await depot.spooling.spools.calls.segments(Address.of(depot.client.namespace, "orders"))
        ends = sorted(segments.values())
        name = path.rpartition("/")[2]
        last = next(end for segment, end in segments.items() if segment.endswith(name))
        first = max([end for end in ends if end < last], default=16) + 1
        depot.storage.change(path, how)
        lost = range(first, last + 1) if how in (missing, emptied) else range(last, last + 1)
        consumer = await session.consumer("orders")
        good = [n for n in range(60) if n + 1 not in lost]
        assert await received(consumer, len(good)) == good
        if dead_letter:
            stubs = await session.consumer("dead")
            for _ in lost:
                stub = await stubs.receive(timeout=GUARD)
                assert stub is not None
                assert name in str(stub.headers["headgate-lost-segment"])
                assert name in str(stub.body)
                await stub.accept()
            await stubs.flush()
        await depot.empty()


async def test_a_storage_that_comes_back_empty_loses_what_was_there_and_goes_on(depot: Depot) -> None:
    await depot.make()
    async with depot.client.session("s") as session:
        producer = await session.producer("orders")
        await sent(producer, 60)
        before = await depot.spooled()
        for path in depot.storage.objects():
            depot.storage.change(path, missing)
        consumer = await session.consumer("orders")
        assert await received(consumer, 60 - before) == list(range(60 - before))
        await sent(producer, 60, first=60)
        assert (await received(consumer, 60)) == list(range(60, 120))
        await depot.empty()


async def test_a_client_that_closes_while_the_storage_hangs_leaves_nothing(
    depot: Depot, other: headgate.Client, redis_url: str
) -> None:
    """Mutant: what was written after that stays in the storage."""
    await depot.make()
    watch = Depot(other, depot.storage)
    depot.storage.faults.hang("write")
    async with headgate.connect(redis_url, namespace=depot.client.namespace) as client:
        async with client.session("s") as session:
            producer = await session.producer("orders")
            sending = [asyncio.ensure_future(producer.send(body(n), timeout=600)) for n in range(40)]
            await wait_until(lambda: depot.storage.faults.under_way >= 1)
        told = await asyncio.gather(*sending, return_exceptions=True)
    depot.storage.faults.heal()
    went = [n for n, one in enumerate(told) if isinstance(one, headgate.Receipt)]
    async with other.session("out") as out:
        assert await received(await out.consumer("orders"), len(went)) == went
        await watch.empty()
    await watch.no_credit_left()


async def test_a_storage_that_is_not_mounted_loses_nothing(depot: Depot) -> None:
    """Mutant: `Storage._see_marker` sees one always; then all would be dead letters, and new segments go astray."""
    await depot.make()
    async with depot.client.session("s") as session, depot.client.session("out") as out:
        await sent(await session.producer("orders"), 60)
        spool = await depot.client.parts.registry.spooling.spools.get("disk")
        kept = depot.storage.unmount()
        with pytest.raises(headgate.SpoolUnavailable, match="mount that"):
            await spool.read(Address.of(depot.client.namespace, "orders"), "x", 0, 1)
        consumer = await out.consumer("orders")
        spool.storage._folders.clear()  # as in a process that begins now
        with pytest.raises(headgate.SpoolUnavailable, match="mount that"):
            await spool.storage.write("ns/orders/x", b"x")
        depot.storage.mount(kept)
        assert await received(consumer, 60) == list(range(60))
        await depot.empty()
