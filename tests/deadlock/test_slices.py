"""Deadlocks where queues are spread over slices are found and named, and sends fail as at one slice."""

import asyncio
from typing import Any

import pytest

import headgate
from headgate import DeadlockDetected
from headgate.core.names import slice_name
from headgate.message import encode
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.notes import NoteStore
from headgate_coordinator.deadlock.detector import Detector
from tests.deadlock.figure import COUNT, bodies, program
from tests.deadlock.test_detector import arrived, both_are_empty, cycle, done
from tests.sdk.observing import GUARD, waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SLICES = 3
VALUES = ("2", "0")
"""They are at the second slice, and at the third."""
BODY = b"x" * 400
"""Two of them fit, a third one does not."""


async def fill(client: headgate.Client, **settings: Any) -> None:
    """Make the two queues, full of messages, from sessions that are at all slices in turn."""
    limit = COUNT * len(encode(b" " + bodies("x")[0], None))
    for name in ("x", "y"):
        await client.apply(name, kind="queue", limit=limit, slices=SLICES, **settings)
        for body in bodies(name):
            async with client.session("before") as session:
                await (await session.producer(name)).send(b" " + body, timeout=GUARD)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [("queue", {}), ("queue", {"order_by": "header:of"}), ("topic", {})],
    ids=["queue", "by value", "topic"],
)
async def test_a_session_that_waits_for_itself_at_a_slice_fails(
    client: headgate.Client, kind: Any, settings: dict[str, Any]
) -> None:
    await client.apply("loop", kind=kind, limit=1000, slices=SLICES, deadlock="fail", **settings)
    for turn in range(SLICES):  # sessions, and values, go to each slice in turn, or to some of them
        async with client.session("shop") as session:
            of = {"of": str(turn)}
            subscription: dict[str, Any] = {"subscription": "all"} if kind == "topic" else {}
            consumer = await session.consumer("loop", window=1, **subscription)
            producer = await session.producer("loop", window=1)
            for _ in range(2):
                await producer.send(BODY, headers=of, timeout=GUARD)
            message = await anext(consumer)
            async with asyncio.timeout(GUARD):
                with pytest.raises(DeadlockDetected) as caught:
                    await producer.send(BODY, headers=of, timeout=600)
            me, there = f"session {session.id}", f"{kind} loop"
            at = f"{there} (subscription all)" if kind == "topic" else there
            steps = {f"{at} waits for {me} to consume", f"{me} waits for room in {there}"}
            assert set(str(caught.value.deadlock).split("; ")) == steps
            await message.accept()
            await producer.send(BODY, headers=of, timeout=GUARD)  # it goes on as if nothing had been
            for _ in range(2):
                await (await anext(consumer)).accept()


async def test_a_session_that_keeps_values_from_changing_slices_fails(client: headgate.Client) -> None:
    """There is room, and yet its send would wait for its own message.

    Mutant: the cause is the one of what was stopped by hand.
    """
    await client.apply("loop", kind="queue", limit=1000, slices=2, order_by="header:of", deadlock="fail")
    async with client.session("shop") as session:
        consumer = await session.consumer("loop", window=1)
        producer = await session.producer("loop", window=1)
        await producer.send(BODY, headers={"of": "0"}, timeout=GUARD)
        message = await anext(consumer)
        await client.apply("loop", slices=SLICES)
        async with asyncio.timeout(GUARD):
            with pytest.raises(DeadlockDetected) as caught:
                await producer.send(BODY, headers={"of": "0"}, timeout=600)
        assert caught.value.explanation.cause == "spread-anew"
        assert "or set slices and order_by back" in str(caught.value)
        await message.accept()
        await producer.send(BODY, headers={"of": "0"}, timeout=GUARD)
        await (await anext(consumer)).accept()


@pytest.mark.parametrize("how", ["tasks", pytest.param("threads", marks=pytest.mark.whole)])
async def test_figure_14_over_slices_goes_on_as_sends_fail(client: headgate.Client, redis_url: str, how: str) -> None:
    """Mutants: only the first slice is told; what uses another slice's feed is not what uses the consumer."""
    await fill(client, deadlock="fail")
    detector = Detector(client, "n1", ttl=5.0)
    more = ("threads",) if how == "threads" else ()
    with (
        program(redis_url, client.namespace, "x", "y", *more) as a,
        program(redis_url, client.namespace, "y", "x", *more) as b,
    ):

        async def goes_on() -> bool:
            await detector.round()
            await asyncio.sleep(0.05)
            return await arrived(client)

        await wait_until(goes_on, timeout=240)
        assert any(cycle(a, b) in error for error in (await done(client)).values())
        await wait_until(lambda: both_are_empty(client))
    assert set(await done(client)) == {*bodies("x"), *bodies("y")}


@pytest.mark.parametrize("in_messages", [pytest.param(False, marks=pytest.mark.whole), True], ids=["bytes", "messages"])
async def test_figure_14_over_slices_goes_on_with_tickets(
    client: headgate.Client, redis_url: str, in_messages: bool
) -> None:
    """Mutants: the first slice alone is looked at; what was lent for a ticket is not used for it."""
    await fill(client, deadlock="ticket", **({"limit_messages": COUNT} if in_messages else {}))
    limit, detector = int((await client.explain("x")).fields["limit_bytes"]), Detector(client, "n1", ttl=5.0)
    with program(redis_url, client.namespace, "x", "y"), program(redis_url, client.namespace, "y", "x"):

        async def goes_on() -> bool:
            await detector.round()
            for name in ("x", "y"):
                assert await lent(client, name) <= limit + limit // COUNT
                assert not in_messages or await lent(client, name, "m") <= COUNT + 1
            return await arrived(client)

        await wait_until(goes_on, timeout=240)
        await wait_until(lambda: both_are_empty(client))
    assert not any((await done(client)).values()), "no send failed"
    assert await tickets(client, "x") + await tickets(client, "y") > 0


