"""The demo's AMQP clients: one connection at a time with one link, to the first node that answers."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

from headgate.amqp.handler import Incoming
from headgate.amqp.link import Link, Outcome, Terminus
from headgate.amqp.peer import Gone, Peer
from headgate_coordinator.demo import QUEUE

HANDSHAKE: Final = 5.0
PAUSE: Final = 0.05
"""Seconds before the next node is tried."""


class QueuePeer(Peer):
    """A connection with one link to the demo's queue, which is asked, and says when to ask again.

    Attributes:
        queue: the link, once it is begun.
        arrived: messages that came in and were not looked at.
        outcomes: of messages that went out, not looked at yet: what its sender calls it, what became of it, why.
    """

    def __init__(self, name: str, *, receives: bool) -> None:
        super().__init__(name, patience=HANDSHAKE)
        self.queue: Link
        self.arrived: deque[Incoming] = deque()
        self.outcomes: deque[tuple[Any, Outcome, str]] = deque()
        self._sent: dict[Any, Any] = {}
        self._receives = receives
        self._attached = False

    @property
    def usable(self) -> bool:
        """Whether its link is attached, and can be used."""
        return self._attached and self.queue.alive and not (self.over or self.lost)

    async def begin(self, host: str, port: int) -> bool:
        """Connect and wait until the link is attached; returns whether it is."""
        with contextlib.suppress(Gone, TimeoutError):
            async with asyncio.timeout(HANDSHAKE):
                await self.reach(host, port)
                there = Terminus(QUEUE, capabilities=("queue",))
                self.queue = self.link(self.name, there, receives=self._receives)
                await self.until(lambda: self._attached, self.queue)
        return self.usable

    async def wait(self, timeout: float) -> None:
        """Wait until something happened, for a while at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), timeout)
        self.changed.clear()

    def send(self, payload: bytes, called: Any) -> None:
        """Send a message; there must be credit."""
        self._sent[self.queue.send(payload)] = called
        self.flush_soon()

    def answered(self, link: Link) -> None:
        """Note that the link can be used; one that is refused has no address, and is detached next."""
        self._attached = (link.source if self._receives else link.target).address is not None
        super().answered(link)

    def received(self, link: Link, messages: list[Incoming]) -> None:
        """Keep messages until they are asked for."""
        self.arrived += messages
        super().received(link, messages)

    def settled(self, link: Link, delivery: Any, outcome: Outcome, reason: str) -> None:
        """Keep an outcome until it is asked for."""
        self.outcomes.append((self._sent.pop(delivery), outcome, reason))
        super().settled(link, delivery, outcome, reason)


async def connections(
    name: str, nodes: Mapping[str, str], first: str, *, receives: bool
) -> AsyncGenerator[tuple[str, QueuePeer], None]:
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
        peer = QueuePeer(name, receives=receives)
        try:
            if await peer.begin(host, int(port)):
                yield names[at], peer
        finally:
            await peer.close()
        at = (at + 1) % len(names)
        await asyncio.sleep(PAUSE)
