"""Much through little memory: what is spooled is in neither Redis nor the process, however much it is."""

import asyncio
from pathlib import Path

import pytest

import headgate
from headgate.redis.keys import Address
from tests.sdk.observing import field
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SIZE = 16 << 10
SENDERS = 64


def resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".headgate"]


async def through(client: headgate.Client, folder: Path, *, total: int, limit: int, growth: int) -> None:
    """Send so much, and receive it after that, in order; memory of Redis and process stays below what is said."""
    count = total // SIZE
    await client.set_store("disk", folder.as_uri(), limit="unlimited")
    await client.apply("orders", limit=limit, when_full="spool", store="disk")
    before = peak = resident()
    numbers = iter(range(count))
    async with client.session("in") as into, client.session("out") as out:
        producer = await into.producer("orders")

        async def send() -> None:
            nonlocal peak
            for number in numbers:
                await producer.send(b"%08d" % number + bytes(SIZE - 8), timeout=600)
                peak = max(peak, resident()) if number % 64 == 0 else peak

        await asyncio.gather(*(send() for _ in range(SENDERS)))
        assert await field(client, "orders", "peak_bytes") <= limit
        assert await field(client, "orders", "spooled_bytes") > total - limit
        consumer = await out.consumer("orders", window=headgate.Window(messages="unlimited", bytes=4 << 20))
        for expected in range(count):
            message = await consumer.receive(timeout=60)
            assert message is not None
            assert int(message.body[:8]) == expected
            assert len(message.body) == SIZE
            await message.accept()
            peak = max(peak, resident()) if expected % 64 == 0 else peak
        await consumer.flush(timeout=60)
        assert peak - before < growth, f"the process grew by {(peak - before) >> 20} MiB"
        store = Address.of_store(client.namespace, "disk")

        async def empty() -> bool:
            return (await client.store.recount(store)).stored[0] == 0

        await wait_until(empty, timeout=240)
    assert await asyncio.to_thread(files, folder) == []


@pytest.mark.whole
async def test_64_mib_go_through_1_mib_of_memory(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: `Reader` forgets no piece."""
    await through(client, tmp_path, total=64 << 20, limit=1 << 20, growth=48 << 20)


@pytest.mark.soak
@pytest.mark.timeout(900)
async def test_1_gib_goes_through_16_mib_of_memory(client: headgate.Client, tmp_path: Path) -> None:
    await through(client, tmp_path, total=1 << 30, limit=16 << 20, growth=96 << 20)
