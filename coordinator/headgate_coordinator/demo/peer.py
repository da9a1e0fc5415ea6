"""An AMQP 1.0 client with one link, as small as it can be: its user asks, and learns when to ask again."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from headgate.amqp.engine import Engine
from headgate.amqp.handler import Incoming
from headgate.amqp.limits import Limits
from headgate.amqp.link import NOT_ALLOWED, Link, Outcome, Terminus
from headgate.amqp.sasl import SaslClient
from headgate.amqp.wire import Wire
from headgate_coordinator.demo import QUEUE

HANDSHAKE: Final = 5.0
PAUSE: Final = 0.05
"""Seconds before the next node is tried."""


class Peer(Wire):
    """One connection to a node, with one link to the demo's queue.

    Attributes:
        arrived: messages that came in and were not looked at.
        outcomes: of messages that went out, not looked at yet: what its sender calls it, what became of it, why.
    """

    def __init__(self, name: str, *, receives: bool) -> None:
        super().__init__(SaslClient(None, None, "localhost"), handshake=HANDSHAKE)
        self.link: Link
        self.arrived: deque[Incoming] = deque()
        self.outcomes: deque[tuple[Any, Outcome, str]] = deque()
        self._sent: dict[Any, Any] = {}
        self._name = name
        self._receives = receives
        self._attached = self._over = False
        self._changed = asyncio.Event()

    @property
    def usable(self) -> bool:
        """Whether its link is attached, and can be used."""
        return self._attached and not self._over and not self.lost

    async def reach(self, host: str, port: int) -> bool:
        """Connect and wait until the link is attached; returns whether it is."""
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(HANDSHAKE):
                await self._loop.create_connection(lambda: self, host, port)
                while not (self._attached or self._over or self.lost):
                    await self.wait()
        return self.usable

    async def wait(self, timeout: float = HANDSHAKE) -> None:
        """Wait until something happened, for a while at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout)
        self._changed.clear()

    def send(self, payload: bytes, called: Any) -> None:
        """Send a message; there must be credit."""
        self._sent[self.link.send(payload)] = called
        self.flush_soon()

    async def close(self) -> None:
        """Say goodbye: what was not settled goes back."""
        if not self.lost and self._attached:
            self.link.close()
            self.engine.close()
            self.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HANDSHAKE):
                    while not self.lost:
                        await self.wait()
        self.abort()

    def make_engine(self) -> Engine:
        """Return the engine, and have it say who we are."""
        engine = Engine(self, server=False, container=self._name, limits=Limits(), hostname="localhost")
        engine.open()
        return engine

    def opened(self) -> None:
        """Begin the link."""
        self.settled_in()
        self.link = self.engine.attach(self.engine.session(), self._name, receives=self._receives)
        there, here = Terminus(QUEUE, capabilities=("queue",)), Terminus(self._name)
        self.link.accept(*((there, here) if self._receives else (here, there)))

    def answered(self, link: Link) -> None:
        """Note that the link can be used; one that is refused has no address, and is detached next."""
        self._attached = (link.source if self._receives else link.target).address is not None
        self._changed.set()

    def attached(self, link: Link) -> None:
        """Take no link: we begin them."""
        link.refuse(NOT_ALLOWED, "this client begins its links itself")

    def received(self, link: Link, messages: list[Incoming]) -> None:
        """Keep messages until they are asked for."""
        del link
        self.arrived += messages
        self._changed.set()

    def settled(self, link: Link, delivery: Any, outcome: Outcome, reason: str) -> None:
        """Keep an outcome until it is asked for."""
        self.outcomes.append((self._sent.pop(delivery), outcome, reason))
        link.forget(delivery)  # its memory may be that of the next one
        self._changed.set()

    def flowed(self, link: Link) -> None:
        """Note other credit."""
        del link
        self._changed.set()

    def detached(self, link: Link) -> None:
        """Note that the link is over."""
        del link
        self._over = True
        self._changed.set()

    def closed(self, condition: str, description: str) -> None:
        """Note that the node goes."""
        del condition, description
        self._over = True
        self._changed.set()

    def went(self, error: Exception | None) -> None:
        """Note that the socket is closed."""
        del error
        self._changed.set()


async def connections(
    name: str, nodes: Mapping[str, str], first: str, *, receives: bool
) -> AsyncGenerator[tuple[str, Peer], None]:
    """Yield a connection whenever the last one is over, and the node's name: the first, or the next that answers.

    Args:
        name: of the client.
        nodes: ``host:port`` of each node, by name.
        first: the node to begin with.
        receives: whether its link receives.
    """
    names = list(nodes)
    at = names.index(first)
    while True:
        host, _, port = nodes[names[at]].rpartition(":")
        peer = Peer(name, receives=receives)
        try:
            if await peer.reach(host, int(port)):
                yield names[at], peer
        finally:
            await peer.close()
        at = (at + 1) % len(names)
        await asyncio.sleep(PAUSE)
