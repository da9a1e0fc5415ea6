"""A client in a process of its own: it connects, says so, then works whenever it is ordered to, and reports when.

The clock of its answers is the machine's, so that those of several processes can be compared.
"""

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Final, Literal

from bench.traffic import amqp, stomp


@dataclass(frozen=True, slots=True)
class Job:
    """A worker's job.

    Attributes:
        wire: which protocol.
        role: whether it sends or receives.
        port: of the broker.
        destination: where to, or from.
        size: bytes of a body.
        credit: of a receiver; with STOMP, the prefetch, and how many receipts a sender waits for.
        low: how few are left when an AMQP receiver gives more.
        settled: whether nobody waits for outcomes.
        persistent: whether ActiveMQ has to write it to its disk.
    """

    wire: Literal["amqp", "stomp"]
    role: Literal["send", "receive"]
    port: int
    destination: str
    size: int = 1024
    credit: int = 1000
    low: int = 300
    settled: bool = False
    persistent: bool = False

    async def connect(self) -> Callable[[int], Awaitable[None]]:
        """Return a function that does a given number of them."""
        if self.wire == "amqp":
            if self.role == "send":
                return await amqp.sender(self.port, self.destination, self.size, settled=self.settled)
            return await amqp.receiver(self.port, self.destination, self.credit, self.low, settled=self.settled)
        if self.role == "send":
            return await stomp.sender(
                self.port, self.destination, self.size, self.credit, settled=self.settled, persistent=self.persistent
            )
        return await stomp.receiver(self.port, self.destination, self.credit, settled=self.settled)


class Worker:
    """Such a process, as its owner sees it."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.pid: Final = process.pid

    async def line(self) -> str:
        """Return what it says next."""
        assert self._process.stdout
        said = await asyncio.wait_for(self._process.stdout.readline(), 120)
        if not said:
            raise RuntimeError(f"a client of the bench ended with status {await self._process.wait()}")
        return said.decode()

    async def run(self, count: int) -> tuple[float, float]:
        """Let it work; returns when it began and ended."""
        assert self._process.stdin
        self._process.stdin.write(b"%d\n" % count)
        began, ended = json.loads(await self.line())
        return began, ended


@asynccontextmanager
async def working(*jobs: Job) -> AsyncIterator[list[Worker]]:
    """Yield a connected worker for every job; they end after it."""
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.traffic.worker", json.dumps(asdict(job)), stdin=PIPE, stdout=PIPE
        )
        for job in jobs
    ]
    try:
        workers = [Worker(process) for process in processes]
        for worker in workers:
            await worker.line()
        yield workers
    finally:
        for process in processes:
            if process.returncode is None:
                process.kill()
            await process.wait()


async def _main() -> None:
    work = await Job(**json.loads(sys.argv[1])).connect()
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        began = time.perf_counter()
        await work(int(line))
        print(json.dumps([began, time.perf_counter()]), flush=True)


if __name__ == "__main__":
    asyncio.run(_main())
