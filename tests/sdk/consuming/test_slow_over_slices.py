"""Slow consumers of destinations with slices, as a service sees them: judged by what they settle at all slices."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any

import pytest

import headgate
from headgate import SlowConsumer
from headgate.consuming import busy_spell
from headgate.consuming.shared_pace import SharedPace
from headgate.redis.keys import Address
from headgate.redis.stores.paces import Pace, PaceStore
from tests.sdk.consuming.test_consumer import receive
from tests.sdk.namespace.test_shared_deliveries import stock
from tests.sdk.observing import GUARD, drain
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def judgements(client: headgate.Client, consumer: headgate.Consumer) -> bytes:
    """Return the record of the last one, which says when it was."""
    key = Address.of(client.namespace, "orders").shared[12]
    record: bytes | None = await client.store.server.command(key, "HGET", key, consumer.id)
    return record or b""


async def test_a_slow_consumer_is_told_once_and_its_session_too(
    client: headgate.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutants: each slice judges what it sees; nobody judges all of them; an operator is not told."""
    await client.apply("orders", kind="queue", slices=3, slow_rate=1000, slow_period="50ms")
    await stock(client, 12, 3)
    async with client.session("s") as session:
        heard: list[headgate.Consumer] = []
        session.on_slow(heard.append)
        consumer = await session.consumer("orders", window=9)
        await wait_until(lambda: consumer.is_slow)
        assert heard == [consumer]
        told = await client.explain("orders")
        assert [(one.consumer, one.messages, one.slow) for one in told.consumers] == [(consumer.id, 9, True)]
        await drain(consumer, 12)
        await wait_until(lambda: not consumer.is_slow)
    assert caplog.text.count("is slow") == 1
    assert caplog.text.count("is no longer slow") == 1


async def test_the_first_reading_comes_as_a_busy_spell_begins_and_the_next_after_a_period(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: it comes a period after hands were found empty; each spell has one."""
    judge, look = SharedPace._judge, PaceStore.look
    rounds, looks, waits = list[int](), list[str](), set[float]()

    async def judged(pace: SharedPace, period: float) -> float:
        rounds.append(len(rounds))
        waits.add(wait := await judge(pace, period))
        return wait

    async def looked(store: PaceStore, part: Address, session: str, number: int) -> Pace:
        looks.append(part.name)
        return await look(store, part, session, number)

    monkeypatch.setattr(SharedPace, "_judge", judged)
    monkeypatch.setattr(PaceStore, "look", looked)
    await client.apply("orders", kind="queue", slices=3, slow_rate=1000, slow_period="1h")
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=9)
        await wait_until(lambda: rounds)
        assert not looks, "it has nothing to do"
        for _ in range(3):
            await stock(client, 3, 3)
            taken = [await receive(consumer) for _ in range(3)]
            await wait_until(lambda: judgements(client, consumer))
            await asyncio.gather(*(message.accept(confirm=True) for message in taken))
        await wait_until(lambda: any(wait > 3000 for wait in waits), description="the next is an hour later")
        assert sorted(looks) == ["orders", "orders#1", "orders#2"]


async def test_what_waits_at_all_slices_is_too_much_together(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", slices=3, slow_multiple=3, slow_period="50ms")
    await stock(client, 12, 3)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=3)
        await wait_until(lambda: consumer.is_slow, description="12 are four windows, and 4 at each slice are none")
        taken = await drain(consumer, 4)
        await wait_until(lambda: not consumer.is_slow)
        assert len(taken) == 4


async def test_who_takes_one_at_a_time_is_slow_although_its_hands_are_empty_in_between(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: it is as if it had nothing to do whenever the next message comes from another slice."""
    monkeypatch.setattr(busy_spell, "BLINK", 2 * GUARD)  # on a busy machine each way may take longer than that
    await client.apply("orders", kind="queue", slices=3, slow_rate=1000, slow_period="50ms")
    await stock(client, 300, 3)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window="pull")

        async def work() -> None:
            async for message in consumer:
                await asyncio.sleep(0.01)
                await message.accept()

        working = asyncio.create_task(work())
        await wait_until(lambda: consumer.is_slow)
        working.cancel()
        await asyncio.wait([working])


async def test_a_consumer_that_keeps_up_is_never_slow_however_few_slices_serve_it(client: headgate.Client) -> None:
    """Mutants: what is settled at one slice alone counts; what is not there for it counts."""
    await client.apply(
        "orders", kind="queue", slices=3, slow_rate=2, slow_period="100ms", slow_action="detach", slow_multiple=1000
    )
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=2)
        judged = set[bytes]()
        async with client.session("p") as sender:
            producer = await sender.producer("orders")

            async def send() -> None:
                while True:
                    await producer.send(b"x", timeout=GUARD)

            sending = asyncio.create_task(send())
            while len(judged) < 6:
                await (await receive(consumer)).accept()
                judged.add(await judgements(client, consumer))
            sending.cancel()
            await asyncio.wait([sending])
        assert not any(b"slow=1" in record for record in judged)
        assert not any(one.slow for one in (await client.explain("orders")).consumers)


