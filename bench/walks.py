"""How far a value walks: the files that a send, a settlement or a transfer touches, and how often it changes file.

A reader of the code walks the same way, so a short walk is one that can be followed. Every call and every resumption
of a function of ours counts, in the thread that is watched; ``HEADGATE_WALKS=1`` prints them, file by file.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import FrameType
from typing import Any

from bench.harness import Figure, private_client
from bench.traffic.amqp import Peer, Sender
from headgate.redis.keys import Address, link_id
from headgate.redis.stores.links import LinkStore
from headgate_coordinator.links.rules import Forwarding
from headgate_coordinator.links.worker import LinkSide, LinkWorker
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security.users import Users

ROOT = Path(__file__).resolve().parents[1]
OURS = tuple(f"{ROOT / part}{os.sep}" for part in ("sdk", "coordinator"))
BODY = b"x" * 1000
TARGETS = {
    "paid send": (12, 24),
    "blocked send": (20, 60),
    "settle that wakes": (18, 50),
    "transfer in": (20, 60),
    "gate's admit": (3, 5),
    "limiter's admit": (14, 62),
}
"""Files, and changes of file, at the most."""


class Walk:
    """The functions that were entered, in order."""

    def __init__(self) -> None:
        self._steps: list[tuple[str, str]] = []

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Note every function of ours that this thread enters in the block."""
        sys.setprofile(self._note)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        root = next((root for root in OURS if code.co_filename.startswith(root)), None) if event == "call" else None
        if root is not None:
            self._steps.append((code.co_filename.removeprefix(root), getattr(code, "co_qualname", code.co_name)))

    @property
    def stays(self) -> list[tuple[str, list[str]]]:
        """Each file that was entered, with the functions called before it was left for another."""
        return [(file, [step[1] for step in steps]) for file, steps in groupby(self._steps, lambda step: step[0])]

    @property
    def steps(self) -> list[tuple[str, str]]:
        """Every function that was entered, with its file, in order."""
        return self._steps

    def show(self, name: str) -> None:
        """Print it, file by file."""
        print(f"{name}:")
        for file, functions in self.stays:
            print(f"  {file:44} {' > '.join(functions)}")


def figures(name: str, walks: list[Walk]) -> list[Figure]:
    """Return how many files, and how many changes of file: the least, for other work may cross a way."""
    shortest = min(walks, key=lambda walk: len(walk.stays))
    if os.environ.get("HEADGATE_WALKS"):
        shortest.show(name)
    files: list[float] = [len({file for file, _ in walk.stays}) for walk in walks]
    changes: list[float] = [len(walk.stays) for walk in walks]
    return [
        Figure(f"{name}: {what}", min(values), "", f"<= {most}", min(values) <= most, values)
        for what, values, most in zip(("files", "changes of file"), (files, changes), TARGETS[name], strict=True)
    ]


async def sends() -> dict[str, Walk]:
    """Walk with a send that is paid, one that waits, and a settlement that wakes it."""
    paid, blocked, woken = Walk(), Walk(), Walk()
    async with private_client() as (client, _), client.session("walks") as session:
        await client.apply("walks", limit="4KiB")
        producer = await session.producer("walks", window="4KiB")
        await producer.send(BODY)  # what is made at the first one is made
        await asyncio.sleep(0.1)
        with paid.watched():
            await producer.send(BODY)
        async with client.session("before") as other:  # Redis has the function then that asks for credit
            await other.producer("walks")
        consumer = await session.consumer("walks", window=1)  # after it: what a consumer hears is a way of its own
        async for message in consumer:
            await message.accept(confirm=True)
            break
        held = await consumer.receive()
        assert held is not None
        while producer.in_hand >= 1024:
            await producer.send(BODY)
        await asyncio.sleep(0.1)
        with blocked.watched():
            sending = asyncio.create_task(producer.send(BODY))
            await asyncio.sleep(0.15)
            # A busy machine takes longer; an event set by what is watched would be a step of it.
            while not any(name == "Waiters.looked" for _, name in blocked.steps):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert not sending.done()
        await client.explain("walks")  # a connection that was in use just now is not asked whether it still is the same
        with woken.watched():
            await held.accept()
            await sending
    return {"paid send": paid, "blocked send": blocked, "settle that wakes": woken}


async def admissions() -> dict[str, Walk]:
    """Walk with an admission of a gate, whose credit is in hand, and with one of a limiter, which Redis decides."""
    gate_walk, limiter_walk = Walk(), Walk()
    async with private_client() as (client, _), client.session("walks") as session:
        await client.apply("gate", kind="gate", limit="1MiB")
        await client.apply("limiter", kind="limiter", limits={"calls": {"rate": "1000/s"}})
        gate, limiter = await session.gate("gate"), await session.limiter("limiter", in_hand=False)
        for walk in (Walk(), gate_walk):  # what is made at the first one is made
            with walk.watched():
                async with gate.admit(100):
                    pass
        for walk in (Walk(), limiter_walk):
            with walk.watched():
                async with limiter.admit(calls=1):
                    pass
    return {"gate's admit": gate_walk, "limiter's admit": limiter_walk}


class _Client(threading.Thread):
    """A client of a node, in a thread of its own so that nothing of it is watched."""

    def __init__(self, port: int) -> None:
        super().__init__(name="a client of the node")
        self._port = port
        self._loop = asyncio.new_event_loop()

    def run(self) -> None:
        """Serve until it is closed."""
        self._loop.run_forever()
        self._loop.close()

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def do(self, work: Coroutine[Any, Any, None]) -> None:
        """Run something in its thread."""
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def begin(self) -> None:
        """Open a link that sends."""
        self._peer = await Peer.connect("127.0.0.1", self._port)
        self._sender = Sender(self._peer, "walks", len(BODY))
        await self._sender.attach()

    async def send(self) -> None:
        """Send one message, and wait until it is accepted."""
        await self._sender.run(1)

    async def end(self) -> None:
        """Say good-bye."""
        await self._peer.close()


async def transfer() -> dict[str, Walk]:
    """Walk with a message of an AMQP client into a node."""
    walk = Walk()
    async with private_client() as (client, _):
        await client.apply("walks", limit="1MiB")
        users = Users.from_redis(client)
        await users.start()
        node = Node(client, NodeOptions(port=0), users)
        await node.start()
        peer = _Client(node.port)
        peer.start()
        try:
            await peer.do(peer.begin())
            await peer.do(peer.send())  # what is made at the first one is made
            await asyncio.sleep(0.1)
            with walk.watched():
                await peer.do(peer.send())
            await peer.do(peer.end())
        finally:
            peer.close()
            await node.drain()
            await node.close()
            await users.close()
    return {"transfer in": walk}


async def commit() -> dict[str, Walk]:
    """Walk with a message over a link."""
    walk = Walk()
    async with private_client() as (client, _), client.session("walks") as session:
        producer = await session.producer("source")
        consumer = await session.consumer("target")
        source, target = (
            LinkSide(LinkStore(client.store.server), Address.of(client.namespace, name))
            for name in ("source", "target")
        )
        worker = LinkWorker(link_id("walks"), source, target, Forwarding("source", "target"), fence=1)
        await producer.send(BODY)
        with walk.watched():
            working = asyncio.create_task(worker.run())
            assert await consumer.receive() is not None
            await asyncio.sleep(0.1)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    return {"commit": walk}


async def measure(*, quick: bool) -> list[Figure]:
    """Walk each way a few times."""
    times = [await sends() | await transfer() | await admissions() for _ in range(2 if quick else 4)]
    return [figure for name in TARGETS for figure in figures(name, [walks[name] for walks in times])]
