"""Deadlocks over what is held of limiters and gates."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

import headgate
from headgate.core.deadlock import Deadlock
from headgate.redis.stores.notes import NoteStore
from headgate_coordinator.deadlock.detector import Detector
from headgate_coordinator.deadlock.graph import look
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
Enter = Callable[[headgate.Session, str], AbstractAsyncContextManager[Any]]


@contextlib.asynccontextmanager
async def in_gate(session: headgate.Session, name: str) -> AsyncIterator[None]:
    gate = await session.gate(name)
    async with gate.admit(1, timeout=600):
        yield


@contextlib.asynccontextmanager
async def in_limiter(session: headgate.Session, name: str, *, in_hand: bool = True) -> AsyncIterator[None]:
    limiter = await session.limiter(name, in_hand=in_hand)
    async with limiter.admit(slots=1, timeout=600):
        yield


@contextlib.asynccontextmanager
async def in_key(session: headgate.Session, name: str) -> AsyncIterator[None]:
    limiter = await session.limiter(name)
    async with limiter.admit(slots=1, key="tenant", timeout=600):
        yield


async def apply(client: headgate.Client, enter: Enter) -> None:
    for name in ("x", "y"):
        if enter is in_gate:
            await client.apply(name, kind="gate", limit=1)
        else:
            limits = {"slots": {"at_once": 1 if enter is in_limiter else 8}}
            of_key = {"slots": {"at_once": 1}} if enter is in_key else None
            await client.apply(name, kind="limiter", limits=limits, key_limits=of_key)


@contextlib.asynccontextmanager
async def crosswise(
    client: headgate.Client, other: headgate.Client, enter: Enter
) -> AsyncIterator[tuple[headgate.Session, headgate.Session]]:
    """Two programs: each enters one of x and y, and then the other one."""
    await apply(client, enter)
    async with client.session("a") as a, other.session("b") as b:
        inside = [asyncio.Event(), asyncio.Event()]

        async def program(number: int, session: headgate.Session, first: str, then: str) -> None:
            async with enter(session, first):
                inside[number].set()
                await inside[1 - number].wait()
                async with enter(session, then):
                    pass

        tasks = [asyncio.create_task(program(0, a, "x", "y")), asyncio.create_task(program(1, b, "y", "x"))]
        try:
            yield a, b
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def found(detector: Detector) -> Deadlock:
    (deadlock,) = await wait_until(detector.round, timeout=80)
    return deadlock


def ring(a: str, b: str, what: str) -> str:
    x, y = what.format("x"), what.format("y")
    return (
        f"{x} waits for session {a} to release; session {a} waits for {y}; "
        f"{y} waits for session {b} to release; session {b} waits for {x}"
    )


@pytest.mark.parametrize(
    ("enter", "what"),
    [(in_limiter, "limiter {} (slots)"), (in_gate, "gate {}"), (in_key, "limiter {} (slots of key tenant)")],
)
async def test_two_programs_that_hold_what_the_other_waits_for(
    client: headgate.Client, other: headgate.Client, enter: Enter, what: str
) -> None:
    detector = Detector(client, "n1", ttl=5.0)
    async with crosswise(client, other, enter) as (a, b):
        deadlock = await found(detector)
        assert str(deadlock) == ring(a.id, b.id, what)
        for name in ("x", "y"):
            explanation = await client.explain(name)
            assert explanation.deadlock == deadlock
            assert str(deadlock) in str(explanation)
        (record,) = await client.deadlocks()
        assert (record.action, record.done, set(record.destinations)) == ("alert", "", {"x", "y"})


async def test_a_task_that_waits_for_what_it_holds(client: headgate.Client) -> None:
    detector = Detector(client, "n1", ttl=5.0)
    await apply(client, in_limiter)
    async with client.session("a") as session:

        async def nested() -> None:
            async with in_limiter(session, "x"), in_limiter(session, "x"):
                pass

        task = asyncio.create_task(nested())
        deadlock = await found(detector)
        assert str(deadlock) == (
            f"limiter x (slots) waits for session {session.id} to release; session {session.id} waits for "
            "limiter x (slots)"
        )
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_consumer_that_waits_for_a_limiter_and_a_holder_that_waits_to_send(
    client: headgate.Client, other: headgate.Client
) -> None:
    """The send fails as the queue's setting says, and both go on."""
    detector = Detector(client, "n1", ttl=5.0)
    await apply(client, in_limiter)
    await client.apply("q", kind="queue", limit=100, deadlock="fail")
    async with client.session("a") as a, other.session("b") as b:
        consumer, producer = await a.consumer("q", window=1), await b.producer("q", window=1)
        await producer.send(b"x" * 90)
        inside = asyncio.Event()

        async def consumes() -> None:
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await inside.wait()
            async with in_limiter(a, "x"):
                await message.accept()

        async def sends() -> None:
            async with in_limiter(b, "x"):
                inside.set()
                await producer.send(b"x" * 90, timeout=600)

        consuming, sending = asyncio.create_task(consumes()), asyncio.create_task(sends())
        deadlock = await found(detector)
        assert f"session {a.id} waits for limiter x (slots)" in str(deadlock)
        assert f"session {b.id} waits for room in queue q" in str(deadlock)

        async def fails() -> bool:
            await detector.round()
            return sending.done()

        await wait_until(fails, timeout=80)
        with pytest.raises(headgate.DeadlockDetected):
            await sending
        await consuming


async def test_a_hold_that_another_task_may_release_is_none(client: headgate.Client, other: headgate.Client) -> None:
    """Awaited, it may be handed on, and is not tied to whoever waits. Mutant: all that a session holds is."""
    await apply(client, in_limiter)
    async with client.session("a") as a, other.session("b") as b:
        x, y = await a.limiter("x", in_hand=False), await b.limiter("y", in_hand=False)
        there = asyncio.Event()

        async def awaits() -> None:
            hold = await x.admit(slots=1)
            there.set()
            async with in_limiter(a, "y", in_hand=False):
                hold.release()

        async def enters() -> None:
            async with y.admit(slots=1):
                await there.wait()
                async with in_limiter(b, "x", in_hand=False):
                    pass

        tasks = [asyncio.create_task(awaits()), asyncio.create_task(enters())]
        notes = NoteStore(client.store.server, client.namespace)
        (tie,) = await wait_until(notes.ties)
        assert (tie.destination, tie.at, tie.limit, tie.session) == ("y", "x", "all:slots", b.id)
        assert not (await look(client.store, client.namespace, await notes.ties())).ties
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
