"""Queues that deliver by priority, over the SDK: one argument of a send, what a message says, live changes, threads."""

import io
from typing import Any

import pytest
from rich.console import Console

import headgate
import headgate.sync
import headgate.testing
from headgate.errors import InvalidValue, PolicyError
from headgate.message import encode, with_priority
from headgate.policy import BadDocument, loads
from headgate_coordinator.operate.status import StatusData, render
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def send(session: headgate.Session, *priorities: int | None) -> None:
    producer = await session.producer("orders")
    for number, priority in enumerate(priorities):
        await producer.send(f"{number}", priority=priority, timeout=GUARD)


async def received(session: headgate.Session, count: int) -> list[tuple[str | bytes, int]]:
    """Return body and priority of the next messages, each received and accepted before the next."""
    consumer = await session.consumer("orders", window=1)
    found = []
    for _ in range(count):
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        found.append((message.body, message.priority))
        await message.accept(confirm=True)
    await consumer.close()
    return found


async def test_the_highest_comes_first_and_the_order_of_storage_stays(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", fair_by="priority")
    async with client.session("s") as session:
        await send(session, 1, None, 9, 0, 9, 4)
        stored = [message.body async for message in client.browse("orders")]
        assert stored == ["0", "1", "2", "3", "4", "5"]
        assert await received(session, 6) == [("2", 9), ("4", 9), ("1", 4), ("5", 4), ("0", 1), ("3", 0)]


async def test_a_change_reaches_producers_that_are_open(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue")
    async with client.session("s") as session:
        await send(session, 0, 9)
        producer = await session.producer("orders")
        await client.apply("orders", fair_by="priority", max_overtaken=16)
        await wait_until(lambda: producer._account.observer.fair_by == "priority")
        await send(session, 0, 9)
        assert [priority for _, priority in await received(session, 4)] == [9, 0, 9, 0], "of before the rule: usual"
        await client.apply("orders", fair_by="default", max_overtaken="default")
        await wait_until(lambda: producer._account.observer.fair_by == "")
        await send(session, 0, 9)
        assert [priority for _, priority in await received(session, 2)] == [0, 9]


async def test_what_was_tried_and_failed_goes_before_the_rest_of_its_band(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", fair_by="priority", max_attempts=2, dead_letter="dead")
    async with client.session("s") as session:
        await send(session, 1, 1)
        consumer = await session.consumer("orders", window=1)
        for _ in range(2):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            assert message.body == "0"
            await message.modify(failed=True, confirm=True)
        await consumer.close()
        assert await received(session, 1) == [("1", 1)]
        dead = await session.consumer("dead", window=1)
        message = await dead.receive(timeout=GUARD)
        assert message is not None
        assert (message.body, message.priority) == ("0", 1)


async def test_on_a_redis_that_is_none() -> None:
    async with headgate.testing.client() as client:
        await client.apply("orders", kind="queue", fair_by="priority")
        async with client.session("s") as session:
            await send(session, *[0] * 9, 9)
            assert (await received(session, 1)) == [("9", 9)]


def test_in_threads(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        client.apply("orders", kind="queue", fair_by="priority")
        producer = session.producer("orders")
        producer.send(b"low", priority=0, timeout=GUARD)
        producer.post(b"high", priority=8, timeout=GUARD).result()
        consumer = session.consumer("orders", window=1)
        message = consumer.receive(timeout=GUARD)
        assert message is not None
        assert (message.body, message.priority) == (b"high", 8)
        message.accept(confirm=True)


@pytest.mark.parametrize("value", [-1, 10, True, "9", 4.5])
async def test_what_is_no_priority(client: headgate.Client, value: Any) -> None:
    await client.apply("orders", kind="queue")
    async with client.session("s") as session:
        with pytest.raises(InvalidValue, match=r"priority: .*use 0 to 9"):
            await (await session.producer("orders")).send(b"", priority=value)


def test_the_usual_one_costs_nothing() -> None:
    assert encode(b"x", with_priority(None, 4)) == encode(b"x", None)
    assert with_priority({"amqp.priority": 7, "a": 1}, 4) == {"a": 1}
    assert with_priority({"a": 1}, 0) == {"a": 1, "amqp.priority": 0}


@pytest.mark.parametrize("value", [15, 1_000_001, True, "50", 0])
async def test_what_no_bound_can_be(client: headgate.Client, value: Any) -> None:
    with pytest.raises(InvalidValue, match="use 16 to 1000000"):
        await client.apply("orders", kind="queue", fair_by="priority", max_overtaken=value)


async def test_settings_that_mean_nothing_are_refused(client: headgate.Client) -> None:
    with pytest.raises(PolicyError, match="nothing overtakes here"):
        await client.apply("orders", kind="queue", max_overtaken=50)
    with pytest.raises(PolicyError, match="nothing overtakes here"):
        await client.apply("orders", kind="queue", fair_by="group-id", max_overtaken=50)
    with pytest.raises(PolicyError, match="fair_weights mean nothing"):
        await client.apply("orders", kind="queue", fair_by="priority", fair_weights={"a": 2})
    with pytest.raises(PolicyError, match="belongs to a queue"):
        await client.apply("orders", kind="topic", fair_by="priority")
    rule = '[[destination]]\nmatch = "orders"\nkind = "queue"\n'
    for more in ("max_overtaken = 50", 'fair_by = "priority"\nfair_weights = { a = 2 }', "max_overtaken = 5"):
        with pytest.raises(BadDocument, match=r"orders\.toml:[45]"):
            loads(rule + more, "orders.toml")
    loads(f'{rule}fair_by = "priority"\nmax_overtaken = 50', "orders.toml")


async def test_how_much_waits_in_which_band_is_seen(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", fair_by="priority", max_overtaken=19)
    async with client.session("s") as session:
        await send(session, *[0] * 3, 1, 9, None, None)
        explanation = await client.explain("orders")
        turns = explanation.turns
        assert turns is not None
        assert [(one.key, one.waiting, round(one.share, 3)) for one in turns.first] == [
            ("priority 9", 1, 0.846), ("priority 4", 2, 0.05), ("priority 1 and 0", 4, 0.05),
        ]  # fmt: skip
        text = str(explanation)
        assert "delivered by priority: 7 messages of 3 bands are ready" in text
        assert "  priority 1 and 0: 4 waiting, 5.0% of the deliveries or more" in text
        console = Console(width=140, record=True, file=io.StringIO())
        console.print(render(StatusData([explanation]), "shop", by="name", width=140))
        assert "priority 9: 1, 85%; priority 4: 2, 5%" in console.export_text()
