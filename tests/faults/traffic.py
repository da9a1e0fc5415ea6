"""What goes on at a deployment while it fails: senders, holders of a gate, and what they saw."""

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

import headgate
from tests.support.waiting import wait_until

GUARD = 60.0
"""Seconds after which a test gives up; what is measured is in `bench/results`."""
PAUSE = 0.015
"""Seconds between two things that one of them does: what matters is that they go on, and not how many there are."""
_AWAY = (headgate.CreditTimeout, headgate.CoordinatorUnavailable)


class Worker:
    """Does something again and again in a task, and notes when it was done.

    Attributes:
        stood: the longest time in seconds between two that were done, since this was last set to 0.
    """

    def __init__(self) -> None:
        self.done = 0
        self.stood = 0.0
        self._last = time.monotonic()
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            with suppress(*_AWAY):
                await self.work()
            await asyncio.sleep(PAUSE)

    async def work(self) -> None:
        raise NotImplementedError

    def note(self) -> None:
        """Count one that was done."""
        now = time.monotonic()
        self.done, self.stood, self._last = self.done + 1, max(self.stood, now - self._last), now

    async def goes_on(self, *, more: int = 2) -> None:
        """Wait until something is done that begins from now on."""
        until = self.done + more
        await wait_until(lambda: self.done >= until, timeout=GUARD, description=f"{type(self).__name__} goes on")

    async def __aenter__(self) -> Self:
        return self

    async def end(self) -> None:
        """Do nothing more."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def __aexit__(self, *_: object) -> None:
        await self.end()


class Sender(Worker):
    """Sends numbered messages one after another; ``sent`` are those with a receipt."""

    def __init__(self, producer: headgate.Producer) -> None:
        self._producer = producer
        self._number = 0
        self.sent: list[int] = []
        super().__init__()

    async def work(self) -> None:
        self._number += 1
        await self._producer.send(str(self._number), timeout=1.0)
        self.sent.append(self._number)
        self.note()


class Receiver(Worker):
    """Takes what is there, and accepts it; ``got`` are their numbers, in order."""

    def __init__(self, consumer: headgate.Consumer) -> None:
        self._consumer = consumer
        self.got: list[int] = []
        super().__init__()

    async def work(self) -> None:
        if message := await self._consumer.receive(timeout=1.0):
            self.got.append(int(message.body))
            await message.accept()
            self.note()

    async def has(self, numbers: list[int]) -> None:
        """Wait until it got all of these."""
        await wait_until(lambda: set(numbers) <= set(self.got), timeout=GUARD, description="all were received")


@dataclass
class Inside:
    """How many are inside of a gate, and the most that ever were."""

    now: int = 0
    most: int = 0


class Holder(Worker):
    """Is admitted by a gate, or what admits like one, stays a moment and leaves, again and again."""

    def __init__(self, gate: Any, inside: Inside) -> None:
        self._gate = gate
        self._inside = inside
        super().__init__()

    async def work(self) -> None:
        async with self._gate.admit(timeout=1.0):
            self._inside.now += 1
            self._inside.most = max(self._inside.most, self._inside.now)
            try:
                await asyncio.sleep(0.01)
            finally:
                self._inside.now -= 1
        self.note()