async def lent(client: headgate.Client, name: str, pool: str = "0") -> int:
    """Return what the slices of a queue were lent at the most."""
    fields = await client.parts.pools.store.fields(PoolAddress.of(client.namespace, f"{name}#{pool}"))
    return int(fields.get("peak_bytes", 0))


async def tickets(client: headgate.Client, name: str) -> int:
    """Return how many the ledgers of the slices of a queue have."""
    snapshots = [
        await client.store.snapshot(Address.of(client.namespace, slice_name(name, number)), entries=100, alone=True)
        for number in range(SLICES)
    ]
    return sum(entry.split(",")[2] == "ticket" for one in snapshots if one for entry in one.ledger)


async def rings_of_two(
    owner: headgate.Client, one: headgate.Client, two: headgate.Client, deadlock: str = "fail"
) -> None:
    """Have the sessions of two wait for each other at several slices.

    Some of their sends fail, and no other ends; or with tickets, all go on, and one at a time is above the limit.
    """
    ring = (("x", "y"), ("y", "x"))
    for name in ("x", "y"):
        await owner.apply(name, kind="queue", limit=1000, slices=SLICES, order_by="header:of", deadlock=deadlock)
        async with owner.session("before") as before:
            producer = await before.producer(name)
            for value in VALUES:
                await producer.send(BODY, headers={"of": value}, timeout=GUARD)
    async with one.session("a") as a, two.session("b") as b:
        tasks = []
        for session, (reads, writes) in zip((a, b), ring, strict=True):
            producer = await session.producer(writes)
            tasks += [asyncio.create_task(one_of(session, reads, producer, value)) for value in VALUES]
        notes = NoteStore(owner.store.server, owner.namespace)

        async def tied() -> bool:
            return len(await notes.ties()) >= len(tasks)

        await wait_until(tied)
        for name in ("x", "y"):
            assert await waiting(owner, name, at_least=2)
        detector = Detector(owner, "n1", ttl=5.0)

        async def ended() -> int:
            await detector.round()
            await asyncio.sleep(0.05)
            return sum(task.done() for task in tasks)

        async def all_ended() -> bool:
            return await ended() == len(tasks)

        if deadlock == "ticket":
            await wait_until(all_ended, timeout=80)
            assert [task.exception() for task in tasks] == [None] * len(tasks)
            peaks = [await lent(owner, name) for name in ("x", "y")]
            assert 1000 < max(peaks) <= 1000 + len(encode(BODY, {"of": VALUES[0]}))
        else:
            await wait_until(ended, timeout=80)
            assert all(isinstance(task.exception(), DeadlockDetected) for task in tasks if task.done())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_send_is_told_at_its_slice_where_its_session_waits_at_several(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Mutant: only the first slice is told, where none of them waits."""
    await rings_of_two(client, client, other)


async def test_each_goes_on_with_a_ticket_at_the_slice_where_it_waits(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Mutants: only the first slice is asked, where none of them waits; what is lent stays at a slice with others."""
    await rings_of_two(client, client, other, "ticket")


@pytest.mark.parametrize("deadlock", ["fail", "ticket"])
async def test_a_send_is_told_at_its_slice_at_three_masters(
    cluster_url: str, cleanup_namespace: str, deadlock: str
) -> None:
    async with (
        headgate.connect(cluster_url, namespace=cleanup_namespace) as one,
        headgate.connect(cluster_url, namespace=cleanup_namespace) as two,
    ):
        await rings_of_two(one, one, two, deadlock)


async def one_of(session: headgate.Session, reads: str, producer: headgate.Producer, value: str) -> None:
    consumer = await session.consumer(reads, window=1)
    message = await anext(consumer)
    await producer.send(BODY, headers={"of": value}, timeout=600)
    await message.accept()
    await consumer.close()  # so that nobody may take what has come since


async def test_a_consumer_of_all_slices_that_two_tasks_use_is_not_tied(client: headgate.Client) -> None:
    """Mutant: each feed has a user of its own, so one that settled at another slice alone seems tied."""
    await client.apply("x", kind="queue", limit="1MB", slices=SLICES)
    await client.apply("full", kind="queue", limit=1000)
    async with client.session("s") as session:
        consumer, sole = await session.consumer("x"), await session.consumer("full")
        producer = await session.producer("full", window=1)
        for _ in range(2):
            await producer.send(BODY)

        async def settle_and_wait() -> None:
            for _ in range(SLICES):
                await (await anext(consumer)).accept()
            await anext(sole)
            await producer.send(BODY, timeout=600)

        task = asyncio.create_task(settle_and_wait())
        for _ in range(SLICES + 1):
            async with client.session("each") as each:
                await (await each.producer("x")).send(b"1")
        notes = NoteStore(client.store.server, client.namespace)

        async def holders() -> set[str]:
            return {tie.holder for tie in await notes.ties() if tie.destination == "full"}

        await wait_until(holders)
        await anext(consumer)  # another task's, which goes on
        await wait_until(lambda: waiting(client, "full"))

        async def told_anew() -> bool:
            return not [tie for tie in await notes.ties() if tie.destination == "x"] and bool(await holders())

        await wait_until(told_anew)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
