"""The rate limit service for proxies: requests a second of one node out of what it has in hand, and what each costs."""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
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
from headgate_coordinator.envoy.server import SERVICE
from headgate_coordinator.rpc import OPTIONS

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


async def _beside(port: str, pid: int, bare: tuple[str, int], seconds: float) -> float:
    """Return a node's processor time for a request, beside that of a bare server just before."""
    nothing = await _round(*bare, CONNECTIONS, seconds)
    return (await _round(port, pid, CONNECTIONS, seconds))[-1] / nothing[-1]


async def _answer(_request: bytes, _context: object) -> bytes:
    return bytes(RateLimitResponse(overall_code=RateLimitResponse.OK).SerializeToString())


async def _bare() -> None:
    """Serve what a node serves, and do nothing for it; print the port."""
    server = grpc.aio.server(options=OPTIONS)
    method = grpc.unary_unary_rpc_method_handler(_answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"ShouldRateLimit": method}),))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()


@asynccontextmanager
async def _bare_server() -> AsyncIterator[tuple[str, int]]:
    process = await asyncio.create_subprocess_exec(sys.executable, "-m", "bench.traffic.proxies", "bare", stdout=PIPE)
    assert process.stdout
    try:
        yield (await process.stdout.readline()).decode().strip(), process.pid
    finally:
        process.kill()
        await process.wait()


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
            async with _bare_server() as bare:
                ratios = [await _beside(port, pid, bare, seconds) for _ in range(ROUNDS)]
    rates, middles, _, costs = (list(column) for column in zip(*many, strict=True))
    return [
        Figure(
            "requests of one proxy, out of what is in hand", max(rates), "1/s", ">= 5000", max(rates) >= 5000, rates
        ),
        Figure("the node's processor time for one", min(costs), "us", rounds=costs),
        Figure("that, beside a gRPC server that does nothing", median(ratios), "times", rounds=ratios),
        Figure(f"answered after, of {CONNECTIONS} at a time, half of them", min(middles), "ms", rounds=middles),
        Figure.typical("answered after, one at a time, 99 of 100", [r[2] for r in one], "ms", at_most=2),
    ]


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        asyncio.run(_bare())
        sys.exit()
    print(json.dumps(asyncio.run(_load(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))))
