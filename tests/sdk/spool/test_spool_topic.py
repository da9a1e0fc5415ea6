"""A topic that spools: a subscription that is behind has its messages in the store, the others go on out of memory."""

import asyncio
from pathlib import Path

import pytest

import headgate
from headgate.redis.keys import Address
from tests.sdk.observing import drain
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

BODY = b"x" * 1000
ROUND = 20
"""Messages of which an eighth of the limit holds copies, however late the consumer is that is not behind."""


@pytest.fixture
async def prices(client: headgate.Client, tmp_path: Path) -> headgate.Client:
    await client.set_store("disk", f"file://{tmp_path}", limit="10MB", segment="64KiB")
    await client.apply("prices", kind="topic", limit="200KB", when_full="spool", store="disk")
    return client


async def fields(client: headgate.Client) -> dict[str, int]:
    key = Address.of(client.namespace, "prices").shared[0]
    names = ("pending_bytes", "leased_bytes", "spooled_bytes", "hot_bytes")
    return dict(
        zip(names, (int(n or 0) for n in await client.store.server.command(key, "HMGET", key, *names)), strict=True)
    )


def objects(folder: Path) -> list[int]:
    """Return the bytes of every object in a storage."""
    return [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.name != ".headgate"]


async def test_who_is_not_behind_is_served_without_the_store(prices: headgate.Client) -> None:
    """Mutant: `hot_body` in lua/lib/hot.lua returns the reference, or `keep_hot` keeps nothing."""
    store = (await prices.parts.registry.spooling.spools.get("disk")).storage
    async with prices.session("slow") as slow, prices.session("s") as session:
        lazy = await slow.consumer("prices", subscription="lazy", durable=True, window="paused")
        fast = await session.consumer("prices", subscription="fast", durable=True)
        producer = await session.producer("prices", window="10KB")
        reads = 0
        inner = store.read

        async def counted(path: str, start: int, end: int) -> bytes:
            nonlocal reads
            reads += 1
            return await inner(path, start, end)

        store.read = counted  # type: ignore[method-assign]
        sent = []
        for turn in range(25):
            bodies = [b"%06d" % (turn * ROUND + i) + BODY for i in range(ROUND)]
            await asyncio.gather(*(producer.send(body) for body in bodies))
            sent += bodies
            got = await drain(fast, ROUND)
            assert [message.body for message in got] == bodies
            now = await fields(prices)
            assert now["pending_bytes"] + now["leased_bytes"] + now["hot_bytes"] <= 200_000
        assert (await fields(prices))["spooled_bytes"] > 100_000
        assert reads == 0
        await lazy.configure(window=1000)
        assert [message.body for message in await drain(lazy, len(sent))] == sent
        assert reads > 0
        await asyncio.gather(lazy.flush(), fast.flush())

        async def empty() -> bool:
            now = await fields(prices)
            return not (now["pending_bytes"] or now["spooled_bytes"] or now["hot_bytes"])

        await wait_until(empty)


async def test_copies_for_the_others_take_an_eighth_of_the_limit_at_most(prices: headgate.Client) -> None:
    """Two who are behind keep copies alive, and memory does not grow. Mutant: lua/lib/hot.lua keeps all."""
    async with prices.session("slow") as slow, prices.session("s") as session:
        for name in ("a", "b"):
            await slow.consumer("prices", subscription=name, window="paused")
        producer = await session.producer("prices", window="10KB")
        await asyncio.gather(*(producer.send(BODY) for _ in range(1000)))
        now = await fields(prices)
        assert 0 < now["hot_bytes"] <= 25_000
        assert now["pending_bytes"] + now["leased_bytes"] + now["hot_bytes"] <= 200_000
        await prices.purge("prices")
        assert (await fields(prices))["hot_bytes"] == 0
        assert (await prices.recount("prices")).equal


async def test_orphans_of_the_dead_and_the_removed_are_swept(prices: headgate.Client, tmp_path: Path) -> None:
    """Mutant: `is_orphan` looks at the references first, or not at the session; or the sweep does not free."""
    spooling = prices.parts.registry.spooling
    spool = await spooling.spools.get("disk")
    async with prices.session("slow") as slow:
        await slow.consumer("prices", subscription="a", durable=True, window="paused")
        producer = await slow.producer("prices", window="10KB")
        await asyncio.gather(*(producer.send(BODY) for _ in range(500)))
        assert await spooling.sweeper.sweep_orphans(spool) == []  # every one of them is referred to
        held = (await prices.stores())[0]
        assert held.held == sum(objects(tmp_path))
        await prices.remove("prices")
    swept = await spooling.sweeper.sweep_orphans(spool)
    assert len(swept) == held.segments
    assert objects(tmp_path) == []
    assert (await prices.stores())[0].held == 0
    await prices.remove_store("disk")
    assert await prices.stores() == []
