"""Spooling on a cluster of three masters: destinations and their store are in slots of their own."""

import asyncio
from pathlib import Path

import pytest

import headgate
from tests.sdk.observing import drain
from tests.support.spooled import body, number_of, segments
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
NAMES = ("a", "b", "c", "d", "e", "f")


async def test_destinations_on_all_masters_share_a_store(
    cluster_url: str, cleanup_namespace: str, tmp_path: Path
) -> None:
    """Mutant: a script of the spool touches a key of another slot; the cluster would refuse it."""
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client, client.session("s") as session:
        await client.set_store("disk", tmp_path.as_uri(), limit="300KB", segment="16KiB")
        for name in NAMES:
            await client.apply(name, kind="queue", limit="20KB", when_full="spool", store="disk")
            producer = await session.producer(name)
            await asyncio.gather(*(producer.send(body(n), timeout=30) for n in range(50)))
        [store] = await client.stores()
        assert 100_000 < store.held <= 300_000
        assert store.held == await asyncio.to_thread(lambda: sum(path.stat().st_size for path in segments(tmp_path)))
        for name in NAMES:
            consumer = await session.consumer(name)
            assert [number_of(message.body) for message in await drain(consumer, 50)] == list(range(50))

        async def empty() -> bool:
            return not (await client.stores())[0].held and not await asyncio.to_thread(segments, tmp_path)

        await wait_until(empty, timeout=80, description="no segment is left")
        assert all([(await client.recount(name)).equal for name in NAMES])
        for name in NAMES:
            await client.remove(name)
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        await wait_until(lambda: _removed(client), timeout=80, description="the store can be removed")


async def _removed(client: headgate.Client) -> bool:
    await client.remove_store("disk")
    return await client.stores() == []
