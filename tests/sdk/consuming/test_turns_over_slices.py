"""Keys take turns over the slices of a queue: rules, several consumers, changes while it runs, and what is refused."""

import asyncio
import contextlib
from collections import Counter
from typing import Any

import pytest

import headgate
from headgate import PolicyError
from headgate.consuming.feed import Feed
from headgate.core.limits.spread import Spread
from headgate.core.limits.turns_over_slices import FIRST
from headgate.core.names import is_slice
from headgate.credit.account import CreditAccount
from headgate.message import encode
from tests.sdk.observing import GUARD

pytestmark = pytest.mark.one_server
TENANT = "header:tenant"
RULE: dict[str, Any] = {"fair_by": TENANT, "order_by": TENANT}


def tenants_of(slices: int, *counts: int) -> list[list[str]]:
    """Return names of tenants whose messages go to each slice, so many to each."""
    found: list[list[str]] = [[] for _ in counts]
    number = 0
    while any(len(names) < count for names, count in zip(found, counts, strict=True)):
        name, number = f"t{number}", number + 1
        there = Spread(1, slices, TENANT).slice_of_stored(encode(b"", {"tenant": name}), "")
        if len(found[there]) < counts[there]:
            found[there].append(name)
    return found


async def send(session: headgate.Session, tenants: list[str], count: int) -> None:
    producer = await session.producer("orders")
    await asyncio.gather(
        *(producer.send(b"x", headers={"tenant": tenant}, timeout=GUARD) for tenant in tenants for _ in range(count))
    )


async def take(client: headgate.Client, served: Counter[Any], windows: list[int], count: int) -> float:
    """Take so many messages with as many consumers; returns how far tenants were apart at the most."""
    apart, tenants = 0, list(served)

    async def consume(number: int, window: int) -> None:
        nonlocal apart
        async with client.session(f"c{number}") as session:
            consumer = await session.consumer("orders", window=window)
            while served.total() < count:
                if (message := await consumer.receive(timeout=1.0)) is not None:
                    served[message.headers["tenant"]] += 1
                    levels = [served[tenant] for tenant in tenants]
                    apart = max(apart, max(levels) - min(levels))
                    await asyncio.sleep(0)
                    await message.accept()

    await asyncio.gather(*(consume(number, window) for number, window in enumerate(windows)))
    return apart


@pytest.mark.parametrize("windows", [[1], [3, 3, 3], [40]], ids=str)
async def test_a_tenant_gets_as_much_alone_in_its_slice_as_beside_others(
    client: headgate.Client, windows: list[int]
) -> None:
    """Mutants: slices are fetched from by turns; by what waits; a slice says nothing of the turns that it gave."""
    await client.apply("orders", kind="queue", slices=2, **RULE)
    alone, together = tenants_of(2, 1, 7)
    tenants = [*alone, *together]
    async with client.session("s") as session:
        await send(session, tenants, 30)
    bound = len(windows) * (3 * max(windows) / len(tenants) + 2) + FIRST
    served = Counter(dict.fromkeys(tenants, 0))
    assert await take(client, served, windows, 160) <= bound, served


