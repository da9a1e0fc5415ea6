"""A browser only looks: its link gets stored messages, oldest first, settled as sent and left where they are."""

import asyncio

from headgate.amqp.handler import Incoming
from headgate.amqp.link import TOO_LARGE, Fate, Link, Terminus
from headgate.message import to_amqp
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.host import Connection
from headgate_coordinator.security import Action

PAGE = 100


class LinkBrowser(LinkEnd):
    """Shows what a destination holds, to a source whose distribution mode is ``copy``; takes no credit of anybody."""

    def __init__(self, connection: Connection, link: Link, destination: str) -> None:
        super().__init__(connection, link, destination)
        self._more = asyncio.Event()
        self._drains = False

    @property
    def needs(self) -> Action | None:
        """To look."""
        return Action.BROWSE

    async def open(self) -> None:
        """Answer the client's attach, and show what there is whenever it has credit."""
        self.link.presettled = not self.link.asks_unsettled
        self.link.accept(Terminus(self.destination, browse=True), self.link.target)
        self.connection.flush_soon()
        browsed = self.connection.node.client.browse(self.destination)
        async for seen in browsed:
            while self.link.alive and (self.link.room <= 0 or self.connection.congested):
                self._more.clear()
                await self._more.wait()
            if not self.link.alive:
                return
            payload, most = to_amqp(seen.stored), self.link.peer_max_message
            if most and len(payload) > most:
                self.fail(TOO_LARGE, f"a message of {len(payload)} bytes; this receiver takes {most}")
                return
            self.link.send(payload, settled=self.link.presettled)
            self.messages += 1
            self.bytes += len(seen.stored)
            self.connection.flush_soon()
        while self.link.alive:  # it has seen all there was: its credit is of no use
            if self._drains:
                self._drains = False
                self.link.drained()
                self.connection.flush_soon()
            self._more.clear()
            await self._more.wait()

    def received(self, messages: list[Incoming]) -> None:
        """Nothing comes in over a link that goes out."""

    def flowed(self) -> None:
        """Note that there is credit."""
        self._drains = self.link.drains
        self._more.set()

    def settled(self, fates: list[Fate]) -> None:
        """Do nothing: messages that were shown stay where they are, whatever the client says of them."""

    def relieved(self) -> None:
        """Note that the client reads again."""
        self._more.set()

    def gone(self, *, lost: bool) -> None:
        """Stop."""
        del lost
        if self._task:
            self._task.cancel()
