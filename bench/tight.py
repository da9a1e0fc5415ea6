"""A tight limit and many uneven producers: is the consumer kept busy, and is the limit kept to the byte?"""

import asyncio
import random
import time

import headgate
from bench.harness import Figure, at_least, at_most, private_client

LIMIT = 1 << 20
PRODUCERS = 64
WORK = 0.0005
"""Seconds the consumer needs a message: the bottleneck that the producers have to keep busy."""


async def _run(client: headgate.Client, name: str, producers: int, seconds: float) -> tuple[float, float]:
    """Return messages a second and the share of the time in which the consumer had something to do."""
    await client.apply(name, limit=LIMIT)
    stop = asyncio.Event()
    sizes = random.Random(7)  # noqa: S311  (the same sizes every time)
    bodies = [b"x" * int(80 * (60_000 / 80) ** sizes.random()) for _ in range(1000)]
    sessions = [client.session(f"producer-{number}") for number in range(producers)]
    busy = idle = 0.0
    count = 0

    async def produce(number: int) -> None:
        producer = await sessions[number].producer(name)
        at = number * 13
        while not stop.is_set():
            try:
                await producer.send(bodies[at % 1000], timeout=10)
            except headgate.HeadgateError:
                break
            at += 1
            if number % 4 == 3:
                await asyncio.sleep(0.05)  # a quarter of them are slow

    tasks = [asyncio.create_task(produce(number)) for number in range(producers)]
    async with client.session("consumer") as session:
        consumer = await session.consumer(name, window=headgate.Window(messages=100, bytes="256KiB"))
        await consumer.receive(timeout=10)
        began = time.perf_counter()
        while time.perf_counter() - began < seconds:
            waited = time.perf_counter()
            message = await consumer.receive(timeout=5)
            got = time.perf_counter()
            idle += got - waited
            if message is None:
                break
            while time.perf_counter() - got < WORK:
                await asyncio.sleep(0)
            busy += time.perf_counter() - got
            await message.accept()
            count += 1
        took = time.perf_counter() - began
        stop.set()
        await asyncio.gather(*(s.close() for s in sessions))
        await asyncio.gather(*tasks, return_exceptions=True)
    return count / took, busy / (busy + idle)


async def measure(*, quick: bool) -> list[Figure]:
    """Return how busy the consumer was, messages/s beside a single producer, and bytes above the limit."""
    seconds = 2.0 if quick else 5.0
    async with private_client() as (client, _):
        one, _ = await _run(client, "one", 1, seconds)
        many, busy = await _run(client, "many", PRODUCERS, seconds)
        peak = int((await client.explain("many")).fields["peak_bytes"])
    return [
        at_least("consumer busy, 64 uneven producers on 1 MiB", [busy], "", 0.95),
        at_least("messages/s beside one producer", [many / one], "", 0.9),
        at_most("bytes above the limit", [max(0, peak - LIMIT)], "B", 0),
    ]
