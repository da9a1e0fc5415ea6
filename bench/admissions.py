"""Admissions with credit in hand, beside the limiters people use today on the same Redis."""

import asyncio
import time
from typing import Any

import headgate
from bench.harness import Figure, at_least, private_client
from headgate.redis.embedded import EmbeddedRedis

FAST = 300_000
SLOW = 3_000


def _socket(server: EmbeddedRedis) -> str:
    return server.url.removeprefix("unix://").split("?")[0]


async def _admit(gate: headgate.Gate) -> float:
    began = time.perf_counter()
    for _ in range(FAST):
        async with gate.admit(100):
            pass
    return FAST / (time.perf_counter() - began)


async def _try_admit(gate: headgate.Gate) -> float:
    began = time.perf_counter()
    for _ in range(FAST):
        permit = gate.try_admit(100)
        if permit is not None:
            permit.release()
    return FAST / (time.perf_counter() - began)


def _sync_try_admit(url: str) -> list[float]:
    import headgate.sync

    with headgate.sync.connect(url) as client, client.session("sync") as session:
        gate = session.gate("bench-sync")
        with gate.admit(100):
            pass
        results = []
        for _ in range(3):
            began = time.perf_counter()
            for _ in range(FAST):
                permit = gate.try_admit(100)
                if permit is not None:
                    permit.release()
            results.append(FAST / (time.perf_counter() - began))
        return results


def _limits(server: EmbeddedRedis) -> list[float]:
    from limits import RateLimitItemPerSecond, storage, strategies

    limiter = strategies.MovingWindowRateLimiter(storage.RedisStorage(f"redis+unix://{_socket(server)}"))
    item = RateLimitItemPerSecond(10_000_000)
    began = time.perf_counter()
    for _ in range(SLOW):
        limiter.hit(item, "bench")
    return [SLOW / (time.perf_counter() - began)]


def _throttled(server: EmbeddedRedis) -> list[float]:
    import throttled

    store: Any = throttled.RedisStore(server=f"unix://{_socket(server)}")
    limiter: Any = throttled.Throttled(
        key="bench", using="gcra", quota=throttled.rate_limiter.per_sec(10_000_000, burst=10_000_000), store=store
    )
    began = time.perf_counter()
    for _ in range(SLOW):
        limiter.limit()
    return [SLOW / (time.perf_counter() - began)]


async def _aiolimiter() -> list[float]:
    from aiolimiter import AsyncLimiter

    limiter = AsyncLimiter(100_000_000, 1)
    began = time.perf_counter()
    for _ in range(FAST):
        async with limiter:
            pass
    return [FAST / (time.perf_counter() - began)]


async def measure(*, quick: bool) -> list[Figure]:
    """Return admissions a second: ours, async and sync, and the peers'."""
    times = 2 if quick else 5
    async with private_client() as (client, server):
        await client.apply("bench", kind="gate", limit="1MiB")
        await client.apply("bench-sync", kind="gate", limit="1MiB")
        async with client.session("bench") as session:
            gate = await session.gate("bench")
            admits = [await _admit(gate) for _ in range(times)]
            tries = [await _try_admit(gate) for _ in range(times)]
        in_threads = await asyncio.to_thread(_sync_try_admit, server.url)
        figures = [
            at_least("try_admit and release, credit in hand", tries, "1/s", 1_000_000),
            at_least("async with admit, credit in hand", admits, "1/s", 1_000_000),
            at_least("sync try_admit and release, credit in hand", in_threads, "1/s", 1_000_000),
        ]
        peers = {
            "limits, moving window on Redis": lambda: _limits(server),
            "throttled-py, GCRA on Redis": lambda: _throttled(server),
        }
        for name, run in peers.items():
            try:
                figures.append(at_least(name, await asyncio.to_thread(run), "1/s"))
            except Exception as error:  # noqa: BLE001  (a peer that changed its API is no failure of ours)
                figures.append(Figure(f"{name}: {type(error).__name__}: {error}", 0.0, "1/s"))
        figures.append(at_least("aiolimiter, one process only", await _aiolimiter(), "1/s"))
    return figures
