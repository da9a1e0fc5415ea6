"""How soon a deadlock over two sessions is found and ended, and what looking for deadlocks costs when there is none."""

import asyncio
import logging
import random
import time

from redis.asyncio import Redis

import headgate
from bench.harness import Figure, at_most, percentile, private_client
from headgate.redis.stores.notes import NoteStore, Tie
from headgate_coordinator.deadlock.detector import EVERY, Detector

SAMPLES = 30
TIED = 1_000
LOOKS = 20


async def measure(*, quick: bool) -> list[Figure]:
    """Return seconds from the beginning of the last wait until a send fails, and microseconds of Redis for a look."""
    logging.getLogger("headgate").setLevel(logging.ERROR)  # it would tell of each
    async with private_client() as (client, server):
        detector = Detector(client, "bench", ttl=5.0)
        await detector.start()
        rounds = range(SAMPLES // 5 if quick else SAMPLES)
        took = await asyncio.gather(*(_figure_14(client, number) for number in rounds))
        await detector.close()
        redis = Redis(unix_socket_path=server.url.removeprefix("unix://").split("?")[0], protocol=2)
        idle = await _look(detector, redis)
        ties = [Tie(f"pipe{n}", f"s~{n:08x}.1", f"pipe{n + 1}", "1.0") for n in range(TIED)]
        await NoteStore(client.store.server, client.namespace).write("waits", {tie.name: tie.text for tie in ties})
        busy = await _look(detector, redis)
        await redis.aclose()
    return [
        at_most("from the last wait to the send that fails, p50", [percentile(took, 0.5)], "s", 2),
        at_most("  p99", [percentile(took, 0.99)], "s", 2),
        at_most(f"Redis for a look, {1 / EVERY:g} a second, nobody waits", [idle], "us"),
        at_most(f"  a line of {TIED} slow programs", [busy], "us"),
    ]


async def _figure_14(client: headgate.Client, number: int) -> float:
    """Let two sessions wait for each other, each in its own time; returns for how long the one that fails waited."""
    names = (f"x{number}", f"y{number}")
    for name in names:
        await client.apply(name, limit=1000, deadlock="fail")
        async with client.session("before") as session:
            await (await session.producer(name, window=1)).send(b"x" * 900)
    began: list[float] = []

    async def program(session: headgate.Session, reads: str, writes: str) -> float | None:
        consumer, producer = await session.consumer(reads), await session.producer(writes, window=1)
        message = await consumer.receive(timeout=10)
        await asyncio.sleep(random.random())
        began.append(time.perf_counter())
        try:
            await producer.send(b"x" * 900, timeout=60)
        except headgate.DeadlockDetected:
            return time.perf_counter() - began[-1]
        finally:
            if message is not None:
                await message.accept()
        return None

    async with client.session("a") as a, client.session("b") as b:
        took = await asyncio.gather(program(a, *names), program(b, *names[::-1]))
    return next(one for one in took if one is not None)


async def _look(detector: Detector, redis: Redis) -> float:
    await detector.round()
    await redis.config_resetstat()
    for _ in range(LOOKS):
        await detector.round()
    stats = await redis.info("commandstats")
    return float(sum(one["usec"] for name, one in stats.items() if name != "cmdstat_config|resetstat")) / LOOKS
