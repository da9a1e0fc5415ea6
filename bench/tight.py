"""A tight limit and many uneven producers in several processes: is the consumer kept busy, and the limit kept?"""

import asyncio
import random
import sys
import time
from asyncio.subprocess import Process

import headgate
from bench.harness import Figure, at_least, at_most, private_client

LIMIT = 1 << 20
PRODUCERS = 64
PROCESSES = 4
WORK = 0.001
"""Seconds the consumer spends on a message: the bottleneck that the producers have to keep busy."""


def bodies() -> list[bytes]:
    """Return the messages everybody sends: 80 B to 60 kB, small ones more often, the same every time."""
    sizes = random.Random(7)
    return [b"x" * int(80 * (60_000 / 80) ** sizes.random()) for _ in range(1000)]


async def produce(url: str, name: str, first: int, count: int) -> None:
    """Send from ``count`` sessions until ordered to end: a quarter of them slowly."""
    messages = bodies()

    async def one(number: int) -> None:
        async with client.session(f"producer-{number}") as session:
            producer = await session.producer(name)
            at = number * 13
            while True:
                await producer.send(messages[at % 1000])
                at += 1
                if number % 4 == 3:
                    await asyncio.sleep(0.05)

    async with headgate.connect(url) as client:
        tasks = [asyncio.create_task(one(number)) for number in range(first, first + count)]
        await asyncio.to_thread(sys.stdin.readline)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _start(url: str, name: str, first: int, count: int) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.tight", url, name, str(first), str(count), stdin=asyncio.subprocess.PIPE
    )


async def _run(client: headgate.Client, url: str, name: str, producers: int, seconds: float) -> tuple[float, float]:
    """Return messages a second and the share of the time in which the consumer had something to do."""
    await client.apply(name, limit=LIMIT)
    each = max(1, producers // PROCESSES)
    processes = [await _start(url, name, first, each) for first in range(0, producers, each)]
    busy = idle = 0.0
    count = 0
    async with client.session("consumer") as session:
        consumer = await session.consumer(name, window=headgate.Window(messages=100, bytes="256KiB"))
        began = time.perf_counter()
        while time.perf_counter() - began < seconds + 1.0:
            waited = time.perf_counter()
            message = await consumer.receive(timeout=5)
            got = time.perf_counter()
            if message is None:
                break
            await asyncio.sleep(WORK)
            await message.accept()
            if waited - began > 1.0:  # by then everybody has started
                idle += got - waited
                busy += time.perf_counter() - got
                count += 1
        for process in processes:
            if process.stdin:
                process.stdin.write(b"\n")
        await _drain(consumer)
        await asyncio.gather(*(process.wait() for process in processes))
    return count / (busy + idle), busy / (busy + idle)


async def _drain(consumer: headgate.Consumer) -> None:
    while message := await consumer.receive(timeout=0.3):
        await message.accept()


async def measure(*, quick: bool) -> list[Figure]:
    """Return how busy the consumer was, messages/s beside a single producer, and bytes above the limit."""
    seconds = 2.0 if quick else 5.0
    async with private_client() as (client, server):
        one, _ = await _run(client, server.url, "one", 1, seconds)
        many, busy = await _run(client, server.url, "many", PRODUCERS, seconds)
        peak = int((await client.explain("many")).fields["peak_bytes"])
    return [
        at_least("consumer busy, 64 uneven producers on 1 MiB", [busy], "", 0.95),
        at_least("messages/s beside one producer", [many / one], "", 0.9),
        at_most("bytes above the limit", [max(0, peak - LIMIT)], "B", 0),
    ]


if __name__ == "__main__":
    asyncio.run(produce(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
