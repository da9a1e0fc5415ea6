"""What a session tells of its consumers that are tied to sends that wait."""

import asyncio
from collections.abc import Iterable
from typing import Any

import pytest

import headgate
from headgate.redis.stores.notes import NoteStore, Tie
from headgate.session.ties import Ties
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_a_wait_that_begins_while_the_last_one_is_taken_back_is_told(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: whether sends wait is looked at before what was told is taken back, and not after it."""
    notes = NoteStore(other.store.server, client.namespace)
    await client.apply("out", limit=10)
    writing, go_on, again = asyncio.Event(), asyncio.Event(), asyncio.Event()
    real = NoteStore.write

    async def write(self: NoteStore, kind: Any, told: dict[str, str]) -> None:
        if "" in told.values():  # something is taken back
            writing.set()
            await go_on.wait()
        await real(self, kind, told)

    async with client.session("s") as session, other.session("t") as another:
        consumer, producer = await session.consumer("in"), await session.producer("out", window=1)
        room = await another.consumer("out", window=1)

        async def program() -> None:
            assert await consumer.receive(timeout=0.01) is None  # it is this task that uses it
            for _ in range(2):
                await producer.send(b"1234567", timeout=GUARD)
            await again.wait()
            await producer.send(b"1234567", timeout=GUARD)

        async def told() -> bool:
            return len(await notes.ties()) == 1

        working = asyncio.create_task(program())
        await wait_until(told)
        monkeypatch.setattr(NoteStore, "write", write)
        await accept_one(room)
        await writing.wait()
        again.set()
        await wait_until(lambda: producer.is_blocked)
        go_on.set()
        await wait_until(told, description="the next wait is told")
        for _ in range(2):
            await accept_one(room)
        await working


async def test_nothing_is_looked_at_while_no_wait_can_tie_a_consumer(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    find = Ties._find

    def counted(self: Ties, now: float) -> Iterable[Tie]:
        nonlocal looks
        looks += 1
        return find(self, now)

    monkeypatch.setattr(Ties, "_find", counted)
    await client.apply("out", limit=10)
    async with client.session("s") as session:
        consumer, producer = await session.consumer("in"), await session.producer("out", window=1, timeout=GUARD)
        assert await consumer.receive(timeout=0.01) is None  # this task uses it, and others wait
        await producer.send(b"1234567")
        sending = [asyncio.create_task(producer.send(b"1234567"))]
        await wait_until(lambda: looks == 1)
        await asyncio.sleep(0.5)
        assert looks == 1
        sending.append(asyncio.create_task(producer.send(b"1234567")))
        await wait_until(lambda: looks == 2, description="another send is looked at")
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)


async def accept_one(consumer: headgate.Consumer) -> None:
    message = await consumer.receive(timeout=GUARD)
    assert message is not None
    await message.accept()
