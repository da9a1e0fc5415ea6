"""A queue with slices beside the same queue with one, on a cluster of three masters: who works how much.

    python -m bench.beside.slices [--sessions 64] [--seconds 8] [--size 1024] [--slices 1 3 12] [--out FILE]

Sessions send, and a consumer accepts, in this process; the servers are private ones. It prints, for each number of
slices: messages through a second, the fullest slice over the mean, processor time of Redis for a message and how it is
shared by the masters, and the longest that a waiting consumer stood beside a message that had been stored.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

import redis.asyncio

import headgate
from headgate.core.names import slice_name
from headgate.redis.keys import Address
from tests.support.cluster import RedisCluster3


async def cpu(urls: list[str]) -> list[float]:
    """Return the seconds of processor that each server has used."""
    used = []
    for url in urls:
        async with redis.asyncio.Redis.from_url(url) as direct:
            seen = await direct.info("cpu")
            used.append(float(seen["used_cpu_user"]) + float(seen["used_cpu_sys"]))
    return used


async def published(client: headgate.Client, slices: int) -> list[int]:
    """Return how many messages each slice ever had."""
    found = []
    for number in range(slices):
        key = Address.of(client.namespace, slice_name("orders", number)).shared[0]
        found.append(int(await client.store.server.command(key, "HGET", key, "message_seq") or 0))
    return found


async def through(urls: list[str], slices: int, sessions: int, seconds: float, size: int) -> dict[str, Any]:
    """Send and accept for some seconds."""
    async with (
        headgate.connect(urls[0], namespace=f"bench-{slices}") as out,
        headgate.connect(urls[0], namespace=f"bench-{slices}") as into,
    ):
        await out.apply("orders", kind="queue", limit="64MiB", slices=slices)
        opened = [out.session(f"s{number}") for number in range(sessions)]
        producers = [await session.producer("orders", window="64KiB") for session in opened]
        receiving = into.session("in")
        consumer = await receiving.consumer("orders", window=4000)
        received, expected, all_there = 0, 1 << 62, asyncio.Event()

        async def consume() -> None:
            nonlocal received
            async for message in consumer:
                await message.accept()
                received += 1
                if received >= expected:
                    all_there.set()

        async def send(producer: headgate.Producer, body: bytes) -> int:
            count = 0
            while time.monotonic() < until:
                for receipt in await asyncio.gather(*(producer.send(body) for _ in range(16))):
                    count += not receipt.dropped
            return count

        consuming = asyncio.create_task(consume())
        warm = await asyncio.gather(*(producer.send(bytes(size)) for producer in producers))
        until = time.monotonic() + seconds
        before, began = await cpu(urls), time.monotonic()
        sent = sum(await asyncio.gather(*(send(producer, bytes(size)) for producer in producers)))
        expected = len(warm) + sent
        if received < expected:
            await all_there.wait()
        took = time.monotonic() - began
        used = [after - earlier for after, earlier in zip(await cpu(urls), before, strict=True)]
        consuming.cancel()
        shares = await published(out, slices)
        waits = await idle(opened, consumer)
        await out.remove("orders")
        await receiving.close()
        return {
            "slices": slices,
            "masters": len(urls),
            "sessions": sessions,
            "size": size,
            "messages_per_second": round(sent / took),
            "fullest_over_mean": round(max(shares) * slices / sum(shares), 3),
            "redis_us_per_message": round(1e6 * sum(used) / sent, 1),
            "processor_share": [round(one / sum(used), 3) for one in used],
            "idle_beside_message_ms": waits,
        }


async def idle(sessions: list[headgate.Session], consumer: headgate.Consumer) -> dict[str, float]:
    """Return how long a consumer that waits stands beside a message that is stored, at whichever slice."""
    took = []
    for session in sessions:
        producer = await session.producer("orders")
        getting = asyncio.create_task(consumer.receive())
        await asyncio.sleep(0.02)
        await producer.send(b"one")
        stored = time.perf_counter()
        message = await getting
        took.append(max(0.0, time.perf_counter() - stored) * 1000)
        if message is not None:
            await message.accept(confirm=True)
    return {"median": round(sorted(took)[len(took) // 2], 2), "longest": round(max(took), 2)}


async def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    rows = []
    cluster = await asyncio.to_thread(RedisCluster3.start)
    try:
        for slices in options.slices:
            rows.append(await through(cluster.urls, slices, options.sessions, options.seconds, options.size))
            print(json.dumps(rows[-1]), flush=True)
    finally:
        cluster.stop()
    if options.out:
        options.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 3, 12])
    parser.add_argument("--out", type=Path)
    asyncio.run(main(parser.parse_args()))
