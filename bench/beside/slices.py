"""A queue or a topic with slices beside the same with one, on a cluster of three masters: who works how much.

    python -m bench.beside.slices [--sessions 64] [--seconds 8] [--size 1024] [--slices 1 3 12] [--kind topic]
        [--single] [--out FILE]

Sessions send, and a consumer accepts, in this process; the servers are private ones. Beside the numbers of slices stand
three queues without slices, one at each master, with the same load: what three servers cost that share it, for each
wakes up for less at a time. With ``--single`` there is one server: what slices cost by themselves. It prints, for each:
messages through a second, the fullest slice over the mean, processor time of Redis for a message and how it is
shared by the masters, and the longest that a waiting consumer stood beside a message that had been stored.
"""

import argparse
import asyncio
import contextlib
import itertools
import json
import time
from pathlib import Path
from typing import Any

import redis.asyncio

import headgate
from headgate.core.names import slice_name
from headgate.redis.keys import SLOTS, Address, slot_of
from tests.support.cluster import RedisCluster3
from tests.support.servers import RedisServer, newest_server


async def cpu(urls: list[str]) -> list[float]:
    """Return the seconds of processor that each server has used."""
    used = []
    for url in urls:
        async with redis.asyncio.Redis.from_url(url) as direct:
            seen = await direct.info("cpu")
            used.append(float(seen["used_cpu_user"]) + float(seen["used_cpu_sys"]))
    return used


async def published(client: headgate.Client, names: list[str]) -> list[int]:
    """Return how many messages each of these, a destination or a slice of one, ever had."""
    found = []
    for name in names:
        key = Address.of(client.namespace, name).shared[0]
        found.append(int(await client.store.server.command(key, "HGET", key, "message_seq") or 0))
    return found


def apart(namespace: str, count: int) -> list[str]:
    """Return names of destinations that lie evenly on the ring."""
    places: dict[int, str] = {}
    for number in range(10_000):
        name = f"orders-{number}"
        places.setdefault(slot_of(f"{namespace}/{name}") * count // SLOTS, name)
    return [places[place] for place in range(count)]


async def through(urls: list[str], slices: int, queues: int, options: argparse.Namespace) -> dict[str, Any]:
    """Send and accept for some seconds."""
    sessions, seconds, size = options.sessions, options.seconds, options.size
    async with (
        headgate.connect(urls[0], namespace=f"bench-{slices}") as out,
        headgate.connect(urls[0], namespace=f"bench-{slices}") as into,
    ):
        names = ["orders"] if queues == 1 else apart(out.namespace, queues)
        for name in names:
            await out.apply(name, kind=options.kind, limit=(options.limit << 20) // queues, slices=slices)
        opened = [out.session(f"s{number}") for number in range(sessions)]
        turns = itertools.cycle(names)
        producers = [await session.producer(next(turns), window="64KiB") for session in opened]
        receiving = into.session("in")
        consumers = [await receiving.consumer(name, window=4000 // queues, kind=options.kind) for name in names]
        received, expected, all_there = 0, 1 << 62, asyncio.Event()

        async def consume(consumer: headgate.Consumer) -> None:
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

        consuming = [asyncio.create_task(consume(consumer)) for consumer in consumers]
        warm = await asyncio.gather(*(producer.send(bytes(size)) for producer in producers))
        until = time.monotonic() + seconds
        before, began = await cpu(urls), time.monotonic()
        sent = sum(await asyncio.gather(*(send(producer, bytes(size)) for producer in producers)))
        expected = len(warm) + sent
        if received < expected:
            await all_there.wait()
        took = time.monotonic() - began
        used = [after - earlier for after, earlier in zip(await cpu(urls), before, strict=True)]
        for task in consuming:
            task.cancel()
        parts = names if slices == 1 else [slice_name("orders", number) for number in range(slices)]
        shares = await published(out, parts)
        waits = await idle(opened, consumers[0]) if queues == 1 else {}
        for name in names:
            await out.remove(name)
        await receiving.close()
        return {
            "kind": options.kind,
            "slices": slices,
            "queues": queues,
            "masters": len(urls),
            "sessions": sessions,
            "size": size,
            "messages_per_second": round(sent / took),
            "fullest_over_mean": round(max(shares) * len(shares) / sum(shares), 3),
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
    with contextlib.ExitStack() as stack:
        if options.single:
            urls = [stack.enter_context(RedisServer.start(newest_server(), persist=False)).url]
        else:
            urls = (cluster := await asyncio.to_thread(RedisCluster3.start)).urls
            stack.callback(cluster.stop)
        for slices, queues in [*((count, 1) for count in options.slices), *(() if options.single else [(1, 3)])]:
            rows.append(await through(urls, slices, queues, options))
            print(json.dumps(rows[-1]), flush=True)
    if options.out:
        options.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--slices", type=int, nargs="+", default=[1, 3, 12])
    parser.add_argument("--limit", type=int, default=64, help="MiB")
    parser.add_argument("--kind", choices=("queue", "topic"), default="queue")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--out", type=Path)
    asyncio.run(main(parser.parse_args()))
