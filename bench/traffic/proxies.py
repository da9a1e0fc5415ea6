"""The rate limit service for proxies: requests a second of one node out of what it has in hand, and what each costs."""

import asyncio
import json
import shutil
import sys
import tempfile
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
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

PROXIES: Final = 8
"""Connections that two workers share: the system spreads them."""
EXPECTED: Final = 3000
"""Requests a second, about, of which a round is made."""
POLICY: Final = """
[[descriptor]]
domain = "shop"
entries = ["tenant"]
limiter = "llm"
amounts = { requests = 1 }
key = "tenant"
"""


def _request() -> RateLimitRequest:
    entry = RateLimitDescriptor.Entry(key="tenant", value="tenant-7")
    return RateLimitRequest(domain="shop", descriptors=[RateLimitDescriptor(entries=[entry])])


async def _load(port: int, at_a_time: int, seconds: float) -> list[float]:
    """Return how many a second, and the milliseconds until an answer: at the middle, and of the slowest hundredth."""
    request = _request()
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


def _cpu(pid: int) -> float:
    """Return the processor time of a node and its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(cpu_seconds(one) for one in (pid, *map(int, children)))


async def _output(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(*words, stdout=PIPE)
    out, _ = await process.communicate()
    return out.decode()


async def _one_at_a_time(port: str, seconds: float) -> list[float]:
    """Return what :func:`_load` does in a process of its own."""
    words = ("-m", "bench.traffic.proxies", port, "1", str(seconds))
    found: list[float] = json.loads(await _output(sys.executable, *words))
    return found


async def _many(port: str, pid: int, seconds: float, proxies: int = 1) -> tuple[float, float]:
    """Return requests a second of so many connections, and the node's microseconds for one.

    A client in Python takes as much of a processor as what it measures; h2load, of nghttp2, takes a twentieth.
    """
    began = _cpu(pid)
    if shutil.which("h2load") is None:
        found: list[float] = json.loads(
            await _output(sys.executable, "-m", "bench.traffic.proxies", port, str(CONNECTIONS), str(seconds))
        )
        return found[0], (_cpu(pid) - began) * 1e6 / (found[0] * seconds)
    count = int(EXPECTED * seconds)
    message = _request().SerializeToString()
    with tempfile.NamedTemporaryFile() as body:
        body.write(b"\0" + len(message).to_bytes(4) + message)
        body.flush()
        started = time.perf_counter()
        told = await _output(
            *("h2load", f"--clients={proxies}", f"--max-concurrent-streams={CONNECTIONS}", f"--requests={count}"),
            *(f"--data={body.name}", "--header=content-type: application/grpc", "--header=te: trailers"),
            f"http://127.0.0.1:{port}/{SERVICE}/ShouldRateLimit",
        )
    if f" {count} succeeded" not in told:
        raise RuntimeError(f"h2load: {told[-800:]}")
    return count / (time.perf_counter() - started), (_cpu(pid) - began) * 1e6 / count


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
    """Return requests a second as of proxies, what one costs beside a server that does nothing, and of two workers."""
    seconds = SECONDS / (4 if quick else 1)
    with EmbeddedRedis.start() as redis:
        async with headgate.connect(redis.url) as client:
            await client.apply("llm", kind="limiter", limits=LIMITS)
            await client.apply_policy(loads(POLICY))
        options = ("--envoy", "--grpc-port", "0")
        async with node(redis.url, *options) as (addresses, pid), _bare_server() as bare:
            port = addresses["grpc"].rpartition(":")[2]
            many, nothing = [], []
            await _many(port, pid, seconds)
            for _ in range(ROUNDS * 2):
                many.append(await _many(port, pid, seconds))
                nothing.append(await _many(*bare, seconds))
            latencies = [(await _one_at_a_time(port, seconds))[2] for _ in range(ROUNDS)]
            async with node(redis.url, *options, "--workers", "2") as (others, supervisor):
                place = others["grpc"].rpartition(":")[2]
                await _many(place, supervisor, seconds, PROXIES)
                workers = []
                for _ in range(ROUNDS):
                    alone = await _many(port, pid, seconds, PROXIES)
                    both = await _many(place, supervisor, seconds, PROXIES)
                    workers.append((both[0] / alone[0], both[1] / alone[1]))
    rates, costs = (list(column) for column in zip(*many, strict=True))
    bare_rates, bare_costs = (list(column) for column in zip(*nothing, strict=True))
    beside = [mine / theirs for mine, theirs in zip(costs, bare_costs, strict=True)]
    times, dearer = (list(column) for column in zip(*workers, strict=True))
    return [
        Figure(
            "requests of one proxy, out of what is in hand", max(rates), "1/s", ">= 5000", max(rates) >= 5000, rates
        ),
        Figure("  of a gRPC server that does nothing", max(bare_rates), "1/s", rounds=bare_rates),
        Figure("the node's processor time for one", min(costs), "us", rounds=costs),
        Figure("  of a gRPC server that does nothing", min(bare_costs), "us", rounds=bare_costs),
        Figure("  the one beside the other", median(beside), "times", rounds=beside),
        Figure.typical("answered after, one at a time, 99 of 100", latencies, "ms", at_most=2),
        Figure.typical(f"two workers beside one, {PROXIES} proxies", times, "times", at_least=1.6),
        Figure("  processor time for one, beside one worker's", median(dearer), "times", rounds=dearer),
    ]


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        asyncio.run(_bare())
        sys.exit()
    print(json.dumps(asyncio.run(_load(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))))
