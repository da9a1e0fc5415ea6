"""A wait says so by itself: events with their ends, in time and not too often, and one line in the log."""

import asyncio
import itertools
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

import headgate
import headgate.sync
from headgate import Blocked, Unblocked
from headgate.credit.notices import WaitReporter
from headgate.explain.explainer import explain
from headgate.explain.model import Explanation
from tests.sdk.observing import GUARD, field, outcomes
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

Events = list[Blocked | Unblocked]


@pytest.fixture
async def full(client: headgate.Client) -> AsyncIterator[headgate.Session]:
    """A session at a queue that is full."""
    await client.apply("full", limit=1000)
    async with client.session("s") as session:
        await (await session.producer("full", window=1000)).send(b"x" * 990)
        yield session


async def test_what_many_of_one_session_lack_is_explained_once_for_each_look(
    full: headgate.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    explained: list[object] = []

    def counted(*args: Any, **named: Any) -> Explanation:
        explained.append(args)
        return explain(*args, **named)

    monkeypatch.setattr("headgate.credit.observer.explain", counted)
    producer = await full.producer("full")
    sends = (producer.send(b"x" * 100, timeout=0.5) for _ in range(30))
    for error in await asyncio.gather(*sends, return_exceptions=True):
        assert isinstance(error, headgate.CreditTimeout)
        assert error.explanation is not None
        assert error.explanation.cause == "no-consumer", error
    assert len(explained) <= 5, "with the one for the listener"


def test_a_wait_is_told_once_it_has_lasted_and_its_end_always() -> None:
    wait = WaitReporter(after=0.2, every=1.0)
    assert [wait.look(now, 10.0) for now in (10.0, 10.1, 10.25, 10.3)] == ["", "", "begun", ""]
    assert wait.look(10.4, None) == "ended"
    assert wait.end(10.4) == pytest.approx(0.4)
    assert [wait.look(now, 10.5) for now in (10.5, 10.9, 11.2)] == ["", "", ""]  # a second has not passed yet
    assert wait.look(11.25, 10.5) == "begun"
    assert wait.look(11.35, 11.3) == "ended"  # the next in line has only come


async def test_a_wait_is_told_with_its_reason_and_its_end(client: headgate.Client, full: headgate.Session) -> None:
    events: Events = []
    first: Events = []
    full.on_blocked(first.append)
    producer = await full.producer("full")
    waits = asyncio.ensure_future(producer.send(b"y" * 50, timeout=GUARD))
    await wait_until(lambda: first)
    await wait_until(
        lambda: producer.reason, description="it is known why"
    )  # before the first event, unless all is slow
    full.on_blocked(events.append)
    await wait_until(lambda: events)
    (blocked,) = events
    assert isinstance(first[0], Blocked)
    assert isinstance(blocked, Blocked)
    assert first[0].reason in ("", blocked.reason)
    assert (blocked.destination, blocked.session) == ("full", full.id)
    assert blocked.reason == "the limit of 1000 bytes is reached: no consumer is attached"
    assert blocked.explanation is not None
    assert blocked.explanation.cause == "no-consumer"
    assert str(blocked) == f"{full.id} waits at full: {blocked.reason}"
    assert 0.19 <= time.time() - blocked.since < GUARD
    await client.purge("full")
    await waits
    await wait_until(lambda: len(events) == len(first) == 2)
    assert isinstance(events[1], Unblocked)
    assert events[1].waited >= 0.2
    assert str(events[1]).startswith(f"{full.id} waits at full no more, after ")


async def test_an_end_is_told_also_when_everybody_gave_up(full: headgate.Session) -> None:
    events: Events = []
    full.on_blocked(events.append, notify_after="50ms")
    producer = await full.producer("full")
    with pytest.raises(headgate.CreditTimeout):
        await producer.send(b"y" * 50, timeout=0.3)
    await wait_until(lambda: len(events) == 2)
    waits = asyncio.ensure_future(producer.send(b"y" * 50, timeout=GUARD))
    await wait_until(lambda: len(events) == 3)
    await producer.close()
    await full.close()
    assert [type(event) for event in events] == [Blocked, Unblocked, Blocked, Unblocked]
    await outcomes([waits])


async def test_short_waits_are_told_at_most_once_a_second(client: headgate.Client, full: headgate.Session) -> None:
    events: Events = []
    times: list[float] = []

    def note(event: Blocked | Unblocked) -> None:
        events.append(event)
        if isinstance(event, Blocked):
            times.append(time.monotonic())

    full.on_blocked(note, notify_after=0.03)
    producer = await full.producer("full")
    until = time.monotonic() + 2.3
    while time.monotonic() < until:
        with pytest.raises(headgate.CreditTimeout):
            await producer.send(b"y" * 50, timeout=0.1)
    assert len(times) >= 2
    assert all(later - earlier >= 0.9 for earlier, later in itertools.pairwise(times))
    await wait_until(lambda: isinstance(events[-1], Unblocked))
    assert [type(event) for event in events] == [Blocked, Unblocked] * len(times)
    assert await field(client, "full", "pending_messages") == 1


async def test_what_is_short_is_not_told(client: headgate.Client) -> None:
    events: Events = []
    async with client.session("s") as session:
        session.on_blocked(events.append)
        producer = await session.producer("free", window=100)
        for _ in range(50):
            await producer.send(b"y" * 90)
    assert events == []


async def test_a_callback_may_be_async_may_fail_and_may_be_taken_away(
    full: headgate.Session, caplog: pytest.LogCaptureFixture
) -> None:
    events: Events = []
    told = 0

    async def note(event: Blocked | Unblocked) -> None:
        await asyncio.sleep(0)
        events.append(event)

    async def fail_later(_: object) -> None:
        await asyncio.sleep(0)
        raise RuntimeError("later")

    def fail(_: object) -> None:
        raise RuntimeError("at once")

    def count(_: object) -> None:
        nonlocal told
        told += 1

    for callback in (fail, fail_later, note):
        full.on_blocked(callback, notify_after=0.05)
    full.on_blocked(count, notify_after=0.05)()
    producer = await full.producer("full")
    with pytest.raises(headgate.CreditTimeout):
        await producer.send(b"y" * 50, timeout=0.3)
    await wait_until(lambda: len(events) == 2)
    assert caplog.text.count("a callback of on_blocked failed") == 4
    assert told == 0


async def test_each_destination_tells_of_itself(client: headgate.Client, full: headgate.Session) -> None:
    await client.apply("calls", kind="gate", limit=10)
    events: Events = []
    full.on_blocked(events.append, notify_after=0.05)
    gate, producer = await full.gate("calls"), await full.producer("full")
    async with gate.admit(10):
        told = await outcomes([_enter(gate), producer.send(b"y" * 50, timeout=0.3)])
    assert [type(one) for one in told] == [headgate.CreditTimeout] * 2
    await wait_until(lambda: len(events) == 4)
    assert {(type(event), event.destination) for event in events} == {
        (kind, name) for kind in (Blocked, Unblocked) for name in ("full", "calls")
    }


async def _enter(gate: headgate.Gate) -> None:
    async with gate.admit(5, timeout=0.3):
        pass


async def test_a_wait_of_a_second_is_one_line_in_the_log(
    client: headgate.Client, full: headgate.Session, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "headgate")
    producer = await full.producer("full")
    waits = [asyncio.ensure_future(producer.send(b"y" * 50, timeout=GUARD)) for _ in range(5)]
    await wait_until(lambda: caplog.records)
    (warning,) = caplog.records
    assert (warning.name, warning.levelname) == ("headgate", "WARNING")
    text = warning.getMessage()
    assert len(text.splitlines()) == 1
    for fact in (full.id, "full is blocked", "no consumer is attached", "settle 47 bytes, or raise limit to 1047"):
        assert fact in text
    await client.purge("full")
    await outcomes(waits)
    await wait_until(lambda: len(caplog.records) == 2)
    assert caplog.records[1].levelname == "INFO"
    assert "waited" in caplog.records[1].getMessage()


async def test_threads_are_told_and_may_use_the_client(client: headgate.Client, redis_url: str) -> None:
    def work() -> Events:
        events: Events = []
        with headgate.sync.connect(redis_url, namespace=client.namespace) as threads, threads.session("t") as session:
            threads.apply("full", limit=1000)
            producer = session.producer("full", window=1000)
            producer.send(b"x" * 990)

            def purge(event: Blocked | Unblocked) -> None:
                events.append(event)
                if isinstance(event, Blocked):
                    threads.purge("full")

            session.on_blocked(purge, notify_after=0.05)
            producer.send(b"y" * 50, timeout=GUARD)
            deadline = time.monotonic() + GUARD
            while len(events) < 2 and time.monotonic() < deadline:
                time.sleep(0.005)
        return events

    assert [type(event) for event in await asyncio.to_thread(work)] == [Blocked, Unblocked]
