"""The rate limit service for proxies: requests a second of one node out of what it has in hand, and what each costs."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from typing import Final

import grpc
from envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from envoy.service.ratelimit.v3.rls_pb2_grpc import RateLimitServiceStub

import headgate
from bench.harness import Figure, cpu_seconds, median, percentile
from bench.traffic.leases import CONNECTIONS, LIMITS, ROUNDS, SECONDS, node
from headgate.policy import loads
from headgate.redis.embedded import EmbeddedRedis

POLICY: Final = """
[[descriptor]]
domain = "shop"
entries = ["tenant"]
limiter = "llm"
amounts = { requests = 1 }
key = "tenant"
"""


async def _load(port: int, at_a_time: int, seconds: float) -> list[float]:
    """Return how many a second, and the milliseconds until an answer: at the middle, and of the slowest hundredth."""
    entry = RateLimitDescriptor.Entry(key="tenant", value="tenant-7")
    request = RateLimitRequest(domain="shop", descriptors=[RateLimitDescriptor(entries=[entry])])
    times: list[float] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = RateLimitServiceStub(channel)
        until = time.monotonic() + seconds

        async def ask() -> None:
            while time.monotonic() < until:
                began = time.perf_counter()
                answer = await stub.ShouldRateLimit(request)
                assert answer.overall_code == RateLimitResponse.OK
                times.append((time.perf_counter() - began) * 1000)

        await asyncio.gather(*(ask() for _ in range(at_a_time)))
    return [len(times) / seconds, median(times), percentile(times, 0.99)]


async def _round(port: str, pid: int, at_a_time: int, seconds: float) -> list[float]:
    """Return what :func:`_load` does in a process of its own, and the node's microseconds for a request."""
    began = cpu_seconds(pid)
    words = ("-m", "bench.traffic.proxies", port, str(at_a_time), str(seconds))
    loader = await asyncio.create_subprocess_exec(sys.executable, *words, stdout=PIPE)
    out, _ = await loader.communicate()
    found: list[float] = json.loads(out)
    return [*found, (cpu_seconds(pid) - began) * 1e6 / (found[0] * seconds)]


async def measure(*, quick: bool) -> list[Figure]:
    """Return requests a second over one connection, as of one proxy, and their cost."""
    seconds = SECONDS / (4 if quick else 1)
    with EmbeddedRedis.start() as redis:
        async with headgate.connect(redis.url) as client:
            await client.apply("llm", kind="limiter", limits=LIMITS)
            await client.apply_policy(loads(POLICY))
        async with node(redis.url, "--envoy", "--grpc-port", "0") as (addresses, pid):
            port = addresses["grpc"].rpartition(":")[2]
            await _round(port, pid, CONNECTIONS, seconds)
            many = [await _round(port, pid, CONNECTIONS, seconds) for _ in range(ROUNDS)]
            one = [await _round(port, pid, 1, seconds) for _ in range(ROUNDS)]
    rates, middles, _, costs = (list(column) for column in zip(*many, strict=True))
    return [
        Figure(
            "requests of one proxy, out of what is in hand", max(rates), "1/s", ">= 5000", max(rates) >= 5000, rates
        ),
        Figure("the node's processor time for one", min(costs), "us", rounds=costs),
        Figure(f"answered after, of {CONNECTIONS} at a time, half of them", min(middles), "ms", rounds=middles),
        Figure.typical("answered after, one at a time, 99 of 100", [r[2] for r in one], "ms", at_most=2),
    ]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_load(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))))