@pytest.mark.parametrize("kind", ["queue", "topic"])
async def test_a_slow_consumer_is_detached_at_all_slices_and_others_get_what_it_held(
    client: headgate.Client, kind: str
) -> None:
    """Mutant: it keeps what other slices gave it."""
    await client.apply("orders", kind=kind, slices=3, slow_rate=1000, slow_period="50ms")
    async with client.session("s") as session:
        of: dict[str, Any] = {} if kind == "queue" else {"subscription": "d", "durable": True}
        consumer = await session.consumer("orders", window=6, **of)
        await stock(client, 6, 3)
        message = await receive(consumer)
        await client.apply("orders", slow_action="detach")

        async def receives() -> None:
            while True:
                consumer.inbox.take_all()
                await consumer.receive(timeout=0.05)

        async with asyncio.timeout(GUARD):
            with pytest.raises(SlowConsumer, match=consumer.id) as caught:
                await receives()
        assert (caught.value.destination, caught.value.consumer) == ("orders", consumer.id)
        await client.apply("orders", slow_action="notify")
        other = await session.consumer("orders", **of)
        assert {one.delivery_count for one in await drain(other, 6)} == {1}, "before the first is closed"
        with pytest.raises(headgate.HeadgateError):
            await message.accept(confirm=True)
        await consumer.close()


async def test_a_rule_and_slices_that_come_while_it_runs_are_kept_to(client: headgate.Client) -> None:
    """Mutants: settings are read as it opens alone; one that gets slices is judged by the first."""
    await client.apply("orders", kind="queue")
    await stock(client, 3, 1)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=9)
        await receive(consumer)
        await client.apply("orders", slices=3)
        await stock(client, 6, 6)
        await wait_until(lambda: consumer.held_messages == 9)
        await client.apply("orders", slow_multiple=1, slow_period="50ms")
        assert not consumer.is_slow, "nine are one window"
        await client.apply("orders", slow_rate=1000)
        await wait_until(lambda: consumer.is_slow)


async def test_a_pattern_is_judged_at_each_topic_over_its_slices(client: headgate.Client) -> None:
    for name in ("a.1", "a.2"):
        await client.apply(name, kind="topic", slices=2, slow_rate=1000, slow_period="50ms")
    async with client.session("s") as session:
        heard: list[headgate.Consumer] = []
        session.on_slow(heard.append)
        consumer = await session.consumer("a.*", window=9)
        async with client.session("p") as sender, client.session("q") as second:
            for one in (sender, second):
                producer = await one.producer("a.2")
                await producer.send(b"x", timeout=GUARD)
        await wait_until(lambda: heard)
        assert [one.address.name for one in heard] == ["a.2"]
        await drain(consumer, 2)


async def test_nobody_is_judged_while_a_slice_is_away_nor_by_totals_of_before_a_failover(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: what one slice does not say counts as nothing; epochs are not compared; all that time counts."""
    await client.apply("orders", kind="queue", slices=3, slow_rate=1000, slow_period="50ms")
    await stock(client, 6, 3)
    mode, rounds = "away", list[str]()
    look = PaceStore.look

    async def looked(store: PaceStore, part: Address, session: str, number: int) -> Pace:
        if part.name == "orders#2":
            rounds.append(mode)
            if mode == "away":
                raise headgate.CoordinatorUnavailable("for a test")
        seen = await look(store, part, session, number)
        return replace(seen, epoch=len(rounds)) if mode == "fails over" and part.name == "orders#2" else seen

    monkeypatch.setattr(PaceStore, "look", looked)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=6)
        await wait_until(lambda: consumer.held_messages == 6)
        await wait_until(lambda: rounds.count("away") > 4)
        mode = "fails over"
        await wait_until(lambda: rounds.count("fails over") > 4)
        assert not consumer.is_slow
        mode = "there"
        await wait_until(lambda: consumer.is_slow)
        before = (await judgements(client, consumer)).partition(b" of=")[2]
        mode, rounds[:] = "away", []
        await wait_until(lambda: rounds.count("away") > 1)
        mode = "there"

        async def judged_anew() -> bool:
            return (await judgements(client, consumer)).partition(b" of=")[2] != before

        await wait_until(judged_anew, description="it is not blamed for the time without an answer")
        await drain(consumer, 6)


@pytest.fixture
async def cluster(cluster_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        yield client


async def test_at_three_masters_two_of_a_session_are_judged_each_by_itself(cluster: headgate.Client) -> None:
    await cluster.apply("orders", kind="queue", slices=6, slow_rate=1000, slow_period="50ms")
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(cluster.session("s"))
        idle, slow = [await session.consumer("orders", window=9) for _ in range(2)]
        await idle.configure(window="paused")
        await stock(cluster, 6, 6)
        await wait_until(lambda: slow.is_slow)
        assert not idle.is_slow
