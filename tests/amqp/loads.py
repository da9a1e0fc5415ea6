"""Load that survives: senders and receivers that come back at the next node, and remember what they were promised."""

import asyncio
import contextlib
import itertools
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import headgate
from headgate.amqp.link import Link
from headgate.amqp.peer import Disconnected
from headgate.amqp.sasl import HandshakeFailed
from tests.amqp.client import Peer, read
from tests.amqp.node_processes import NodeProcess

SILENCE = 1.0
"""Seconds without an answer after which a client tries another node."""

STARVED = 5.0
"""Seconds without credit after which it does, too: these destinations are never full for so long."""


class Roaming:
    """A client that goes from node to node."""

    def __init__(self, nodes: Sequence[NodeProcess], name: str, first: int = 0) -> None:
        self.name = name
        self.ways_back: list[float] = []
        """Seconds from each loss of a connection to the first message after it."""
        self.farewells: list[tuple[str, str]] = []
        """What nodes said as they sent it away."""
        self._nodes = itertools.cycle([*nodes[first:], *nodes[:first]])
        self._lost_at: float | None = None

    async def peer(self) -> Peer:
        """Connect to whichever node is there."""
        while True:
            try:
                return await Peer.connect(next(self._nodes).port, self.name)
            except (Disconnected, HandshakeFailed):
                await asyncio.sleep(0.02)

    def lost(self, peer: Peer) -> None:
        self.farewells += peer.over
        peer.abort()
        if self._lost_at is None:
            self._lost_at = time.monotonic()

    def back(self) -> None:
        if self._lost_at is not None:
            self.ways_back.append(time.monotonic() - self._lost_at)
            self._lost_at = None


class Sending(Roaming):
    """Sends numbered messages, some at a time; what was not accepted is sent again, in order."""

    def __init__(self, nodes: Sequence[NodeProcess], name: str, address: str, first: int = 0) -> None:
        super().__init__(nodes, name, first)
        self.accepted: list[str] = []
        self.doubtful: set[str] = set()
        """Sent twice, because the first time was not answered."""
        self.stop = asyncio.Event()
        self._address = address
        self._waiting: dict[str, asyncio.Future[Any] | None] = {}
        self._next = 0

    async def run(self, pace: float) -> None:
        """Send until told to stop, and until all is accepted."""
        while not self.stop.is_set() or self._waiting:
            peer = await self.peer()
            try:
                await self._send(peer, pace)
                await peer.close()
            except (Disconnected, TimeoutError):
                self.doubtful |= self._waiting.keys()
                self.lost(peer)

    async def _send(self, peer: Peer, pace: float) -> None:
        async with asyncio.timeout(SILENCE):
            link = await peer.sender(self._address)
        again, self._waiting = list(self._waiting), {}
        self._waiting = dict.fromkeys(again)
        for body in again:
            await self._put(peer, link, body)
        while not self.stop.is_set():
            body = f"{self.name}/{self._next}"
            self._next += 1
            self._waiting[body] = None
            await self._put(peer, link, body)
            await self._settle(most=20)
            await asyncio.sleep(pace)
        await self._settle(most=0)

    async def _put(self, peer: Peer, link: Link, body: str) -> None:
        async with asyncio.timeout(STARVED):
            self._waiting[body] = await peer.put(link, body)

    async def _settle(self, most: int) -> None:
        while self._waiting:
            body, wait = next(iter(self._waiting.items()))
            assert wait is not None
            if not wait.done() and len(self._waiting) <= most:
                return
            async with asyncio.timeout(SILENCE):
                outcome, reason = await asyncio.shield(wait)
            if outcome == "released":
                raise Disconnected("given back")
            assert outcome == "accepted", (outcome, reason)
            del self._waiting[body]
            self.accepted.append(body)
            self.back()


class Receiving(Roaming):
    """Receives, and accepts all that comes."""

    def __init__(self, nodes: Sequence[NodeProcess], name: str, address: str, first: int = 0) -> None:
        super().__init__(nodes, name, first)
        self.got: list[str] = []
        self._address = address

    async def run(self) -> None:
        """Receive until cancelled."""
        while True:
            peer = await self.peer()
            try:
                await peer.receiver(self._address, self._take, credit=20)
                await peer.until(lambda: False)
            except (Disconnected, TimeoutError):
                self.lost(peer)
            finally:
                await peer.close()

    def _take(self, link: Link, message: bytes, delivery: Any) -> None:
        self.back()
        self.got.append(read(message))
        link.settle(delivery)
        link.set_credit(20)


class Direct:
    """An SDK client among them: it sends, or it receives."""

    def __init__(self, client: headgate.Client, name: str, address: str) -> None:
        self.name = name
        self.accepted: list[str] = []
        self.got: list[str] = []
        self.stop = asyncio.Event()
        self._client, self._address = client, address

    async def send(self, pace: float) -> None:
        async with self._client.session(self.name) as session:
            producer = await session.producer(self._address, window=4000)
            for number in itertools.count():
                if self.stop.is_set():
                    return
                body = f"{self.name}/{number}"
                await producer.send(body, timeout=60)
                self.accepted.append(body)
                await asyncio.sleep(pace)

    async def receive(self) -> None:
        async with self._client.session(self.name) as session:
            consumer = await session.consumer(self._address, window=50)
            with contextlib.suppress(headgate.Closed):
                async for message in consumer:
                    body = message.body
                    self.got.append(body if isinstance(body, str) else body.decode())
                    await message.accept()


def in_order(got: Sequence[str]) -> bool:
    """Whether each producer's messages came in order, first deliveries counted alone."""
    last: dict[str, int] = {}
    seen: set[str] = set()
    for body in got:
        if body not in seen:
            seen.add(body)
            name, _, number = body.partition("/")
            if last.get(name, -1) >= int(number):
                return False
            last[name] = int(number)
    return True


def doubled(got: Sequence[str]) -> set[str]:
    """What came more than once."""
    return {body for body, times in Counter(got).items() if times > 1}
