"""Sends that are confirmed by the master, by a replica beside it, and by its disk, in turn."""

import asyncio
import statistics

import headgate
from bench.harness import Figure, Stopwatch
from headgate.errors import PolicyError
from tests.faults.deployments import pair

TASKS = 256
MESSAGES = 20_480
BODY = b"x" * 1024
LEVELS = ("memory", "replicas:1", "fsync")
LEAST_SHARE = 0.7


async def _send(producer: headgate.Producer, count: int) -> float:
    async def one() -> None:
        for _ in range(count // TASKS):
            await producer.send(BODY, timeout=60)

    with Stopwatch() as watch:
        await asyncio.gather(*(one() for _ in range(TASKS)))
    return count / watch.seconds


async def _alone(producer: headgate.Producer, count: int) -> float:
    """Return the milliseconds that one send takes of which nobody else sends another."""
    times = []
    for _ in range(count):
        with Stopwatch() as watch:
            await producer.send(BODY, timeout=60)
        times.append(watch.seconds * 1000)
    return statistics.median(times)


async def measure(*, quick: bool) -> list[Figure]:
    """Return sends/s by durability, their share of those in memory, and the time of one send alone."""
    count, rounds = (MESSAGES // 4, 3) if quick else (MESSAGES, 7)
    rates: dict[str, list[float]] = {}
    alone: dict[str, list[float]] = {}
    with pair(appendonly="yes", appendfsync="always") as (master, _):
        async with headgate.connect(master.url) as client, client.session("bench") as session:
            producers = {}
            for level in LEVELS:
                try:
                    producers[level] = await session.producer(level.replace(":", "-"), durability=level)
                except PolicyError:  # a Redis without WAITAOF
                    continue
                rates[level], alone[level] = [], []
            for turn in range(rounds + 1):
                for level, producer in producers.items():
                    rate, one = await _send(producer, count), await _alone(producer, count // 100)
                    await client.purge(producer.destination)
                    if turn:  # the first warms up
                        rates[level].append(rate)
                        alone[level].append(one)
    figures = []
    for level, found in rates.items():
        figures.append(Figure.typical(f"send 1 KiB, {level}", found, "1/s"))
        if level != "memory":
            share = [one / other for one, other in zip(found, rates["memory"], strict=True)]
            figures.append(Figure.typical("  share of sends in memory", share, "", at_least=LEAST_SHARE))
        figures.append(Figure.typical(f"  one alone, {level}", alone[level], "ms"))
    return figures
