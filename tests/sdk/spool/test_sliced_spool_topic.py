"""A topic over several slots spools at each slice: a subscription that is behind keeps nobody else waiting."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.core.names import slice_name
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.store import Store
from headgate_coordinator.operate.audit import audit
from tests.sdk.observing import GUARD
from tests.support.spooled import body, number_of, references, segments, spooling, swept

pytestmark = pytest.mark.one_server
SLICES, EACH = 3, 40
LIMIT = 20_000


async def send(client: headgate.Client, senders: Iterable[int], count: int = EACH, first: int = 0) -> None:
    """Send from a session each, and each to the next slice."""
    async with AsyncExitStack() as stack, asyncio.timeout(2 * GUARD):
        sessions = [await stack.enter_async_context(client.session(f"s{at}")) for at in senders]
        producers = [await session.producer("prices", kind="topic") for session in sessions]
        await asyncio.gather(
            *(
                producer.send(body(n), headers={"from": str(at)}, timeout=GUARD)
                for at, producer in zip(senders, producers, strict=True)
                for n in range(first, first + count)
            )
        )


async def take(consumer: headgate.Consumer, count: int) -> dict[str, list[int]]:
    """Receive and settle so many; returns what came of each sender."""
    came: dict[str, list[int]] = {}
    async with asyncio.timeout(2 * GUARD):
        for _ in range(count):
            message = await anext(consumer)
            assert message.body == body(number_of(message.body))
            came.setdefault(str(message.headers["from"]), []).append(number_of(message.body))
            await message.accept()
        await consumer.flush(timeout=GUARD)
    return came


def all_of(senders: Iterable[int], count: int = EACH) -> dict[str, list[int]]:
    return {str(sender): list(range(count)) for sender in senders}


async def peak(client: headgate.Client) -> int:
    return int((await client.parts.pools.store.fields(PoolAddress.of(client.namespace, "prices#0")))["peak_bytes"])


@pytest.fixture
async def sent_copies(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Payloads that were sent to Redis beside references to them."""
    copies: list[bytes] = []
    publish = Store.publish

    async def published(self: Store, *args: Any, **words: Any) -> Any:
        copies.extend(words.get("copies", ()))
        return await publish(self, *args, **words)

    monkeypatch.setattr(Store, "publish", published)
    return copies


async def test_who_is_behind_and_who_is_not_have_all_in_order(
    client: headgate.Client, tmp_path: Path, sent_copies: list[bytes]
) -> None:
    """Slices have the whole limit, and copies of nothing. Mutants: each keeps an eighth for copies, or sends them."""
    await spooling(client, tmp_path, "prices", kind="topic", memory=LIMIT, slices=SLICES)
    async with client.session("out") as session:
        lazy = await session.consumer("prices", subscription="lazy", durable=True, window="paused")
        fast = await session.consumer("prices", subscription="fast", durable=True)
        senders = range(SLICES)
        _, came = await asyncio.gather(send(client, senders), take(fast, SLICES * EACH))
        assert came == all_of(senders)
        explained = await client.explain("prices")
        assert int(explained.fields["pending_bytes"]) > LIMIT * 7 // 8
        assert int(explained.fields["spooled_bytes"]) == sum(path.stat().st_size for path in segments(tmp_path)) > 0
        assert "hot_bytes" not in explained.fields
        assert f"of {LIMIT}" in str(explained)
        assert await peak(client) <= LIMIT
        assert not sent_copies
        assert [one.verdict for one in await audit(client, repair=False)] == ["equal"]
        await lazy.configure(window=1000)
        assert await take(lazy, SLICES * EACH) == all_of(senders)
    await swept(tmp_path)
    assert (await client.recount("prices")).equal
    assert [store.held for store in await client.stores()] == [0]


async def test_a_subscription_and_slices_that_come_meanwhile_miss_nothing(
    client: headgate.Client, other: headgate.Client, tmp_path: Path
) -> None:
    """What is sent to a slice that is new is for all that there are, though it finds no room in memory."""
    await spooling(client, tmp_path, "prices", kind="topic", memory=LIMIT, slices=2)
    async with client.session("out") as session:
        old = await session.consumer("prices", subscription="old", durable=True, window="paused")
        await send(client, range(2))
        new = await session.consumer("prices", subscription="new", durable=True, window="paused")
        await client.apply("prices", slices=6)
        await send(other, range(2, 8))
        assert sum([len(await references(client, slice_name("prices", n))) > 0 for n in range(2, 6)]) == 4
        await client.apply("prices", slices=1)
        await send(client, range(8, 9))
        for one, senders in ((old, range(9)), (new, range(2, 9))):
            await one.configure(window=1000)
            assert await take(one, len(senders) * EACH) == all_of(senders)
        assert await peak(client) <= LIMIT
    await swept(tmp_path)


async def test_copies_that_are_there_as_a_topic_is_spread_go_as_they_are_settled(
    client: headgate.Client, tmp_path: Path
) -> None:
    await spooling(client, tmp_path, "prices", kind="topic", memory=LIMIT)
    key = Address.of(client.namespace, "prices").shared[0]

    async def copied() -> int:
        return int(await client.store.server.command(key, "HGET", key, "hot_bytes") or 0)

    async with client.session("out") as session:
        both = [await session.consumer("prices", subscription=name, window="paused") for name in ("a", "b")]
        await send(client, range(1))
        assert 0 < await copied() <= LIMIT // 8
        await client.apply("prices", slices=SLICES)
        await send(client, range(1, 4))
        for consumer in both:
            await consumer.configure(window=1000)
            assert await take(consumer, 4 * EACH) == all_of(range(4))
    assert await copied() == 0
    await swept(tmp_path)
    assert (await client.recount("prices")).equal


async def test_with_a_limit_in_messages_each_reference_is_one(client: headgate.Client, tmp_path: Path) -> None:
    await spooling(client, tmp_path, "prices", kind="topic", memory=LIMIT, slices=SLICES, limit_messages=50)
    async with client.session("out") as session:
        consumer = await session.consumer("prices", subscription="a", durable=True, window=10)
        _, came = await asyncio.gather(send(client, range(SLICES)), take(consumer, SLICES * EACH))
        assert came == all_of(range(SLICES))
    pool = await client.parts.pools.store.fields(PoolAddress.of(client.namespace, "prices#m"))
    assert int(pool["peak_bytes"]) <= 50
    await swept(tmp_path)


async def test_a_pattern_has_what_is_spooled_at_slices(client: headgate.Client, tmp_path: Path) -> None:
    await spooling(client, tmp_path, "prices", kind="topic", memory=LIMIT, slices=SLICES)
    async with client.session("out") as session:
        every = await session.consumer("*", window=10)
        _, came = await asyncio.gather(send(client, range(SLICES)), take(every, SLICES * EACH))
        assert came == all_of(range(SLICES))
    await swept(tmp_path)
