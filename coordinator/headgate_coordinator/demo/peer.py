"""An AMQP 1.0 client with one link, as small as it can be: its user asks, and learns when to ask again."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final

import headgate.amqp.peer
from headgate.amqp.handler import Incoming
from headgate.amqp.link import Fate, Link, Outcome, Terminus
from headgate.amqp.peer import Disconnected
from headgate_coordinator.demo import QUEUE

HANDSHAKE: Final = 5.0
PAUSE: Final = 0.05
"""Seconds before the next node is tried."""


class Peer(headgate.amqp.peer.Peer):
    """A peer is one connection to a node, with one link to the demo's queue.

    Attributes:
        only: the client's end of its link.
        arrived: messages that came in and were not looked at.
        outcomes: of messages that went out, not looked at yet: what its sender calls it, what became of it, why.
    """

    def __init__(self, name: str, *, receives: bool) -> None:
        super().__init__(name, patience=HANDSHAKE)
        self.only: Link
        self.arrived: deque[Incoming] = deque()
        self.outcomes: deque[tuple[Any, Outcome, str]] = deque()
        self._sent: dict[Any, Any] = {}
        self._receives = receives

    @property
    def usable(self) -> bool:
        """Whether its link can be used."""
        return self.only.alive and not (self.over or self.lost)

    async def attach(self, host: str, port: int) -> bool:
        """Connect and wait until the link is attached; returns whether it is."""
        try:
            async with asyncio.timeout(HANDSHAKE):
                await self.reach(host, port)
                self.only = self.link(self.name, Terminus(QUEUE, capabilities=("queue",)), receives=self._receives)
                await self.until(lambda: (self.only.source if self._receives else self.only.target).address, self.only)
        except (Disconnected, TimeoutError):
            return False
        return True

    async def wait(self, timeout: float) -> None:
        """Wait until something happened, for a while at most."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.changed.wait(), timeout)
        self.changed.clear()

    def send(self, payload: bytes, called: Any) -> None:
        """Send a message; there must be credit."""
        self._sent[self.only.send(payload)] = called
        self.flush_soon()

    def received(self, link: Link, messages: list[Incoming]) -> None:
        """Keep messages until they are asked for."""
        self.arrived += messages
        super().received(link, messages)

    def settled(self, link: Link, fates: list[Fate]) -> None:
        """Keep outcomes until they are asked for."""
        self.outcomes += [(self._sent.pop(delivery), outcome, reason) for delivery, outcome, reason, _ in fates]
        super().settled(link, fates)


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
            if await peer.attach(host, int(port)):
                yield names[at], peer
        finally:
            await peer.close()
        at = (at + 1) % len(names)
        await asyncio.sleep(PAUSE)
