"""How long an explanation takes: with 10,000 sessions in line, credit held by many, and 100 consumers."""

import time

from redis.asyncio import Redis

from bench.harness import Figure, at_most, private_client
from bench.scripts import crowd
from headgate.redis.keys import Address

LINE = 10_000
HOLDERS = 1_000
CONSUMERS = 100
ROUNDS = 20


async def measure(*, quick: bool) -> list[Figure]:
    """Return milliseconds of one explanation, the slowest of each round's calls, and of Redis for its script."""
    line, holders = (LINE // 10, HOLDERS // 10) if quick else (LINE, HOLDERS)
    async with private_client() as (client, server):
        redis = Redis(unix_socket_path=server.url.removeprefix("unix://").split("?")[0], protocol=2)
        address = Address.of("default", "bench")
        await client.apply("bench", limit=holders)
        await crowd(redis, address, holders, line)
        for number in range(CONSUMERS):
            await client.store.attach(
                address,
                f"in-{number}",
                number=1,
                subscription="queue",
                durable=False,
                window="10/unlimited",
                ttl_ms=60_000,
            )
        took = [await _explain(client.explain("bench")) for _ in range(ROUNDS)]
        one = [
            await _explain(client.explain("bench", producer="line-5000" if not quick else "line-5"))
            for _ in range(ROUNDS)
        ]
        await redis.config_resetstat()
        for _ in range(ROUNDS):
            await client.store.snapshot(address, session="line-5", entries=100)
        script = (await redis.info("commandstats"))["cmdstat_evalsha"]["usec_per_call"] / 1000
        await client.remove("bench")
        await redis.aclose()
    text = f"with {line} waiters, {holders} holders, {CONSUMERS} consumers"
    return [
        at_most(f"explain {text}", took, "ms", 50),
        at_most("  the slowest of them", [max(took)], "ms", 50),
        at_most("  for one session in line", one, "ms", 50),
        at_most("  its script in Redis", [float(script)], "ms"),
    ]


async def _explain(call: object) -> float:
    began = time.perf_counter()
    await call  # type: ignore[misc]  # a coroutine
    return (time.perf_counter() - began) * 1000
