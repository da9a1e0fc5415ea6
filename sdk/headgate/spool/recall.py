"""One consumer's spooled deliveries on their way back from the store, in order, while it goes on with its calls."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headgate._util.tasks import stop
from headgate.core.segment import is_reference
from headgate.redis.keys import Address
from headgate.spool.reader import UnreadablePayload

if TYPE_CHECKING:
    from headgate.message import Message
    from headgate.spool import Spooling


GONE: Final = "gone"
"""The error of a delivery that was purged, or expired, while its payload was on its way: nobody waits for it."""


class RecallQueue:
    """A recall queue holds the line of a consumer's deliveries from the first whose payload is not here yet.

    Args:
        spooling: the client's; None where payloads come as they are.
        address: the consumer's destination.
        arrived: called with each message that became whole, in order, and with the error of one that cannot be read.
    """

    __slots__ = ("_address", "_arrived", "_spooling", "_task", "line")

    def __init__(
        self, spooling: "Spooling | None", address: Address, arrived: "Callable[[Message, int, str], None]"
    ) -> None:
        self._spooling = spooling
        self._address = address
        self._arrived = arrived
        self.line: list[tuple[Message, int]] = []  # no deque, which takes 0.7 KiB of each consumer when it is empty
        """Deliveries that wait for a payload, or behind one that does."""
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self.line)

    def put(self, message: "Message", attempts: int) -> bool:
        """Take a delivery, which arrives once it and all before it are whole; returns whether it is so already."""
        if not self.line and not (self._spooling and is_reference(message.stored)):
            return True
        self.line.append((message, attempts))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work(), name=f"headgate recall {self._address.name}")
        return False

    def clear(self) -> None:
        """Forget all: they were given to others."""
        self.line.clear()

    async def close(self) -> None:
        """Stop."""
        self.line.clear()
        await stop(self._task)

    async def _work(self) -> None:
        while self.line:
            message, attempts = self.line[0]
            trouble, spooling = "", self._spooling
            if spooling and is_reference(message.stored):
                payload = spooling.reader.at_hand(self._address, message.stored)
                if payload is None:
                    payload, trouble = await self._read(spooling, message)
                message.stored = payload
            if self.line and self.line[0][0] is message:  # else all was given to others meanwhile
                del self.line[0]
                self._arrived(message, attempts, trouble)

    async def _read(self, spooling: "Spooling", message: "Message") -> tuple[bytes, str]:
        """Return a payload that is not at hand, or what stands for it, and why nobody can read it."""
        if spooling.reaches:
            spooling.sweeper.watch(self._address)
        payload = await spooling.reader.payload(self._address, message.stored)
        if not isinstance(payload, UnreadablePayload):
            return payload, ""
        gone = not await spooling.has(self._address, message.id)
        return payload.stub, GONE if gone else payload.trouble
