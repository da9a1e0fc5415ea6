"""Queues whose keys take turns, over the SDK: what the keys are, live changes, threads, and the Redis that is none."""

import io
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from rich.console import Console

import headgate
import headgate.sync
import headgate.testing
from headgate.core.amqp.message import AmqpMessage, Properties
from headgate.core.amqp.message import encode as encode_amqp
from headgate.core.amqp.sections import Header
from headgate.core.limits.fairness import MAX_KEY, MOST_VALUES, fair_key
from headgate.errors import InvalidValue, PolicyError
from headgate.message import encode
from headgate_coordinator.operate.status import StatusData, render
from tests.sdk.observing import GUARD
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def send(session: headgate.Session, *tenants: str | None) -> None:
    producer = await session.producer("orders")
    for tenant in tenants:
        await producer.send(b"x", headers={"tenant": tenant} if tenant else None, timeout=GUARD)


async def tenants(session: headgate.Session, count: int) -> list[Any]:
    """Return the tenants of the next messages, each received and accepted before the next."""
    consumer = await session.consumer("orders", window=1)
    found = []
    for _ in range(count):
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        found.append(message.headers.get("tenant"))
        await message.accept(confirm=True)
    await consumer.close()
    return found


async def test_tenants_take_turns(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", fair_by="header:tenant", fair_weights={"gold-*": 2})
    async with client.session("s") as session:
        await send(session, *["a"] * 20, "b", "b", *["gold-1"] * 4, None)
        first = await tenants(session, 8)
        assert Counter(first) == {"a": 2, "b": 2, "gold-1": 3, None: 1} or first.count("gold-1") == 4
        assert Counter(first)["a"] <= 3


async def test_a_change_reaches_producers_that_are_open(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue")
    async with client.session("s") as session:
        await send(session, *["a"] * 5)
        producer = await session.producer("orders")
        await client.apply("orders", fair_by="header:tenant")
        await wait_until(lambda: producer._account.observer.fair_by == "header:tenant")
        await send(session, *["b"] * 5, "c")
        assert "c" in await tenants(session, 4)
        await client.apply("orders", fair_by="default")
        await wait_until(lambda: producer._account.observer.fair_by == "")
        await send(session, "d")
        rest = await tenants(session, 8)
        assert (rest[-1], sorted(filter(None, rest))) == ("d", sorted(rest))


async def test_tenants_have_their_turns_over_two_processes_and_when_one_is_killed(
    client: headgate.Client, redis_url: str, tmp_path: Path
) -> None:
    """What a killed process had in hand comes back in its tenant's turn, and nothing is lost."""
    await client.apply("orders", kind="queue", fair_by="header:tenant")
    sent = [*["a"] * 160, *["b"] * 40, *["c"] * 40]
    async with client.session("s") as session:
        producer = await session.producer("orders")
        for number, tenant in enumerate(sent):
            await producer.send(b"%d" % number, headers={"tenant": tenant}, timeout=GUARD)
    file = tmp_path / "tally"

    def tally() -> list[str]:
        return file.read_text().splitlines() if file.exists() else []

    serving = (redis_url, client.namespace, "orders", str(file))
    with Worker("tallies", *serving) as doomed, Worker("tallies", *serving):
        await wait_until(lambda: len(tally()) >= 50, timeout=GUARD)
        doomed.kill9()
        await wait_until(lambda: len(set(tally())) == len(sent), timeout=2 * GUARD)
    served = Counter(line.split()[0] for line in tally()[:90])
    assert min(served.values()) >= 25, f"of 90 each is to have 30, less what was in hand: {served}"
    assert len(tally()) <= len(sent) + 2, "no more than the killed one had in hand comes twice"


async def test_on_a_redis_that_is_none() -> None:
    async with headgate.testing.client() as client:
        await client.apply("orders", kind="queue", fair_by="header:tenant")
        async with client.session("s") as session:
            await send(session, *["a"] * 9, "b")
            assert "b" in await tenants(session, 2)


def test_in_threads(redis_url: str, cleanup_namespace: str) -> None:
    with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        client.apply("orders", kind="queue", fair_by="group-id")
        producer = session.producer("orders")
        for group in "aaab":
            producer.send(b"x", headers={"amqp.group-id": group}, timeout=GUARD)
        consumer = session.consumer("orders", window=1)
        found = []
        for _ in range(4):
            message = consumer.receive(timeout=GUARD)
            assert message is not None
            found.append(message.headers["amqp.group-id"])
            message.accept(confirm=True)
        assert found == ["a", "b", "a", "a"]


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("a", "a"), ("a b", "a%20b"), ("*", "%2A"), ("é", "%C3%A9"), (7, "7"), (True, "true"), ("", "*"), (None, "*"),
        (1.5, "*"), (b"a", "*"), (Decimal(1), "*"), ("\ud800", "%3F"),
    ],
)  # fmt: skip
def test_what_is_a_key(value: Any, key: str) -> None:
    if value != "\ud800":
        assert fair_key(encode(b"", {"tenant": value}), "header:tenant") == key
    assert fair_key(encode(b"", {"tenant": "x"}), "header:other") == "*"


