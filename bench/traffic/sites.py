"""A pool over two sites: how long a part takes to draw what it lacks, and what is stranded when it is cut off."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import headgate
from bench.harness import Figure, at_most, percentile, private_client
from headgate._util.tasks import stop
from headgate.policy import loads
from headgate.redis.keys import Address
from headgate_coordinator.links.sites import Sites
from headgate_coordinator.pools.supervisor import PoolSupervisor
from headgate_coordinator.security.policy_reach import PolicyReach

DRAWS = 15
BYTES = 8_000_000
MOST = 512 << 20
CUTS = 5
QUEUES = 4
RATE = 200
"""Messages of 1 KiB a second into each queue, before a cut."""
TTL = 5.0
SETTLING = 10.0
"""Seconds after which what the draws have left is back."""
POOLED = 'destination = [{ match = "#", kind = "queue", pools = ["tenant"] }]\n'


@asynccontextmanager
async def _sites() -> AsyncIterator[tuple[headgate.Client, headgate.Client]]:
    """Yield the home and a site, each with a Redis of its own; nodes' work on the pool is done in this process."""
    async with AsyncExitStack() as stack:
        (home, one), (there, other) = [await stack.enter_async_context(private_client()) for _ in range(2)]
        paths = [server.url.removeprefix("unix://").split("?")[0] for server in (one, other)]
        pool = f'[[pool]]\nname = "tenant"\nlimit = "1GiB"\nsites = {{ there = {MOST} }}\n'
        await home.apply_policy(loads(f'site_name = "home"\n{POOLED}{pool}', "home"))
        site = f'[[site]]\nname = "home"\nurl = "{one.url}"\nnamespace = "{home.namespace}"\n'
        await there.apply_policy(
            loads(f'site_name = "there"\n{POOLED}{site}[[pool]]\nname = "tenant"\nsite = "home"\n', "there")
        )
        for client in (home, there):
            reached = Sites(client.namespace, PolicyReach(hosts=tuple(paths)))
            stack.push_async_callback(reached.close)
            node = PoolSupervisor(client, "node~00000001", reached, ttl=TTL)
            await node.start()
            stack.push_async_callback(node.close)
        yield home, there


async def measure(*, quick: bool) -> list[Figure]:
    """Return seconds of a send whose site has to draw first, and what a cut strands beside what is in use."""
    async with _sites() as (home, there):
        draws = [await _draw(there, number) for number in range(DRAWS // 3 if quick else DRAWS)]
        await _emptied(there, [f"drawn-{number}" for number in range(len(draws))])
        await asyncio.sleep(SETTLING)
        cuts = [await _stranded(home, there) for _ in range(1 if quick else CUTS)]
    return [
        at_most(f"a send of {BYTES // 1_000_000} MB that has to draw, p50", [percentile(draws, 0.5)], "s"),
        at_most("  the slowest", [max(draws)], "s"),
        at_most(f"held beyond what is in use, {QUEUES} queues at {RATE} messages/s", [kib for kib, _ in cuts], "KiB"),
        at_most("  in use there", [kib for _, kib in cuts], "KiB"),
    ]


async def _draw(there: headgate.Client, number: int) -> float:
    async with there.session("sender") as session:
        producer = await session.producer(f"drawn-{number}")
        began = time.perf_counter()
        await producer.send(b"x" * BYTES, timeout=60)
        return time.perf_counter() - began


async def _emptied(there: headgate.Client, names: list[str]) -> None:
    async with there.session("receiver") as session:
        for name in names:
            consumer = await session.consumer(name)
            while await _used(there, name):
                if (message := await consumer.receive(timeout=1)) is not None:
                    await message.accept(confirm=True)


async def _stranded(home: headgate.Client, there: headgate.Client) -> tuple[float, float]:
    """Return KiB that a site holds and does not use at one moment under load, and KiB that it uses."""
    names = [f"busy-{number}" for number in range(QUEUES)]
    async with there.session("busy") as session:
        working = [asyncio.create_task(_work(session, name)) for name in names]
        await asyncio.sleep(5)
        (pool,) = await home.pools()
        held = sum(site.held for site in pool.sites)
        used = sum([await _used(there, name) for name in names])
        for task in working:
            await stop(task)
    await _emptied(there, names)
    return (held - used) / 1024, used / 1024


async def _work(session: headgate.Session, name: str) -> None:
    producer, consumer = await session.producer(name), await session.consumer(name)
    while True:
        began = time.perf_counter()
        for _ in range(10):
            await producer.send(b"x" * 1024, timeout=60)
        for _ in range(10):
            with suppress(headgate.HeadgateError):
                if (message := await consumer.receive(timeout=1)) is not None:
                    await message.accept()
        await asyncio.sleep(max(0.0, 10 / RATE - (time.perf_counter() - began)))


async def _used(client: headgate.Client, name: str) -> int:
    key = Address.of(client.namespace, name).key
    counters = await client.store.server.command(key.encode(), "HMGET", key, "pending_bytes", "leased_bytes")
    return sum(int(number or 0) for number in counters)
