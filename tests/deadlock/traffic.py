"""Live traffic that never deadlocks, and looks much like it: rings of programs, slow ones, full queues everywhere."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Coroutine
from typing import Any

import headgate

BODY = b"x" * 20
ROOM = 150
"""Bytes of each destination: a handful of messages."""


class Traffic:
    """Programs in two clients, as two hosts would have them.

    - ``ring0`` to ``ring2``: each consumed by a session that sends to the next one, in **another task** than that which
      receives and settles. So a session waits to send and goes on consuming.
    - ``pipe0`` to ``pipe3``: each consumed by tasks that settle once they have sent on; the last one is slow.
    - ``there`` and ``back``: likewise, in a ring, which one slow consumer of ``back`` that sends nothing keeps alive.
    - ``news``, a topic: one subscription passes on to ``pipe0``, one only consumes.
    """

    def __init__(self, clients: list[headgate.Client], seed: int) -> None:
        self.clients = clients
        self.random = random.Random(seed)
        self.settled = 0
        self._tasks: list[asyncio.Task[None]] = []
        self._stack = contextlib.AsyncExitStack()

    async def start(self) -> None:
        """Make the destinations, and start all programs."""
        rings, pipes = [f"ring{i}" for i in range(3)], [f"pipe{i}" for i in range(4)]
        for name in (*rings, *pipes, "there", "back"):
            await self.clients[0].apply(name, kind="queue", limit=ROOM)
        await self.clients[0].apply("news", kind="topic", limit=ROOM)
        for here, there in zip(rings, (*rings[1:], rings[0]), strict=True):
            await self._decoupled(here, there)
        for here, there in itertools.pairwise(pipes):
            for _ in range(2):
                await self._coupled(here, there)
        await self._coupled("there", "back")
        await self._coupled("back", "there")
        await self._coupled("news", "pipe0", subscription="on")
        await self._drain(pipes[-1])
        await self._drain("back")
        await self._drain("news", subscription="off")
        for name in ("ring0", "pipe0", "there", "back", "news"):
            await self._source(name)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        ended = await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()
        for error in ended:
            if isinstance(error, Exception):
                raise error

    async def _session(self) -> headgate.Session:
        return await self._stack.enter_async_context(self.random.choice(self.clients).session("program"))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _pause(self) -> None:
        """Work for a while; now and then for long, so that all who wait for it stand still."""
        await asyncio.sleep(0.25 if self.random.random() < 0.02 else self.random.expovariate(1 / 0.004))

    async def _decoupled(self, reads: str, writes: str) -> None:
        session = await self._session()
        consumer, producer = await session.consumer(reads, window=2), await session.producer(writes, window=1)
        onward: asyncio.Queue[int] = asyncio.Queue()

        async def receive() -> None:
            async for message in consumer:
                await self._pause()
                await self._settle(message)
                hops = int(message.headers["hops"])
                if hops < 5:
                    onward.put_nowait(hops + 1)

        async def send() -> None:
            while True:
                await self._send(producer, await onward.get())

        self._run(receive())
        self._run(send())

    async def _coupled(self, reads: str, writes: str, subscription: str | None = None) -> None:
        session = await self._session()

        async def work() -> None:
            consumer = await session.consumer(reads, window=1, subscription=subscription)
            producer = await session.producer(writes, window=1)
            async for message in consumer:
                hops = int(message.headers["hops"])
                if hops < 3:
                    await self._send(producer, hops + 1)
                await self._settle(message)

        self._run(work())

    async def _drain(self, reads: str, subscription: str | None = None) -> None:
        session = await self._session()
        consumer = await session.consumer(reads, window=1, subscription=subscription)

        async def work() -> None:
            async for message in consumer:
                await self._pause()
                await self._settle(message)

        self._run(work())

    async def _source(self, writes: str) -> None:
        session = await self._session()
        producer = await session.producer(writes, window=1)

        async def work() -> None:
            while True:
                await self._pause()
                await self._send(producer, 0)

        self._run(work())

    async def _send(self, producer: headgate.Producer, hops: int) -> None:
        await producer.send(BODY, headers={"hops": hops}, timeout=600)

    async def _settle(self, message: headgate.Message) -> None:
        self.settled += 1
        await message.accept()
