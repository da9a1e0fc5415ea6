"""The AMQP client that the bench measures with: Headgate's engine on a socket, and as little else as can be."""

import asyncio
import itertools
import os
from collections.abc import Awaitable, Callable
from typing import Any, Final

import headgate.amqp.peer
from headgate.amqp.handler import Incoming
from headgate.amqp.limits import Limits
from headgate.amqp.link import Fate, Link, Outcome, Terminus

FORGIVEN: Final = 10_000
"""Messages beyond their credit that receivers take all the same: RabbitMQ 4.0 sends one to three now and then."""
Noted = Callable[[], None]
_numbers = itertools.count(1)


def encoded(body: bytes) -> bytes:
    """Return an AMQP message: one data section."""
    return b"\x00\x53\x75\xb0" + len(body).to_bytes(4, "big") + body


class Peer(headgate.amqp.peer.Peer):
    """One connection; each of its ends has a session, so that none stands in another's way, unless they share one."""

    __slots__ = ("session",)

    @classmethod
    async def connect(cls, host: str, port: int) -> "Peer":
        """Return an open connection, in a container of its own: the next of the same name would steal its links."""
        peer = cls(f"bench-{os.getpid()}-{next(_numbers)}", limits=Limits(window=1 << 27))
        peer.session = None
        await peer.reach(host, port)
        return peer

    def share_session(self) -> None:
        """Have all ends from now on use one session, as most clients do."""
        self.session = self.engine.session()

    def attach(self, end: "End", name: str, *, receives: bool, settled: bool) -> Link:
        """Begin a link."""
        there = Terminus(end.destination)
        return self.link(name, there, receives=receives, presettled=settled, user=end, session=self.session)

    def answered(self, link: Link) -> None:
        """Note that a link is there."""
        link.user.attached.set_result(None)

    def received(self, link: Link, messages: list[Incoming]) -> None:
        """Hand messages on."""
        link.user.received(messages)
        self.flush_soon()

    def flowed(self, link: Link) -> None:
        """Go on sending."""
        link.user.pump()

    def settled(self, link: Link, fates: list[Fate]) -> None:
        """Hand outcomes on."""
        for _, outcome, reason, _ in fates:
            link.user.settled(outcome, reason)

    def detached(self, link: Link) -> None:
        """Fail loudly: nothing here is meant to be detached."""
        raise RuntimeError(f"the node ended link {link.name!r}: {link.condition}")

    def relieved(self) -> None:
        """Go on sending."""
        for link in self.engine.links.values():
            link.user.pump()


class End:
    """One end of a link, of which so many messages are asked at a time."""

    def __init__(self, peer: Peer, destination: str) -> None:
        self.peer, self.destination = peer, destination
        self.attached = asyncio.get_running_loop().create_future()
        self.link: Link
        self.done = asyncio.Event()
        self.noted: Noted = lambda: None
        """Called at every message that is accepted, or that came."""

    def pump(self) -> None:
        """Send what may be sent."""


class Sender(End):
    """Sends as fast as its credit lets it; unsettled, it is done when every message is accepted."""

    def __init__(self, peer: Peer, destination: str, size: int, *, settled: bool = False) -> None:
        super().__init__(peer, destination)
        self.message = encoded(b"x" * size)
        self.presettled = settled
        self.to_send = self.unanswered = self.accepted = 0

    async def attach(self) -> None:
        """Be ready."""
        self.link = self.peer.attach(self, "send", receives=False, settled=self.presettled)
        await self.attached

    def push(self, count: int) -> None:
        """Send so many more, as soon as there is credit."""
        self.done.clear()
        self.to_send += count
        self.pump()

    async def run(self, count: int) -> None:
        """Send so many."""
        self.push(count)
        await self.done.wait()

    def pump(self) -> None:
        """Send as far as the credit reaches."""
        link, credit = self.link, min(self.link.credit, self.to_send)
        while credit > 0 and not self.peer.congested:
            link.send(self.message, settled=self.presettled)
            credit -= 1
            self.to_send -= 1
            self.unanswered += not self.presettled
        self._look()
        self.peer.flush_soon()

    def settled(self, outcome: Outcome, reason: str) -> None:
        """Count what the node has."""
        if outcome != "accepted":
            raise RuntimeError(f"the node answered {outcome}: {reason}")
        self.unanswered -= 1
        self.accepted += 1
        self.noted()
        self._look()

    def _look(self) -> None:
        if not self.to_send and not self.unanswered:
            self.done.set()


class Receiver(End):
    """Receives and accepts; its credit is topped up when few are left."""

    def __init__(
        self, peer: Peer, destination: str, credit: int, low: int, *, settled: bool = False, keep: bool = False
    ) -> None:
        super().__init__(peer, destination)
        self.credit, self.low, self.presettled, self.keep = credit, low, settled, keep
        self.missing = 0
        self.kept: list[Any] = []
        """Deliveries to be settled by hand, where that is asked for."""

    async def attach(self) -> None:
        """Be ready, without credit."""
        self.link = self.peer.attach(self, "receive", receives=True, settled=self.presettled)
        self.link.slack = FORGIVEN
        await self.attached

    async def run(self, count: int) -> None:
        """Receive so many; those that came without credit before are among them, as RabbitMQ 4.0 sends some."""
        self.missing += count
        if self.missing <= 0:
            return
        self.done.clear()
        self._top_up()
        await self.done.wait()

    def received(self, messages: list[Incoming]) -> None:
        """Accept messages."""
        for _, delivery in messages:
            if self.keep:
                self.kept.append(delivery)
            elif delivery is not None:
                self.link.settle(delivery)
            self.noted()
        self.missing -= len(messages)
        if self.missing <= 0:
            self.done.set()
        self._top_up()

    def _top_up(self) -> None:
        if self.link.credit <= min(self.low, self.missing - 1):
            self.link.set_credit(min(self.credit, self.missing))
            self.peer.flush_soon()

    def settle_one(self) -> None:
        """Accept the oldest that is kept, and send the word at once."""
        self.link.settle(self.kept.pop(0))
        self.peer.flush()


async def sender(port: int, destination: str, size: int, *, settled: bool) -> Callable[[int], Awaitable[None]]:
    """Return what sends so many messages, over a connection of its own."""
    end = Sender(await Peer.connect("127.0.0.1", port), destination, size, settled=settled)
    await end.attach()
    return end.run


async def receiver(
    port: int, destination: str, credit: int, low: int, *, settled: bool
) -> Callable[[int], Awaitable[None]]:
    """Return what receives so many messages, over a connection of its own."""
    end = Receiver(await Peer.connect("127.0.0.1", port), destination, credit, low, settled=settled)
    await end.attach()
    return end.run
