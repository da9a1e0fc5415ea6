"""Segments in S3."""

import asyncio
from collections.abc import Iterator

import pytest

import headgate
from headgate.errors import SpoolUnavailable
from headgate.redis.keys import Address
from headgate.spool.storage import Storage
from tests.sdk.spool.s3 import s3_server
from tests.sdk.spooling import received, sent
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture(scope="module")
def bucket() -> Iterator[str]:
    import s3fs  # type: ignore[import-untyped]

    with s3_server():
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("headgate")
        yield "s3://headgate/spool"
        s3fs.S3FileSystem.clear_instance_cache()


async def test_objects_are_written_read_listed_and_deleted(bucket: str) -> None:
    storage = await asyncio.to_thread(Storage, bucket, marker="ns/.headgate")
    with pytest.raises(SpoolUnavailable, match="mount that"):
        await storage.write("ns/orders/s1", b"0123456789")
    await storage.mark()
    await storage.write("ns/orders/s1", b"0123456789")
    assert await storage.read("ns/orders/s1", 2, 5) == b"234"
    assert await storage.read("ns/orders/s1", 8, 100) == b"89", "as much as there is"
    assert await storage.read("ns/orders/s1", 10, 20) == b"", "it was cut short"
    assert await storage.listing("ns") == {"ns/orders/s1": 10}
    with pytest.raises(FileNotFoundError):
        await storage.read("ns/orders/s2", 0, 5)
    await storage.delete(["ns/orders/s1", "ns/orders/s2"])
    await storage.delete(["ns/orders/s1"])
    assert await storage.listing("ns") == {}
    await storage.delete(["ns/.headgate"])
    storage.close()


async def test_messages_go_through_s3(client: headgate.Client, bucket: str) -> None:
    await client.set_store("cloud", bucket, limit="10MB", segment="64KiB")
    await client.apply("orders", limit="64KiB", when_full="spool", store="cloud")
    spool = await client.parts.registry.spooling.spools.get("cloud")
    async with client.session("s") as session:
        await sent(await session.producer("orders"), 200)
        assert sum((await spool.storage.listing("")).values()) > 100_000
        assert await received(await session.consumer("orders"), 200) == list(range(200))
        store = Address.of_store(client.namespace, "cloud")

        async def empty() -> bool:
            return (await client.store.recount(store)).stored[0] == 0

        await wait_until(empty)
    assert await spool.storage.listing("") == {}
