"""A node without Redis and without sockets, for its connections to be played to."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from headgate._util.tasks import StepCallbacks
from headgate.core.outbox import Outgoing
from headgate.core.policy import Policy
from headgate.errors import Closed, CoordinatorUnavailable, MessageTooLarge, PolicyError
from headgate.message import Receipt
from headgate_coordinator.node.connection import Connection
from headgate_coordinator.node.credit.credits import DestinationCredits
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from tests.amqp.conversations import MESSAGE

HANDSHAKE = b"AMQP\x00\x01\x00\x00"  # a client that skips SASL says this twice over: it begins its AMQP, too


class Socket(asyncio.Transport):
    """A transport that swallows what is written."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.closed = False
        self.written = 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Take note of nothing."""

    def get_write_buffer_size(self) -> int:
        return 0

    def write(self, data: Any) -> None:
        self.written += len(data)

    def close(self) -> None:
        self.closed = True

    abort = close
    pause_reading = resume_reading = lambda _: None

    def can_write_eof(self) -> bool:
        return False

    def is_closing(self) -> bool:
        return self.closed


class Stored:
    """A way into a destination whose Redis has everything at once, later, or never."""

    is_closed = False
    kind = "queue"
    reason = "full"
    account = SimpleNamespace(is_confirming=False)
    rates = (None, None)
    queued = 0

    def __init__(self, ground: "Playground") -> None:
        self._ground = ground
        self.steps = StepCallbacks()

    @property
    def is_blocked(self) -> bool:
        return self._ground.dice.random() < 0.1

    def room(self, size: float) -> float | None:
        return None if self._ground.dice.random() < 0.1 else 100_000 / size

    def seek(self) -> None:
        """Look for nothing."""

    def left(self, item: object) -> None:
        """Forget that."""

    def weigh(self, weight: int) -> None:
        """Take note of nothing."""

    async def close(self) -> None:
        """Be closed."""

    def put(self, items: Sequence[Outgoing]) -> None:
        if self._ground.dice.random() < 0.05:
            raise Closed("the producer of 'orders' is closed")
        for item in items:
            roll = self._ground.dice.random()
            if roll < 0.1:
                self._ground.waiting.append(item.done)
            elif roll < 0.2:
                item.done.set_exception(CoordinatorUnavailable("gone"))
            elif roll < 0.25:
                item.done.set_exception(MessageTooLarge("orders", item.size, 1))
            else:
                item.done.set_result(Receipt(1, item.size))


class Supply:
    """What brings a link three messages, and no more."""

    address = SimpleNamespace(name="orders")
    subscription = "s"
    durable = False
    seeks = True
    recalls = held_messages = 0

    def __init__(self, ground: "Playground") -> None:
        self._ground = ground

    def messages(self) -> Iterator[Any]:
        for _ in range(3):
            count = self._ground.dice.randrange(3)
            yield SimpleNamespace(stored=MESSAGE, delivery_count=count, settle=self.settle)

    def look(self) -> None:
        """Look for nothing."""

    def resume(self) -> None:
        """Fetch nothing."""

    def settle(self, outcome: str, **_: Any) -> None:
        assert outcome in {"accepted", "released", "failed", "rejected"}

    async def close(self) -> None:
        if self._ground.dice.random() < 0.2:
            raise CoordinatorUnavailable("gone")


class Playground:
    """A node, and a loop for it; :meth:`play` is one connection from its first byte to its end."""

    def __init__(self) -> None:
        self.dice = random.Random(0)
        self.waiting: list[Any] = []
        self._runner = asyncio.Runner()
        self._runner.run(self._start())
        self._failures: list[Any] = []
        self._runner.get_loop().set_exception_handler(lambda _, context: self._failures.append(context))

    async def _start(self) -> None:
        client: Any = SimpleNamespace(
            namespace="n",
            session=lambda *_, **__: self,
            browse=lambda *_: self.seen(),
            unsubscribe=self.unsubscribe,
            remove=self.unsubscribe,
            parts=SimpleNamespace(
                registry=SimpleNamespace(
                    index=SimpleNamespace(entries=self.entries),
                    policies=SimpleNamespace(policy=Policy(0, ()), current=self._redis),
                ),
                tracing=None,
            ),
            destinations=self.names,
        )
        self._node = Node(
            client, NodeOptions(name="node", credit=10, low_credit=3, held=3000), Users.from_file(Path("none"))
        )
        self._node.lines = DestinationCredits(client, self, self._node.options)  # type: ignore[arg-type]
        self._node._session = SimpleNamespace(id="node~1")  # type: ignore[assignment]

    @property
    def consumers(self) -> "Playground":
        return self

    async def inflow(self, *_: Any, **__: Any) -> Stored:
        await self._redis()
        return Stored(self)

    async def feed(self, _: Any, sink: Any) -> Any:
        await self._redis()
        supply = Supply(self)
        taking = sink(supply)
        for message in supply.messages():
            taking.deliver(message)
        return supply

    async def topics(self, _: Any, receivers: Any) -> Any:
        await self._redis()
        supply: Any = Supply(self)
        supply.feeds, supply.created = {}, set()
        supply.shared = SimpleNamespace(under_way={}, room=lambda *_: (1, 1), freed=lambda: None)
        taking = receivers(supply)
        lane = taking.sink(supply)
        for message in supply.messages():
            lane.deliver(message)
        return supply

    async def _redis(self) -> None:
        await asyncio.sleep(0)
        if self.dice.random() < 0.1:
            raise self.dice.choice((PolicyError("no"), CoordinatorUnavailable("gone")))

    async def seen(self) -> Any:
        for _ in range(3):
            await asyncio.sleep(0)
            yield SimpleNamespace(stored=MESSAGE)

    async def unsubscribe(self, *_: Any) -> None:
        await self._redis()

    async def names(self) -> list[str]:
        await self._redis()
        return []

    async def entries(self, _: str) -> list[Any]:
        await self._redis()
        return []

    async def close(self) -> None:
        await self._redis()

    def play(self, dice: random.Random, data: bytes) -> None:
        self.dice = dice
        self._runner.run(self._play(dice, data))
        assert not self._failures, self._failures

    async def _play(self, dice: random.Random, data: bytes) -> None:
        connection = Connection(self._node, encrypted=False)
        socket = Socket()
        connection.connection_made(socket)
        for piece in _pieces(dice, data):
            if socket.closed:
                break
            connection.data_received(piece)
            if dice.random() < 0.5:
                await asyncio.sleep(0)
            if dice.random() < 0.05:
                self._tell()
            if dice.random() < 0.02:
                connection.pause_writing()
                connection.resume_writing()
            if dice.random() < 0.01:
                connection.rest()
            if dice.random() < 0.01:
                connection.send_away("amqp:connection:forced", "elsewhere")
        if dice.random() < 0.5:
            connection.eof_received()
        connection.connection_lost(None)
        while self._node._tasks:
            self._tell()
            await asyncio.sleep(0)
        self._tell()
        assert (connection.held, self._node.orphaned) == (0, 0)
        assert not self._node.connections

    def _tell(self) -> None:
        waiting, self.waiting = self.waiting, []
        for done in waiting:
            if not done.done():
                done.set_result(Receipt(1, 1))


def _pieces(dice: random.Random, data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        size = dice.choice((7, 100, 1000, 100_000))
        yield data[at : at + size]
        at += size