async def test_a_change_of_rule_and_weights_reaches_open_consumers(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", slices=2, order_by=TENANT)
    (alone,), together = tenants_of(2, 1, 4)
    async with client.session("s") as session, client.session("c") as receiving:
        consumer = await receiving.consumer("orders", window=2)

        async def next_ones(count: int) -> Counter[str]:
            found = Counter[str]()
            for _ in range(count):
                message = await consumer.receive(timeout=GUARD)
                assert message is not None
                found[message.headers["tenant"]] += 1
                await message.accept(confirm=True)
            return found

        await send(session, ["before"], 1)
        await next_ones(1)
        await client.apply("orders", **RULE)
        await send(session, [alone, *together], 60)
        assert max((fair := await next_ones(80)).values()) - min(fair.values()) <= FIRST + 3, fair
        await client.apply("orders", fair_weights={alone: 4})
        heavy = await next_ones(80)
        assert heavy[alone] >= 80 / 2 - FIRST - 3, heavy
        await client.apply("orders", fair_by="default", fair_weights="default")
        rest = await next_ones(5 * 60 - 160)
        assert rest.total() == 140
        await send(session, [alone, *together], 1)
        assert set(await next_ones(5)) == {alone, *together}


async def test_sessions_take_turns_wherever_they_send(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", slices=2, fair_by="producer")
    for sender in ("a", "b", "c"):
        async with client.session(sender) as session:
            producer = await session.producer("orders")
            for _ in range(9 if sender == "a" else 3):
                await producer.send(sender, timeout=GUARD)
    async with client.session("in") as session:
        consumer = await session.consumer("orders", window=1)
        found = ""
        for _ in range(6):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            found += str(message.body)
            await message.accept(confirm=True)
    assert found.count("a") <= 3, "two sessions share a slice, and a third has one"


async def test_tenants_of_all_slices_are_shown_as_one_queues(client: headgate.Client) -> None:
    """Mutant: those of the first slice alone."""
    await client.apply("orders", kind="queue", slices=3, fair_weights={"t*": 2}, **RULE)
    tenants = [tenant for names in tenants_of(3, 1, 2, 1) for tenant in names]
    async with client.session("s") as session:
        await send(session, tenants, 2)
    turns = (await client.explain("orders")).turns
    assert turns is not None
    assert (turns.by, turns.waiting, turns.keys) == (TENANT, 8, 4)
    shown = {one.key: (one.waiting, one.weight, one.share) for one in turns.first}
    assert shown == dict.fromkeys(tenants, (2, 2, 0.25))


@pytest.mark.parametrize(("setting", "words"), [
    ({"fair_by": TENANT}, "set order_by to 'header:tenant' too, so that it lies in one"),
    ({"fair_by": "group-id", "order_by": TENANT}, "set order_by to 'group-id' too"),
    ({"fair_by": "producer", "order_by": TENANT}, "set fair_by to 'header:tenant' too"),
    ({"fair_by": "priority"}, "give urgent ones a queue of their own"),
])  # fmt: skip
async def test_a_key_that_would_have_turns_at_several_slices_is_refused(
    client: headgate.Client, setting: dict[str, Any], words: str
) -> None:
    await client.apply("orders", kind="queue", slices=2)
    with pytest.raises(PolicyError, match=words):
        await client.apply("orders", **setting)
    await client.apply("jobs", kind="queue", **setting)
    with pytest.raises(PolicyError, match=words):
        await client.apply("jobs", slices=2)
    await client.apply("jobs", fair_by="default")


async def test_what_says_where_a_key_lies_stays_as_long_as_keys_take_turns(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", slices=2, **RULE)
    with pytest.raises(PolicyError, match="set order_by to 'header:tenant' too"):
        await client.apply("orders", order_by="default")
    await client.apply("orders", fair_by="default", order_by="default")


async def test_all_slices_are_opened_together(client: headgate.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: a consumer, or a producer, opens one after the other, so that each whose master is away takes 2 s."""
    for kind, opened in ((Feed, 2), (CreditAccount, 3)):
        together, start = asyncio.Barrier(opened), kind.start

        async def start_beside(one: Any, *, start: Any = start, together: asyncio.Barrier = together) -> None:
            if isinstance(one, CreditAccount) or is_slice(one.address.name):  # its first feed is there before
                await together.wait()
            await start(one)

        monkeypatch.setattr(kind, "start", start_beside)
    await client.apply("orders", kind="queue", slices=3, **RULE)
    async with client.session("s") as session, asyncio.timeout(GUARD):
        await session.producer("orders")
        await session.consumer("orders")


@pytest.mark.parametrize("windows", [[2], [1, 3]], ids=str)
async def test_slices_are_fetched_from_as_much_as_lies_there(client: headgate.Client, windows: list[int]) -> None:
    """So two that send to one slice are served as a third is that has one to itself.

    Mutants: slices are fetched from by turns; each begins at another place in the first turn.
    """
    await client.apply("orders", kind="queue", slices=2)
    senders = ("a", "b", "c")  # which take the next slice in turn
    async with contextlib.AsyncExitStack() as stack:
        producers = [await (await stack.enter_async_context(client.session(one))).producer("orders") for one in senders]
        for _ in range(40):
            for sender, producer in zip(senders, producers, strict=True):
                await producer.send(b"x", headers={"tenant": sender}, timeout=GUARD)
    served = Counter(dict.fromkeys(senders, 0))
    await take(client, served, windows, 72)
    assert max(served.values()) - min(served.values()) <= 13, served  # by turns it is 18


async def test_one_that_sends_little_to_a_slice_waits_for_no_backlog_of_others(client: headgate.Client) -> None:
    """Mutant: what empties a slice counts, so that the next message there waits until all that others have is gone."""
    await client.apply("orders", kind="queue", slices=2)
    async with client.session("much") as much, client.session("little") as little, client.session("in") as session:
        producer, other = await much.producer("orders"), await little.producer("orders")
        await asyncio.gather(*(producer.send(b"x", headers={"tenant": "much"}, timeout=GUARD) for _ in range(200)))
        consumer = await session.consumer("orders", window=2)
        for _ in range(4):
            await other.send(b"x", headers={"tenant": "little"}, timeout=GUARD)
            tenant, overtaken_by = "", 0
            while tenant != "little":
                message = await consumer.receive(timeout=GUARD)
                assert message is not None
                await message.accept(confirm=True)
                tenant, overtaken_by = message.headers["tenant"], overtaken_by + 1
            assert overtaken_by <= 12, "windows, and a few messages of the other slice's turn"
