"""The experience of producers when there is no room, asked in the same way of Headgate's nodes and of ActiveMQ."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

LIMIT = 1 << 20
SIZE = 1024
STREAM = 20_000
"""Messages that a client has to send where there is room for far fewer."""
STILL = 1.0
"""Seconds without a sign of life after which a sender counts as blocked."""
PATIENCE = 1.0
"""Seconds that another producer waits for its receipt."""


class Sending(Protocol):
    """A sender, of either wire."""

    accepted: int
    unanswered: int
    noted: Callable[[], None]

    def push(self, count: int) -> None:
        """Send so many more, as soon as that can be."""


class Receiving(Protocol):
    """A receiver that keeps what comes until it is ordered to settle it."""

    kept: list[bytes]
    noted: Callable[[], None]

    async def run(self, count: int) -> None:
        """Receive so many."""

    def settle_one(self) -> None:
        """Settle the oldest, at once."""


class Beat:
    """Wakes its waiter whenever something is noted."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def __call__(self) -> None:
        """Note it."""
        self._event.set()

    async def until(self, done: Callable[[], bool]) -> None:
        """Wait for a condition that something noted makes true."""
        while not done():
            self._event.clear()
            await asyncio.wait_for(self._event.wait(), 20)


async def blocked(*counts: Callable[[], int]) -> None:
    """Wait until nothing has been counted for a while."""
    last: list[int] = []
    while last != (last := [count() for count in counts]):  # noqa: ASYNC110 -- that nothing happens is no event
        await asyncio.sleep(STILL)


async def unblocking(sender: Sending, receiver: Receiving, samples: int) -> list[float]:
    """Return milliseconds from a settlement to the receipt of the send that it let through.

    There must be room for one message, so that every send but the first waits.
    """
    receipt, message, waits = Beat(), Beat(), []
    sender.noted, receiver.noted = receipt, message
    receiving = asyncio.create_task(receiver.run(samples + 1))
    sender.push(samples + 1)
    for number in range(samples):
        await message.until(lambda: bool(receiver.kept))
        await receipt.until(lambda number=number: sender.accepted > number)  # type: ignore[misc]
        await asyncio.sleep(0.005)  # the next is in line by now: what is measured is its way out
        accepted, began = sender.accepted, time.perf_counter()
        receiver.settle_one()
        await receipt.until(lambda accepted=accepted: sender.accepted > accepted)  # type: ignore[misc]
        waits.append((time.perf_counter() - began) * 1000)
    await message.until(lambda: bool(receiver.kept))
    receiver.settle_one()
    await receiving
    return waits


@dataclass(slots=True)
class Neighbour:
    """How another producer of the same connection fared, while the first was blocked.

    Attributes:
        sent: messages that it sent, one after the other.
        answered: those that were stored in time.
        waits: milliseconds until each was, or until it was given up.
    """

    sent: int
    answered: int
    waits: list[float]


async def neighbour(sender: Sending, samples: int) -> Neighbour:
    """Send one message after the other; a producer that is not answered gives up."""
    receipt, waits, answered = Beat(), [], 0
    sender.noted = receipt
    for number in range(samples):
        began = time.perf_counter()
        sender.push(1)
        try:
            await asyncio.wait_for(receipt.until(lambda number=number: sender.accepted > number), PATIENCE)  # type: ignore[misc]
        except TimeoutError:
            waits.append(PATIENCE * 1000)
            break
        waits.append((time.perf_counter() - began) * 1000)
        answered += 1
    return Neighbour(len(waits), answered, waits)
