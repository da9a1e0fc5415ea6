"""Messages a second through one process, beside bare loops with batches of the same size on the same Redis.

One loop has the commands of streams, another a script that does nothing but store what it is given.
"""

import asyncio
from typing import Any

from redis.asyncio import Redis

import headgate
from bench.harness import Figure, Stopwatch, at_least, at_most, private_client, rounds
from headgate.redis.connection_options import widen
from headgate.redis.embedded import EmbeddedRedis

TASKS = 256
MESSAGES = 40_960
SCRIPT = "for i = 1, #ARGV do redis.call('XADD', KEYS[1], '*', 'm', ARGV[i]) end"


async def _send(session: headgate.Session, body: bytes) -> float:
    producer = await session.producer("bench")

    async def one() -> None:
        for _ in range(MESSAGES // TASKS):
            await producer.send(body)

    with Stopwatch() as watch:
        await asyncio.gather(*(one() for _ in range(TASKS)))
    await producer.close()
    return MESSAGES / watch.seconds


async def _post(session: headgate.Session, body: bytes) -> float:
    producer = await session.producer("bench")
    with Stopwatch() as watch:
        for stored in [await producer.post(body) for _ in range(MESSAGES)]:
            await stored
    await producer.close()
    return MESSAGES / watch.seconds


async def _receive(session: headgate.Session) -> float:
    consumer = await session.consumer("bench")
    count = 0
    with Stopwatch() as watch:
        async for message in consumer:
            await message.accept()
            count += 1
            if count == MESSAGES:
                break
        await consumer.flush()
    await consumer.close()
    return MESSAGES / watch.seconds


async def _bare_send(redis: Any, body: bytes) -> float:
    with Stopwatch() as watch:
        for _ in range(MESSAGES // TASKS):
            pipe = redis.pipeline(transaction=False)
            for _ in range(TASKS):
                pipe.xadd("bare", {"m": body})
            await pipe.execute()
    return MESSAGES / watch.seconds


async def _bare_script(redis: Any, body: bytes) -> float:
    sha = await redis.script_load(SCRIPT)
    with Stopwatch() as watch:
        for _ in range(MESSAGES // TASKS):
            await redis.evalsha(sha, 1, "script", *[body] * TASKS)
    await redis.delete("script")
    return MESSAGES / watch.seconds


async def _bare_receive(redis: Any) -> float:
    count = 0
    with Stopwatch() as watch:
        while count < MESSAGES:
            ((_, entries),) = await redis.xreadgroup("group", "me", {"bare": ">"}, count=TASKS)
            ids = [entry[0] for entry in entries]
            pipe = redis.pipeline(transaction=False)
            pipe.xack("bare", "group", *ids)
            pipe.xdel("bare", *ids)
            await pipe.execute()
            count += len(ids)
    return MESSAGES / watch.seconds


async def _connected(connection: Any) -> None:
    """Have a bare client's socket file take a whole batch at once, as Headgate's does."""
    await connection.on_connect()
    widen(connection)


async def _bare(server: EmbeddedRedis, body: bytes, times: int) -> tuple[list[float], list[float], list[float]]:
    path = server.url.removeprefix("unix://").split("?")[0]
    redis = Redis(unix_socket_path=path, protocol=2, redis_connect_func=_connected)
    sends, receives, scripts = [], [], []
    await redis.xgroup_create("bare", "group", "0", mkstream=True)
    for _ in range(times + 1):
        sends.append(await _bare_send(redis, body))
        receives.append(await _bare_receive(redis))
        scripts.append(await _bare_script(redis, body))
    await redis.delete("bare")
    await redis.aclose()
    return sends[1:], receives[1:], scripts[1:]


async def measure(*, quick: bool) -> list[Figure]:
    """Return sends/s and receives/s at 100 B and 1 KiB, their share of the bare loop, and Redis calls a message."""
    times = 2 if quick else 5
    figures: list[Figure] = []
    for size, label in ((100, "100 B"), (1024, "1 KiB")):
        body = b"x" * size
        sends: list[float] = []
        receives: list[float] = []
        posts: list[float] = []
        async with private_client() as (client, server):
            await client.apply("bench", limit="1GiB")
            bare_sends, bare_receives, bare_scripts = await _bare(server, body, times)

            async def both(
                client: headgate.Client = client,
                body: bytes = body,
                sends: list[float] = sends,
                receives: list[float] = receives,
                posts: list[float] = posts,
            ) -> float:
                async with client.session("bench") as session:
                    sends.append(await _send(session, body))
                    receives.append(await _receive(session))
                    posts.append(await _post(session, body))
                    await _receive(session)
                return 0.0

            await rounds(times, both)
            del sends[0], receives[0], posts[0]
            async with client.session("bench") as session:
                before = client.store.server.calls
                await _send(session, body)
                calls = (client.store.server.calls - before) / MESSAGES
        big = size == 1024
        figures += [
            at_least(f"send, {label}", sends, "1/s", 100_000 if big else None),
            at_least(f"bare XADD, {label}", bare_sends, "1/s"),
            at_least(f"send / bare, {label}", [max(sends) / max(bare_sends)], "", 0.6),
            at_least(f"receive and accept, {label}", receives, "1/s", 80_000 if big else None),
            at_least(f"bare XREADGROUP+XACK+XDEL, {label}", bare_receives, "1/s"),
            at_least(f"receive / bare, {label}", [max(receives) / max(bare_receives)], "", 0.6),
            at_least(f"bare script of {TASKS} XADD, {label}", bare_scripts, "1/s"),
            at_least(f"post, {label}", posts, "1/s"),
            at_least(f"post / bare script, {label}", [max(posts) / max(bare_scripts)], "", 0.6 if big else None),
            at_least(f"receive / bare script, {label}", [max(receives) / max(bare_scripts)], "", 0.55 if big else None),
            at_most(f"Redis calls a message, {label}", [calls], "", 0.02),
        ]
    return figures
