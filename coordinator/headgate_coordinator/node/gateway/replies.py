"""Answers and hints go back to an SDK over this link, as far as it gives credit and reads."""

import asyncio
from collections import deque
from typing import Any, Final

from headgate.amqp.calls import GATEWAY, HINT, LARGE, message, pack
from headgate.amqp.handler import Incoming
from headgate.amqp.link import Link, Terminus
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.host import Connection

HINTS_AHEAD: Final = 64 << 10
"""Bytes of answers above which hints are left out: each costs its receiver a poll."""


class Replies(LinkEnd):
    """`Replies` sends an SDK the answers and hints of one connection."""

    def __init__(self, connection: Connection, link: Link) -> None:
        super().__init__(connection, link, GATEWAY)
        self.waiting_bytes = 0
        self._ahead = connection.standing.ahead
        self._waiting: deque[bytes] = deque()
        self._posting = False
        self._room = asyncio.Event()
        self._room.set()

    async def open(self) -> None:
        """Answer the client's attach."""
        self.link.accept(Terminus(GATEWAY), self.link.target)
        self.connection.flush_soon()

    async def room(self) -> None:
        """Wait until the client has read most of what it was sent."""
        await self._room.wait()

    def say(self, number: int, *values: Any) -> None:
        """Send an answer, with all others of this turn of the loop."""
        packed = pack((number, *values))
        self._waiting.append(packed)
        self.waiting_bytes += len(packed)
        if self.waiting_bytes > self._ahead:
            self._room.clear()
        if not self._posting:
            self._posting = True
            asyncio.get_running_loop().call_soon(self._post)

    def hint(self, channel: str, words: list[str]) -> None:
        """Pass a hint on, unless much waits already."""
        if self.link.alive and self.waiting_bytes <= HINTS_AHEAD:
            self.say(HINT, channel, words)

    def _post(self) -> None:
        self._posting = False
        link, waiting = self.link, self._waiting
        if not link.alive:
            return
        while waiting and not self.connection.congested and link.room > 0:
            batch = [waiting.popleft()]
            size = len(batch[0])
            while waiting and size + len(waiting[0]) <= LARGE:
                batch.append(waiting.popleft())
                size += len(batch[-1])
            self.waiting_bytes -= size
            link.send(message(batch), settled=True)
            self.messages += 1
            self.bytes += size
        if self.waiting_bytes <= self._ahead:
            self._room.set()
        self.connection.flush()

    def received(self, messages: list[Incoming]) -> None:
        """Nothing comes in over a link that goes out."""

    def flowed(self) -> None:
        """Go on: the client has room."""
        if self._waiting and not self._posting:
            self._posting = True
            asyncio.get_running_loop().call_soon(self._post)

    def relieved(self) -> None:
        """Go on: the client reads again."""
        self.flowed()

    def gone(self, *, lost: bool) -> None:
        """Forget what was not sent; nobody waits for room any more."""
        del lost
        self._waiting.clear()
        self.waiting_bytes = 0
        self._room.set()
