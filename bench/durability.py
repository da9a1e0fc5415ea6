"""Sends that are confirmed by the master, by a replica beside it, and by its disk.

Rounds are short, many and paired: in each, all levels have their turn within a second, every other round in reverse, so
that what else the machine does bears on all of them. The share is the median of the rounds' shares.
"""

import asyncio
import statistics
from contextlib import AsyncExitStack, suppress

import headgate
from bench.harness import Figure, Stopwatch
from headgate.errors import PolicyError
from tests.faults.deployments import pair

TASKS = 256
MESSAGES = 1_024
ROUNDS = 60
BODY = b"x" * 1024
LEVELS = (
    ("memory", "memory", "everysec"),
    ("replicas:1", "replicas:1", "everysec"),
    ("memory, appendfsync always", "memory", "always"),
    ("fsync, appendfsync always", "fsync", "always"),
)
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
    """Return sends/s by durability, their share of those in memory, and the time of one send alone.

    Memory is that of a Redis as it is set up by default, which syncs the disk once a second; one that does so
    before each answer, as `fsync` wants it, is slower for all.
    """
    rounds = ROUNDS // 10 if quick else ROUNDS
    rates: dict[str, list[float]] = {}
    alone: dict[str, list[float]] = {}
    async with AsyncExitStack() as stack:
        servers = {
            fsync: stack.enter_context(pair(appendonly="yes", appendfsync=fsync))[0] for fsync in ("everysec", "always")
        }
        producers = {}
        for name, level, fsync in LEVELS:
            client = await stack.enter_async_context(headgate.connect(servers[fsync].url))
            session = await stack.enter_async_context(client.session("bench"))
            with suppress(PolicyError):  # a Redis without WAITAOF
                producers[name] = client, await session.producer("sends", durability=level)
                rates[name], alone[name] = [], []
        for turn in range(rounds + 1):
            for name, (client, producer) in list(producers.items())[:: 1 if turn % 2 else -1]:
                rate, one = await _send(producer, MESSAGES), await _alone(producer, 5)
                await client.purge(producer.destination)
                if turn:  # the first warms up
                    rates[name].append(rate)
                    alone[name].append(one)
    figures = []
    for name, found in rates.items():
        figures.append(Figure.typical(f"send 1 KiB, {name}", found, "1/s"))
        if name != "memory":
            share = [one / other for one, other in zip(found, rates["memory"], strict=True)]
            asked = None if name.startswith("memory") else LEAST_SHARE
            figures.append(Figure.typical("  share of sends in memory", share, "", at_least=asked))
        figures.append(Figure.typical(f"  one alone, {name}", alone[name], "ms"))
    return figures
