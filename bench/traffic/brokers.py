"""Nodes to measure: processes as `headgate node` makes them, on a Redis of their own."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import headgate
from headgate.redis.embedded import EmbeddedRedis


@dataclass(frozen=True, slots=True)
class Node:
    """A running node."""

    process: Process
    port: int

    @property
    def pid(self) -> int:
        """Its process."""
        return self.process.pid

    @property
    def resident(self) -> int:
        """Bytes of memory that it has."""
        pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, their Redis and a client of it."""

    nodes: list[Node]
    redis: EmbeddedRedis
    client: headgate.Client

    @property
    def store(self) -> int:
        """The process of Redis."""
        assert self.redis.pid
        return self.redis.pid


async def _start(url: str, credit: int, low_credit: int, workers: int | None) -> Node:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headgate_coordinator", "node", "--json", "--port", "0", "--admin-port", "0",
        "--redis", url, "--credit", str(credit), "--low-credit", str(low_credit),
        *(("--workers", str(workers)) if workers else ()), stdout=PIPE, stderr=DEVNULL,
    )  # fmt: skip
    assert process.stdout
    said = await process.stdout.readline()
    if not said:
        raise RuntimeError(f"headgate node ended with status {await process.wait()}")
    return Node(process, int(json.loads(said)["amqp"].rpartition(":")[2]))


@asynccontextmanager
async def running_nodes(
    count: int = 1, *, credit: int = 1000, low_credit: int = 300, config: Mapping[str, str] | None = None,
    workers: int | None = None,
) -> AsyncIterator[Cluster]:  # fmt: skip
    """Yield so many nodes on a private Redis; ``config`` is that of Redis, ``workers`` how many each node has."""
    redis = await asyncio.to_thread(EmbeddedRedis.start, config=config)
    nodes: list[Node] = []
    try:
        async with headgate.connect(redis.url) as client:
            for _ in range(count):
                node = await _start(redis.url, credit, low_credit, workers)
                nodes.append(node)
            yield Cluster(nodes, redis, client)
    finally:
        for node in nodes:
            if node.process.returncode is None:
                node.process.terminate()
        for node in nodes:
            try:
                await asyncio.wait_for(node.process.wait(), 15)
            except TimeoutError:
                node.process.kill()
        await asyncio.to_thread(redis.stop)
