"""The HTTP of limiters: admissions a second of one node, its processor time for each, and how long one takes."""

import asyncio
import contextlib
import json
import os
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from typing import Final

import headgate
from bench.harness import Figure, cpu_seconds, median, percentile
from headgate.redis.embedded import EmbeddedRedis

CONNECTIONS: Final = 32
SECONDS: Final = 4.0
ROUNDS: Final = 3
LIMITS: Final = {"requests": {"rate": "1_000_000/s", "burst": 1_000_000}}
BODY: Final = json.dumps({"amounts": {"requests": 1}, "key": "tenant-7", "ttl": 1}).encode()
REQUEST: Final = (
    b"POST /v1/limits/llm/admit HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%s" % (len(BODY), BODY)
)


class _Caller(asyncio.Protocol):
    """One connection that is kept alive: the next request goes once the one before is answered."""

    def __init__(self, until: float) -> None:
        self.seconds: list[float] = []
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._until = until
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def data_received(self, data: bytes) -> None:
        self._answer += data
        head, found, body = self._answer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]):
            return
        if not head.startswith(b"HTTP/1.1 200"):
            self.over.set_exception(RuntimeError(self._answer.decode()))
            return
        self.seconds.append(time.perf_counter() - self._asked)
        self._ask()

    def _ask(self) -> None:
        if time.monotonic() >= self._until:
            self._transport.close()
            self.over.set_result(None)
            return
        self._answer, self._asked = b"", time.perf_counter()
        self._transport.write(REQUEST)


async def _load(port: int, connections: int, seconds: float) -> list[float]:
    """Return the milliseconds of each answer: how many, a second, at the middle and of the slowest hundredth."""
    until = time.monotonic() + seconds
    loop = asyncio.get_running_loop()
    callers = [(await loop.create_connection(lambda: _Caller(until), "127.0.0.1", port))[1] for _ in range(connections)]
    await asyncio.gather(*(caller.over for caller in callers))
    times = [second * 1000 for caller in callers for second in caller.seconds]
    return [len(times) / seconds, median(times), percentile(times, 0.99)]


@contextlib.asynccontextmanager
async def node(redis: str, *options: str) -> AsyncIterator[tuple[dict[str, str], int]]:
    """Yield the addresses of a node with admin HTTP, and its process id."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headgate_coordinator", "node", "--json", "--port", "0", "--admin-port", "0"),
        *("--redis", redis, *options),
        stdout=PIPE, stderr=asyncio.subprocess.DEVNULL, env=os.environ,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        yield json.loads(await process.stdout.readline()), process.pid
    finally:
        process.kill()
        await process.wait()


async def _round(port: str, pid: int, connections: int, seconds: float) -> list[float]:
    """Return what :func:`_load` does in a process of its own, and the node's microseconds for a request."""
    began = cpu_seconds(pid)
    loader = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.traffic.leases", port, str(connections), str(seconds), stdout=PIPE
    )
    out, _ = await loader.communicate()
    found: list[float] = json.loads(out)
    return [*found, (cpu_seconds(pid) - began) * 1e6 / (found[0] * seconds)]


async def measure(*, quick: bool) -> list[Figure]:
    """Return admissions a second over connections that are kept alive, and their cost."""
    seconds = SECONDS / (4 if quick else 1)
    with EmbeddedRedis.start() as redis:
        async with headgate.connect(redis.url) as client:
            await client.apply("llm", kind="limiter", limits=LIMITS)
        async with node(redis.url) as (addresses, pid):
            port = addresses["admin"].rpartition(":")[2]
            await _round(port, pid, CONNECTIONS, seconds)
            many = [await _round(port, pid, CONNECTIONS, seconds) for _ in range(ROUNDS)]
            one = [await _round(port, pid, 1, seconds) for _ in range(ROUNDS)]
    rates, middles, _, costs = (list(column) for column in zip(*many, strict=True))
    return [
        Figure("admissions over HTTP", max(rates), "1/s", ">= 5000", max(rates) >= 5000, rates),
        Figure("the node's processor time for one", min(costs), "us", "<= 200", min(costs) <= 200, costs),
        Figure(f"answered after, of {CONNECTIONS} at a time, half of them", min(middles), "ms", rounds=middles),
        Figure.typical("answered after, one at a time, half of them", [r[1] for r in one], "ms", at_most=1.5),
    ]


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_load(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])))))
