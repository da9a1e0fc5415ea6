"""kill -9 at every step of write, read and delete: what had a receipt is there once, and the sweeps leave nothing.

Mutant: `is_orphan` says no.
"""

import asyncio
import os
import signal
from pathlib import Path

import pytest

import headgate
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD
from tests.sdk.spool_crash import BODY, STEPS, WRITES
from tests.sdk.spooling import number_of
from tests.support.extent import share_of
from tests.support.forked import PIPE, Forked
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
async def orders(client: headgate.Client, tmp_path: Path) -> headgate.Client:
    await client.set_store("disk", tmp_path.as_uri(), limit="10MB", segment="8KiB")
    await client.apply("orders", limit="64KiB", when_full="spool", store="disk")
    return client


async def crashed(url: str, namespace: str, step: str, calls: int) -> list[int]:
    """Let a process die at a step; returns what it said before."""
    process = Forked("tests.sdk.spool_crash", url, namespace, step, str(calls), environment=os.environ, stdout=PIPE)
    assert process.stdout is not None
    with process:
        text = await asyncio.to_thread(process.stdout.read)
        assert await asyncio.to_thread(process.wait, GUARD) == -signal.SIGKILL
    return sorted(int(line) for line in text.splitlines())


def objects(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.name != ".headgate"]


async def agreed(client: headgate.Client, folder: Path) -> None:
    """Wait until the dead are forgotten, and after both sweeps nothing is left."""
    spooling = client.parts.registry.spooling
    spool = await spooling.spools.get("disk")
    queue, store = Address.of(client.namespace, "orders"), Address.of_store(client.namespace, "disk")

    async def empty() -> bool:
        for address in (queue, store):
            await client.store.reap(address)
        await spooling.sweeper.sweep(queue)
        await spooling.sweeper.sweep_orphans(spool)
        counts = [await client.store.recount(address) for address in (queue, store)]
        assert all(count.equal for count in counts), counts
        return not any(count.stored[0] or count.stored[2] for count in counts) and not objects(folder)

    await wait_until(empty, timeout=2 * GUARD, description="stream, store and storage are empty")
    assert await spooling.spools.calls.segments(queue) == {}


async def left(client: headgate.Client) -> list[int]:
    """Receive and accept all that there is."""
    numbers: list[int] = []
    async with client.session("after", ttl="5s") as session:
        consumer = await session.consumer("orders")

        async def gone() -> bool:
            while message := await consumer.receive(timeout=0.05):
                numbers.append(number_of(message))
                assert message.body[6:] == BODY
                await message.accept()
            await consumer.flush()
            await client.store.reap(Address.of(client.namespace, "orders"))
            return (await client.recount("orders")).stored[1] == 0

        await wait_until(gone, timeout=2 * GUARD)
    return numbers


async def check(client: headgate.Client, url: str, folder: Path, step: str, calls: int) -> None:
    if step in WRITES:
        receipts = await crashed(url, client.namespace, step, calls)
        numbers = await left(client)
        assert numbers == sorted(set(numbers)), "each once, in order"
        assert set(receipts) <= set(numbers), "what had a receipt is there"
        assert len(numbers) - len(receipts) <= 8, "and of the others those that were under way at the most"
    else:
        # A client of its own, which sweeps nothing any more when the other begins.
        async with headgate.connect(url, namespace=client.namespace) as before, before.session("before") as session:
            producer = await session.producer("orders")
            await asyncio.gather(*(producer.send(f"{n:06d}{BODY}", timeout=60) for n in range(150)))
        accepted = await crashed(url, client.namespace, step, calls)
        numbers = await left(client)
        assert not set(numbers) & set(accepted), "what was accepted does not come again"
        assert len(set(range(150)) - set(numbers) - set(accepted)) <= 20, "but for what was accepted and not said"
        assert len(numbers) == len(set(numbers))
    await agreed(client, folder)


@pytest.mark.parametrize("step", share_of(STEPS, 2))
async def test_a_process_that_dies_at_a_step_of_spooling(
    orders: headgate.Client, redis_url: str, tmp_path: Path, step: str
) -> None:
    await check(orders, redis_url, tmp_path, step, 2 if step in WRITES else 1)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("step", STEPS)
async def test_processes_die_at_many_calls_of_a_step(
    orders: headgate.Client, redis_url: str, tmp_path: Path, step: str
) -> None:
    for calls in (1, 2, 3, 5, 8) if step in WRITES else (1,) * 5:  # reads and deletions are few: a whole segment each
        await check(orders, redis_url, tmp_path, step, calls)
