"""Load over a link whose workers die: what was sent, what came, whether limits held, how many died and how."""

import asyncio
import contextlib
import json
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self

import headgate
from headgate._util.tasks import stop
from headgate.redis.keys import Address
from headgate.redis.server import Server
from headgate.redis.stores.links import LinkStore
from headgate.redis.url import parse_url
from headgate_coordinator.links.rules import Forwarding
from headgate_coordinator.links.worker import LinkSide, LinkWorker
from tests.links.worker_process import LINK, Plan
from tests.support.waiting import wait_until

ROOT: Final = Path(__file__).parents[2]
TTL: Final = 2.0
SOURCE_LIMIT, TARGET_LIMIT = 4000, 600
WITHIN: Final = 250.0
"""Seconds for all that die to do so, and for a send: on a busy machine one after the other dies before it moves any."""


class Breeder:
    """A process that forks workers which die; ``census`` counts the ways."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.census: Counter[tuple[str, str]] = Counter()
        self.lasts = asyncio.Event()
        """Set when all have died that were to, and the last one works."""
        self._log: IO[str] = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed when all is over
        self._process: Process | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        command = ("-m", "tests.links.worker_process", self.plan.json)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *command, cwd=ROOT, stdin=PIPE, stdout=PIPE, stderr=self._log
        )
        self._task = asyncio.create_task(self._count(self._process))
        return self

    async def _count(self, process: Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            step, moment = json.loads(line)
            if step == "last":
                self.lasts.set()
            else:
                self.census[step, moment] += 1
        self.lasts.set()

    @property
    def kills(self) -> int:
        return sum(count for (step, _), count in self.census.items() if step != "ended")

    async def stop(self) -> None:
        """Kill the last one."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert await asyncio.wait_for(self._process.wait(), 20) == 0, self.log

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()[-5000:]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._task is not None
        if self._process.returncode is None:
            await self.stop()
        await self._task
        log = self.log
        self._log.close()
        assert not log, log


class Gone(Exception):
    """A destination is not there."""


@dataclass
class Load:
    """Producers at the source, a consumer at the target, and somebody who looks at both all the time."""

    here: headgate.Client
    there: headgate.Client
    sent: list[int] = field(default_factory=lambda: [0, 0])
    got: list[str] = field(default_factory=list)
    poison: int = 0
    """One of so many messages is larger than the target's limit, 0 for none."""
    looks: int = 0
    reads: asyncio.Event = field(default_factory=asyncio.Event)
    """Whether the consumer goes on."""

    async def __aenter__(self) -> Self:
        self._enough = asyncio.Event()
        self.reads.set()
        self._sending = [asyncio.create_task(self._send(number)) for number in range(len(self.sent))]
        self._receiving = asyncio.create_task(self._receive())
        self._looking = asyncio.create_task(self._look())
        return self

    async def _send(self, number: int) -> None:
        async with self.here.session(ttl=TTL) as session:
            producer = await session.producer("orders", window="500B")
            while not self._enough.is_set():
                poison = self.poison and self.sent[number] % self.poison == 0
                size = TARGET_LIMIT + 1 if poison else 20 + self.sent[number] * 7919 % 130
                await producer.send(f"{number} {self.sent[number]} ".ljust(size, "."), timeout=WITHIN)
                self.sent[number] += 1
            await producer.close()

    async def _receive(self) -> None:
        async with self.there.session(ttl=TTL) as session:
            consumer = await session.consumer("orders", window=2)
            while True:
                await self.reads.wait()
                message = await consumer.receive(timeout=60)
                if message is not None:
                    self.got.append(str(message.body))
                    await message.accept()

    async def _look(self) -> None:
        ends = ((self.here, "source", SOURCE_LIMIT), (self.there, "target", TARGET_LIMIT))
        while True:
            for client, side, limit in ends:
                with contextlib.suppress(headgate.CoordinatorUnavailable, Gone):
                    fields = await look(client)
                    assert int(fields["pending_bytes"]) + int(fields["leased_bytes"]) <= limit, (side, fields)
                    self.looks += 1
            await asyncio.sleep(0.03)

    def watch(self) -> None:
        """Raise what any of them raised."""
        for task in (*self._sending, self._receiving, self._looking):
            if task.done():
                task.result()

    async def moves(self, more: int) -> None:
        """Wait until so many more came."""
        goal = len(self.got) + more

        def moved() -> bool:
            self.watch()
            return len(self.got) >= goal

        await wait_until(moved, timeout=120, description=f"{more} more messages")

    async def enough(self) -> None:
        """Stop sending."""
        self._enough.set()
        await asyncio.gather(*self._sending)

    async def drained(self) -> None:
        """Stop sending, and wait until all has come."""
        await self.enough()

        def all_came() -> bool:
            self.watch()
            return len(self.got) >= expected

        expected = sum(map(len, self.expected()))
        await wait_until(all_came, timeout=120, description=f"all {expected} messages")

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for task in (*self._sending, self._receiving, self._looking):
            task.cancel()
        await asyncio.gather(*self._sending, self._receiving, self._looking, return_exceptions=True)

    def expected(self, *, poison: bool = False) -> list[list[int]]:
        """Return what of each producer is to come, or never can."""
        return [
            [number for number in range(count) if poison == bool(self.poison and number % self.poison == 0)]
            for count in self.sent
        ]

    def numbers(self, bodies: Iterable[bytes | str] | None = None) -> list[list[int]]:
        """Return what came of each producer."""
        came: list[list[int]] = [[] for _ in self.sent]
        for body in self.got if bodies is None else bodies:
            sender, number = str(body).split()[:2]
            came[int(sender)].append(int(number))
        return came


async def look(client: headgate.Client, name: str = "orders") -> dict[str, str]:
    seen = await client.store.snapshot(Address.of(client.namespace, name))
    if seen is None:
        raise Gone(name)
    return seen.fields


async def at_rest(client: headgate.Client) -> None:
    """Wait until nothing is there and nothing reserved, and count."""
    counters = ("pending_bytes", "pending_messages", "leased_bytes", "leased_messages", "blocked")

    async def empty() -> bool:
        await client.store.reap(Address.of(client.namespace, "orders"))
        fields = await look(client)
        return all(fields[counter] == "0" for counter in counters)

    await wait_until(empty, timeout=80, description="nothing stored, nothing reserved, nobody waits")
    count = await client.recount("orders")
    assert count.equal, count


@asynccontextmanager
async def linked(here: headgate.Client, url: str, *, fence: int = 1) -> AsyncIterator[LinkWorker]:
    """A worker in this process, that reaches the target at ``url``."""
    orders = Address.of(here.namespace, "orders")
    servers = [Server(parse_url(where)) for where in (here.redis_url, url)]
    wakes = [server.wake_ups() for server in servers]
    for server in servers:
        await server.open()
    source, target = (LinkSide(LinkStore(server), orders, wake) for server, wake in zip(servers, wakes, strict=True))
    worker = LinkWorker(LINK, source, target, Forwarding("a", "b", window=1000, messages=20), fence=fence, ttl=1.0)
    task = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        await stop(task)
        for wake in wakes:
            await wake.close()
        for server in servers:
            await server.close()
