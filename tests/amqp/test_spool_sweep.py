"""Nodes delete segments that nobody else does."""

import asyncio
from pathlib import Path

import pytest

import headgate
from headgate.core.segment import Reference
from headgate.redis.keys import Address
from headgate_coordinator.service import spool_sweep
from headgate_coordinator.service.spool_sweep import LEASE, SpoolSweep
from tests.amqp.conftest import StartNode
from tests.sdk.observing import drain, look
from tests.support.spooled import body, fill, references, segments, spooling, swept
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def left_alone(redis_url: str, namespace: str, folder: Path, *, take: int = 60) -> None:
    """Spool, and settle so many of 60 messages, by clients that are gone before they sweep."""
    for count in (60, 0):
        async with headgate.connect(redis_url, namespace=namespace) as client:
            client.parts.registry.spooling.sweeper._watched = Nothing()
            if count:
                await spooling(client, folder)
                await fill(client, count)
            else:
                async with client.session("taker") as session:
                    await drain(await session.consumer("orders"), take)
    assert segments(folder)


class Nothing(dict):  # type: ignore[type-arg]
    """Keeps nothing: what a sweeper that has no time has to watch."""

    def __setitem__(self, key: object, value: object) -> None:
        pass


async def orders() -> list[str]:
    return ["orders"]


async def test_spent_segments_of_what_nobody_uses_are_deleted(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, tmp_path: Path
) -> None:
    """And no others. Breaks when a round does not look at what is spooled, or deletes what is not spent."""
    await left_alone(redis_url, cleanup_namespace, tmp_path, take=40)
    before = segments(tmp_path)
    await SpoolSweep(client, "n", orders).spent()
    needed = {Reference.parse(stored).name for stored in await references(client)}
    assert {path.name for path in segments(tmp_path)} == needed
    assert 0 < len(needed) < len(before)
    assert [message.body async for message in client.browse("orders")] == [body(n) for n in range(40, 60)]
    async with client.session("t") as session:
        await drain(await session.consumer("orders"), 20)
    await SpoolSweep(client, "n", orders).spent()
    assert segments(tmp_path) == []
    assert (await look(client, "orders")).fields.get("spooled_bytes", "0") == "0"


async def test_segments_that_belong_to_nobody_are_deleted(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, tmp_path: Path
) -> None:
    """Breaks when no node looks for orphans."""
    await left_alone(redis_url, cleanup_namespace, tmp_path, take=10)
    await client.remove("orders")
    await SpoolSweep(client, "n", orders).orphans()
    assert segments(tmp_path) == []
    store = client.parts.registry.spooling.spools.address("disk")
    count = await client.store.recount(store)
    assert (count.equal, count.stored[0]) == (True, 0)


async def test_one_node_at_a_time_looks_for_orphans(client: headgate.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when each does, or none goes on for one that stopped."""
    monkeypatch.setattr(spool_sweep, "EVERY", 0.05)
    sweeps = [SpoolSweep(client, f"node{n}", orders) for n in range(3)]
    tasks = [asyncio.create_task(sweep.run()) for sweep in sweeps]
    try:
        for _ in range(2):
            await wait_until(lambda: any(sweep.leads for sweep in sweeps))
            leading = [n for n, sweep in enumerate(sweeps) if sweep.leads]
            assert len(leading) == 1
            tasks[leading[0]].cancel()
            await asyncio.gather(tasks[leading[0]], return_exceptions=True)
            sweeps[leading[0]].leads = False
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert LEASE == "!spool"


async def test_a_store_that_fails_does_not_hold_up_others(
    client: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks when a destination whose store does not answer ends the round."""
    asked: list[str] = []

    async def sweep(address: Address) -> int:
        asked.append(address.name)
        raise headgate.SpoolUnavailable("file://here", "delete", "x", "no answer")

    async def both() -> list[str]:
        return ["one", "two"]

    for name in ("one", "two"):
        await spooling(client, tmp_path, name)
        await fill(client, 60, name)
    monkeypatch.setattr(client.parts.registry.spooling.sweeper, "sweep", sweep)
    await SpoolSweep(client, "n", both).spent()
    assert asked == ["one", "two"]


async def test_a_node_does_so(
    redis_url: str, cleanup_namespace: str, client: headgate.Client, start_node: StartNode, tmp_path: Path
) -> None:
    folder = tmp_path / "store"
    await left_alone(redis_url, cleanup_namespace, folder)
    start_node()
    await swept(folder)
