"""A link's end is the node's side of a client's link."""

import asyncio
import contextlib
import logging
from collections.abc import Coroutine
from typing import Any

from headgate.amqp.handler import Incoming
from headgate.amqp.link import UNAUTHORIZED, Fate, Link
from headgate.core.printable import printable
from headgate_coordinator.fleet.node_facts import LinkFacts
from headgate_coordinator.node.conditions import condition_of
from headgate_coordinator.node.host import Connection
from headgate_coordinator.security import Action

_log = logging.getLogger("headgate.node")


class LinkEnd:
    """A link's end gets the events of one link of one connection, and none of them after :meth:`gone`.

    Attributes:
        connection: whose it is.
        link: the link itself.
        destination: the name of what it leads to.
        messages: how many went over it.
        bytes: and how many bytes.
    """

    __slots__ = ("__weakref__", "_task", "bytes", "connection", "destination", "link", "messages", "number")

    def __init__(self, connection: Connection, link: Link, destination: str) -> None:
        self.connection = connection
        self.link = link
        self.destination = destination
        self.messages = self.bytes = 0
        self.number = next(connection.node.numbers)
        self._task: asyncio.Task[None] | None = None

    def begin(self, opening: Coroutine[Any, Any, None]) -> None:
        """Open it without keeping the others waiting; what goes wrong refuses the link."""
        self._task = asyncio.create_task(self._guard(opening), name=f"headgate link {self.link.name}")

        def over(_: object) -> None:
            opening.close()  # one that was cancelled at once was never begun
            self._task = None  # a link may stand for days: it keeps nothing of how it was opened

        self._task.add_done_callback(over)

    async def _guard(self, opening: Coroutine[Any, Any, None]) -> None:
        if not self.link.alive:
            return
        try:
            await opening
        except Exception as error:  # noqa: BLE001 -- any error goes to the client, and the node goes on
            condition, description = condition_of(error)
            self.fail(condition, description)

    def fail(self, condition: str, description: str, *, lost: bool = False) -> None:
        """End the link, and say why; ``lost``: as its connection must have broken."""
        if self.link.alive:
            if not self.link.is_open:
                self.link.refuse(condition, description)
            else:
                self.link.close(condition, description)
            name = printable(self.link.name, 100)
            _log.info("%s: link %s ends: %s: %s", self.connection.client, name, condition, description)
            self.connection.part(self, lost=lost)
            self.connection.flush_soon()

    @property
    def name(self) -> str:
        """The name of what it leads to: its address without options."""
        return self.destination.partition("?")[0]

    @property
    def needs(self) -> Action | None:
        """The action that the user must be permitted at :attr:`name`; None where each message or call is checked."""
        return None

    def look_again(self) -> None:
        """End the link unless the user may do, by the users as they are now, what it is for."""
        action, access = self.needs, self.connection.access
        if action is not None and self.link.alive and not access.may(action, self.name):
            reason = access.refusal(action, self.name)
            self.connection.node.counters.refused("permission")
            self.abandon()
            self.fail(UNAUTHORIZED, reason)

    def abandon(self) -> None:
        """Drop what the client sent and what is not stored yet: its user may not send it any more."""

    def received(self, messages: list[Incoming]) -> None:
        """Take messages."""
        raise NotImplementedError

    def flowed(self) -> None:
        """Note other credit than before."""

    def settled(self, fates: list[Fate]) -> None:
        """Note what became of messages."""

    def relieved(self) -> None:
        """Note that the client reads again."""

    def changed(self) -> None:
        """Note that the client's user may do other things than before."""

    def rated(self) -> None:
        """Go by the quotas that users have now; who sends nothing has none."""

    def rest(self) -> None:
        """Begin nothing more, for the node is about to stop; what the client holds may still be settled."""
        if self.link.receives and self.link.is_open:
            self.link.set_credit(0)

    @property
    def unsettled(self) -> int:
        """Messages that the client holds."""
        return 0

    def gone(self, *, lost: bool) -> None:
        """Note that the link is over; ``lost``: because the connection broke."""
        del lost

    async def finish(self) -> None:
        """Let what was begun come to its end."""
        if self._task and not self._task.done():
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def facts(self) -> LinkFacts:
        """Return what operators see of it."""
        link, connection = self.link, self.connection
        waiting, reason = self.waiting or (None, "")
        return LinkFacts(
            id=f"{self.number}:{printable(link.name, 190)}",
            client=connection.client,
            user=connection.identity.name if connection.identity else "",
            direction="from client" if link.receives else "to client",
            destination=self.destination,
            link_credit=max(0, link.credit) if link.is_open else 0,
            unsettled=link.unsettled if link.is_open else 0,
            waiting_seconds=waiting,
            reason=reason,
            messages=self.messages,
            bytes=self.bytes,
        )

    @property
    def waiting(self) -> tuple[float, str] | None:
        """For how many seconds it has waited, and why; None when it does not."""
        return None
