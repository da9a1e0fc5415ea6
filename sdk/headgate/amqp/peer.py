"""A peer is a small AMQP client on a socket: one connection that keeps the rules, with links of its own."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from headgate.amqp.engine import Engine
from headgate.amqp.handler import Incoming
from headgate.amqp.limits import Limits
from headgate.amqp.link import NOT_ALLOWED, Fate, Link, Terminus
from headgate.amqp.sasl import SaslClient
from headgate.amqp.wire import Wire

PATIENCE: Final = 30.0


class Disconnected(ConnectionError):
    """The connection or a link is over, or was never there."""


class Peer(Wire):
    """A peer has one connection. It notes events of its links in :attr:`changed`; a subclass does more.

    Args:
        name: of the container.
        user: to log in as; None for nobody.
        password: of the user.
        limits: that the engine keeps.
        patience: seconds for the handshake, and for the last words.

    Attributes:
        changed: set whenever something happened.
        over: condition and description with which the node closed the connection, or broke the protocol.
    """

    def __init__(
        self,
        name: str,
        *,
        user: str | None = None,
        password: str | None = None,
        limits: Limits | None = None,
        patience: float = PATIENCE,
    ) -> None:
        super().__init__(SaslClient(user, password, "localhost"), handshake=patience)
        self.name = name
        self.over: list[tuple[str, str]] = []
        self.changed = asyncio.Event()
        self._limits, self._patience = limits or Limits(), patience

    async def reach(self, host: str, port: int, *, within: float | None = None) -> None:
        """Connect within that many seconds, by default its patience; returns when the connection is open.

        Raises:
            Gone: there is no node, or it refuses, or does not answer.
        """
        try:
            async with asyncio.timeout(self._patience if within is None else within):
                await self._loop.create_connection(lambda: self, host, port)
                await self.until(self._opened)
        except (OSError, TimeoutError) as error:
            self.abort()
            raise Disconnected(str(error) or "the node does not answer") from error
        if self.lost or self.over:  # it was refused in the same breath
            self.abort()
            raise Disconnected(str(self.over))

    async def until(self, true: Callable[[], Any], link: Link | None = None) -> None:
        """Wait until something is true.

        Raises:
            Gone: the connection, or the link, ended first.
        """
        while not true():
            if self.lost or self.over or (link and not link.alive):
                raise Disconnected(f"{self.over} {link.user if link else ''}")
            self.changed.clear()
            await self.changed.wait()

    def link(
        self,
        name: str,
        there: Terminus,
        *,
        receives: bool,
        presettled: bool = False,
        user: object = None,
        session: Any = None,
    ) -> Link:
        """Begin a link; what it says goes out soon.

        Args:
            name: of the link.
            there: what it receives from, or sends to.
            receives: whether it receives.
            presettled: whether what goes over it is settled by its sender.
            user: kept with it.
            session: of the engine; None for one of its own.
        """
        link = self.engine.attach(session or self.engine.session(), name, receives=receives, presettled=presettled)
        link.user = user
        here = Terminus(self.name)
        link.accept(*((there, here) if receives else (here, there)))
        self.flush_soon()
        return link

    async def close(self) -> None:
        """Say good-bye and wait for the end: what was not settled goes back."""
        if not self.lost and self._secured:
            self.engine.close()
            self.flush()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._patience):
                    while not self.lost:
                        self.changed.clear()
                        await self.changed.wait()
        self.abort()

    def make_engine(self) -> Engine:
        """Return the engine, and have it say who we are."""
        engine = Engine(self, server=False, container=self.name, limits=self._limits, hostname="localhost")
        engine.open()
        return engine

    def opened(self) -> None:
        """Note that the node let us in."""
        self.settled_in()
        self.changed.set()

    def attached(self, link: Link) -> None:
        """Take no link: we begin them."""
        link.refuse(NOT_ALLOWED, "this client begins its links itself")

    def answered(self, _link: Link) -> None:
        """Note that a link is answered; one that is refused has no address, and is detached next."""
        self.changed.set()

    def received(self, _link: Link, _messages: list[Incoming]) -> None:
        """Note messages that came in."""
        self.changed.set()

    def flowed(self, _link: Link) -> None:
        """Note other credit."""
        self.changed.set()

    def settled(self, _link: Link, _fates: list[Fate]) -> None:
        """Note outcomes."""
        self.changed.set()

    def detached(self, link: Link) -> None:
        """Note that a link is over, and why."""
        link.user = link.condition
        self.changed.set()

    def closed(self, condition: str, description: str) -> None:
        """Note that the node goes."""
        self.over.append((condition, description))
        self.changed.set()

    def went(self, _error: Exception | None) -> None:
        """Note that the socket is closed."""
        self.changed.set()
