"""The rate limit service for proxies: requests a second of one node out of what it has in hand, and what each costs."""

import asyncio
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
from bench.harness import Figure, at_least, at_most, cpu_seconds, percentile
from bench.traffic.leases import CONNECTIONS, LIMITS, ROUNDS, SECONDS, node
from bench.traffic.paced import latencies
from headgate.policy import loads
from headgate.redis.embedded import EmbeddedRedis
from headgate_coordinator.envoy.server import SERVICE
from headgate_coordinator.rpc import OPTIONS

PROXIES: Final = 8
"""Connections for each worker: the system spreads them."""
EXPECTED: Final = 3000
"""Requests a second, about, of which a round is made."""
PACES: Final = (1000, 2500)
"""Requests a second that come whether or not those before are answered."""
METHOD: Final = f"/{SERVICE}/ShouldRateLimit"
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


async def _load(port: int, at_a_time: int, seconds: float) -> float:
    """Return how many a second are answered of so many at a time."""
    request = _request()
    answered = 0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = RateLimitServiceStub(channel)
        until = time.monotonic() + seconds

        async def ask() -> None:
            nonlocal answered
            while time.monotonic() < until:
                answer = await stub.ShouldRateLimit(request)
                assert answer.overall_code == RateLimitResponse.OK
                answered += 1

        await asyncio.gather(*(ask() for _ in range(at_a_time)))
    return answered / seconds


def _cpu(pid: int) -> float:
    """Return the processor time of a node and its workers."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return sum(cpu_seconds(one) for one in (pid, *map(int, children)))


async def _output(*words: str) -> str:
    process = await asyncio.create_subprocess_exec(*words, stdout=PIPE)
    out, _ = await process.communicate()
    return out.decode()


async def _paced(port: str, pace: int, seconds: float) -> float:
    """Return the milliseconds within which 99 of 100 requests are answered that come at a pace."""
    times, _ = await latencies(int(port), METHOD, _request().SerializeToString(), pace=pace, seconds=seconds)
    return percentile(times, 0.99) * 1000


async def _many(port: str, pid: int, seconds: float, proxies: int = 1) -> tuple[float, float]:
    """Return requests a second of so many connections, and the node's microseconds for one.

    A client in Python takes as much of a processor as what it measures; h2load, of nghttp2, takes a twentieth.
    """
    began = _cpu(pid)
    if shutil.which("h2load") is None:
        words = ("-m", "bench.traffic.proxies", port, str(CONNECTIONS), str(seconds))
        rate = float(await _output(sys.executable, *words))
        return rate, (_cpu(pid) - began) * 1e6 / (rate * seconds)
    count = int(EXPECTED * seconds)
    message = _request().SerializeToString()
    with tempfile.NamedTemporaryFile() as body:
        body.write(b"\0" + len(message).to_bytes(4) + message)
        body.flush()
        started = time.perf_counter()
        told = await _output(
            *("h2load", f"--clients={proxies}", f"--max-concurrent-streams={CONNECTIONS}", f"--requests={count}"),
            *(f"--data={body.name}", "--header=content-type: application/grpc", "--header=te: trailers"),
            f"http://127.0.0.1:{port}{METHOD}",
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
    """Return requests a second as of proxies, and what one costs, and takes, beside a server that does nothing.

    Also what one costs two workers and Redis, beside one worker that is as busy as each of them.
    """
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
            slowest: dict[int, list[tuple[float, float]]] = {pace: [] for pace in PACES}
            for pace in PACES * ROUNDS * 2:
                slowest[pace].append((await _paced(port, pace, seconds / 2), await _paced(bare[0], pace, seconds / 2)))
        found = []
        async with _workers(redis.url, 1) as one, _workers(redis.url, 2) as two:
            for _ in range(ROUNDS * 2):
                alone = await _worked(*one, redis.pid, seconds, 1)
                found.append((alone, await _worked(*two, redis.pid, seconds, 2)))
    rates, costs = (list(column) for column in zip(*many, strict=True))
    bare_rates, bare_costs = (list(column) for column in zip(*nothing, strict=True))
    beside = [mine / theirs for mine, theirs in zip(costs, bare_costs, strict=True)]
    of_one, of_two = ([pair[index][1] for pair in found] for index in (0, 1))
    return [
        at_least("requests of one proxy, out of what is in hand", rates, "1/s", 5000),
        at_least("  of a gRPC server that does nothing", bare_rates, "1/s"),
        at_most("the node's processor time for one", costs, "us"),
        at_most("  of a gRPC server that does nothing", bare_costs, "us"),
        Figure.typical("  the one beside the other", beside, "times"),
        *(figure for pace, pairs in slowest.items() for figure in _late(pace, pairs)),
        at_most("processor time for one, of one worker and Redis", of_one, "us"),
        at_most("  of two workers and Redis", of_two, "us"),
        Figure.typical(
            "  beside one worker's", [b / a for a, b in zip(of_one, of_two, strict=True)], "times", at_most=1.25
        ),
        Figure.typical("requests of two workers beside one, on these cores", [b[0] / a[0] for a, b in found], "times"),
    ]


def _late(pace: int, pairs: list[tuple[float, float]]) -> list[Figure]:
    mine, bare = (list(column) for column in zip(*pairs, strict=True))
    return [
        at_most(f"{pace} a second: answered after, 99 of 100", mine, "ms", 2),
        at_most("  of a gRPC server that does nothing", bare, "ms"),
        Figure.typical("  the one beside the other", [a / b for a, b in pairs], "times"),
    ]


@asynccontextmanager
async def _workers(redis: str, count: int) -> AsyncIterator[tuple[str, int]]:
    """Yield the port and the process id of a node with so many workers, that have what they need."""
    async with node(redis, "--envoy", "--grpc-port", "0", "--workers", str(count)) as (addresses, pid):
        port = addresses["grpc"].rpartition(":")[2]
        await _many(port, pid, 1.0, PROXIES * count)
        yield port, pid


async def _worked(port: str, pid: int, redis: int, seconds: float, count: int) -> tuple[float, float]:
    """Return requests a second of so many workers, and their microseconds and those of Redis for one."""
    began = cpu_seconds(redis)
    rate, cost = await _many(port, pid, seconds, PROXIES * count)
    return rate, cost + (cpu_seconds(redis) - began) * 1e6 / (EXPECTED * seconds)


if __name__ == "__main__":
    if sys.argv[1] == "bare":
        asyncio.run(_bare())
        sys.exit()
    print(asyncio.run(_load(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))))
