"""Somebody who waits for an admission."""

import asyncio
import contextlib
from collections.abc import Callable, Sized
from typing import Any, Protocol

from headgate._util.tasks import current
from headgate.core.limiting.calls import Refusal, Reservation


class Releaser(Protocol):
    """A releaser ends holds and waits of a limiter for its waiters."""

    def release(self, one: Reservation) -> None:
        """End a hold or a wait."""


class Waiter:
    """A waiter waits once at a limiter, and hears what becomes of its admission.

    Attributes:
        since: when it began.
        who: the task, or the thread, that does nothing else until it is admitted; None where that is not known.
        done: is done with the wait.
    """

    __slots__ = ("_limiter", "_standing", "done", "reservation", "since", "who")
    reservation: Reservation  # there from beginning on

    def __init__(self, limiter: Releaser, since: float, loop: asyncio.AbstractEventLoop) -> None:
        self.since = since
        self.who: Any = None
        self._limiter = limiter
        self._standing: asyncio.Event | None = None
        self.done: asyncio.Future[Refusal | None] = loop.create_future()

    async def outcome(self) -> Refusal | None:
        """Wait; returns why it was refused, None once it is held. Cancelled, it leaves the line at once."""
        try:
            return await self.done
        except asyncio.CancelledError:
            self._limiter.release(self.reservation)
            raise

    async def soon(self, seconds: float) -> bool:
        """Return whether its wait is over, once it stands in line, or so long after now. Cancelled, it leaves."""
        self._standing = asyncio.Event()
        self.done.add_done_callback(lambda _: self.in_line(self.reservation))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._standing.wait()
        except asyncio.CancelledError:
            self._limiter.release(self.reservation)
            raise
        return self.done.done()

    def in_line(self, reservation: Reservation) -> None:  # noqa: ARG002 - as all takers
        """Learn that it waits."""
        if self._standing is not None:
            self._standing.set()

    def admitted(self, reservation: Reservation) -> None:
        """Wake the one who waits; what nobody waits for any more is released."""
        if not self.done.done():
            self.done.set_result(None)
        elif self.done.cancelled():
            self._limiter.release(reservation)

    def refused(self, reservation: Reservation, refusal: Refusal) -> None:  # noqa: ARG002 - as all takers
        """Wake the one who waits."""
        if not self.done.done():
            self.done.set_result(refusal)

    def lost(self, reservation: Reservation) -> None:  # noqa: ARG002 - as all takers
        """Wake the one who waits to take up a hold that is not there."""
        if not self.done.done():
            self.done.set_result(Refusal("gone"))


class WaitingLine:
    """Keeps those who wait at a limiter and do nothing else meanwhile.

    Attributes:
        waiting: they.
        on_wait: called as one begins to wait.
    """

    def __init__(self, all_of_it: Sized, loop: asyncio.AbstractEventLoop) -> None:
        self._all, self._loop = all_of_it, loop
        self.waiting: set[Waiter] = set()
        self.on_wait: Callable[[], object] = bool

    @property
    def others(self) -> int:
        """How many holds there are, with slices in hand and admissions on their way that nobody stands in line for."""
        return len(self._all) - len(self.waiting)

    async def outcome(self, waiter: Waiter) -> Refusal | None:
        """Wait as :meth:`Waiter.outcome` does, as one of them."""
        waiter.who = current(self._loop)
        self.waiting.add(waiter)
        self.on_wait()
        try:
            return await waiter.outcome()
        finally:
            self.waiting.discard(waiter)