def test_a_long_key_is_cut_and_stays_its_own() -> None:
    one, other = (fair_key(encode(b"", {"tenant": "x" * 500 + end}), "header:tenant") for end in "ab")
    assert one != other
    assert one[:64] == other[:64] == "x" * 64
    assert len(one) <= MAX_KEY


def test_of_what_is_very_large_no_key_is_looked_for_to_its_end() -> None:
    """A node does so in a turn of its loop. Mutants: all values are read for one; all of a text is spelled anew."""
    many = AmqpMessage(kind="data", body=b"x", header=Header(priority=9), properties=Properties(group_id="g"))
    many.application_properties = {f"p{number}": None for number in range(MOST_VALUES)}
    stored = encode_amqp(many)
    assert [fair_key(stored, by) for by in ("group-id", "header:p1", "priority")] == ["*", "*", "0"]
    one, other = (encode(b"", {"tenant": "\u00e9" * 2_000_000 + end}) for end in "ab")
    took = time.thread_time()
    assert fair_key(one, "header:tenant") != fair_key(other, "header:tenant")
    spelled = time.thread_time()
    assert quote("\u00e9" * 2_000_000)
    assert spelled - took < time.thread_time() - spelled, "both take less than to spell one"


def test_amqp_says_it_in_sections_of_its_own() -> None:
    message = AmqpMessage(kind="data", body=b"x", properties=Properties(group_id="g 1"))
    message.application_properties = {"tenant": "t"}
    stored = encode_amqp(message)
    assert (fair_key(stored, "group-id"), fair_key(stored, "header:tenant")) == ("g%201", "t")
    assert fair_key(b"\0damaged", "group-id") == "*"


@pytest.mark.parametrize("value", ["tenant", "header:", "header:" + "x" * 201, "header:a\n", "group_id", 7, ""])
async def test_what_no_key_can_be(client: headgate.Client, value: Any) -> None:
    with pytest.raises(InvalidValue, match="header:<name>"):
        await client.apply("orders", kind="queue", fair_by=value)


async def test_it_belongs_to_a_queue(client: headgate.Client) -> None:
    for kind in ("topic", "gate", "bucket"):
        with pytest.raises(PolicyError, match="fair_by"):
            await client.apply("orders", kind=kind, fair_by="producer", rate=5 if kind == "bucket" else None)
    with pytest.raises(InvalidValue, match="weight of 1 to 1000"):
        await client.apply("orders", kind="queue", fair_by="producer", fair_weights={"a": 0})


async def test_which_keys_wait_and_what_share_they_have_is_seen(client: headgate.Client) -> None:
    """Mutant: shares do not follow weights."""
    await client.apply("orders", kind="queue", fair_by="header:tenant", fair_weights={"gold-*": 3})
    async with client.session("s") as session:
        await send(session, *["a b"] * 6, *["gold-1"] * 4, None)
        explanation = await client.explain("orders")
        turns = explanation.turns
        assert turns is not None
        assert (turns.by, turns.waiting, turns.keys) == ("header:tenant", 11, 3)
        assert {one.key: (one.waiting, one.weight, one.share) for one in turns.first} == {
            "a b": (6, 1, 0.2), "gold-1": (4, 3, 0.6), None: (1, 1, 0.2),
        }  # fmt: skip
        text = str(explanation)
        assert "keys take turns by header:tenant: 11 messages of 3 keys are ready" in text
        assert "  key gold-1: 4 waiting, 60% of the deliveries (weight 3)" in text
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(render(StatusData([explanation]), "shop", by="name", width=120))
        assert "key a b: 6, 20%; key gold-1: 4, 60%; no key: 1, 20%" in console.export_text()
    await client.apply("plain", kind="queue")
    assert (await client.explain("plain")).turns is None
