"""Somebody who waits for an admission, and the hold that comes of it."""

import asyncio
from collections.abc import Callable, Sized
from typing import Any

from headgate._util.tasks import current
from headgate.core.limiting.calls import Refusal, Reservation, State
from headgate.limiting.hold import Hold, Owner


class Waiter:
    """One wait at a limiter; hears what becomes of its admission, and later that its hold is lost.

    Attributes:
        hold: what it waits for.
        since: when it began.
        who: the task, or the thread, that does nothing else until it is admitted; None where that is not known.
        done: is done with the wait.
    """

    __slots__ = ("_limiter", "done", "hold", "reservation", "since", "who")
    reservation: Reservation  # there from beginning on

    def __init__(self, limiter: Owner, key: str | None, amounts: dict[str, int], since: float) -> None:
        self.hold = Hold(limiter, key, amounts)
        self.since = since
        self.who: Any = None
        self._limiter = limiter
        self.done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()

    def begin(self, reservation: Reservation) -> None:
        """Note what was asked for."""
        self.reservation = reservation
        self.hold._reservation = reservation  # noqa: SLF001 - a waiter makes its hold

    async def outcome(self) -> Refusal | None:
        """Wait; returns why it was refused, None once it is held. Cancelled, it leaves the line at once."""
        try:
            return await self.done
        except asyncio.CancelledError:
            self.hold.release()
            raise

    def admitted(self, reservation: Reservation) -> None:
        """Wake the one who waits; a hold that nobody waits for any more is released."""
        if not self.done.done():
            self.done.set_result(None)
        elif self.done.cancelled():
            self._limiter.release(reservation)

    def refused(self, reservation: Reservation, refusal: Refusal) -> None:  # noqa: ARG002 - as all takers
        """Wake the one who waits."""
        if not self.done.done():
            self.done.set_result(refusal)

    def lost(self, reservation: Reservation) -> None:
        """Note that the hold is held no more; one that was to be taken up is not there."""
        if not self.done.done():
            self.done.set_result(Refusal("gone"))
        if reservation.state is State.OVER:
            self.hold.become_lost()


class Line:
    """Those who wait at a limiter and do nothing else meanwhile.

    Attributes:
        waiting: they.
        on_wait: called as one begins to wait.
    """

    def __init__(self, all_of_it: Sized) -> None:
        self._all = all_of_it
        self.waiting: set[Waiter] = set()
        self.on_wait: Callable[[], object] = bool

    @property
    def others(self) -> int:
        """How many holds there are, with slices in hand and admissions on their way that nobody stands in line for."""
        return len(self._all) - len(self.waiting)

    async def outcome(self, waiter: Waiter) -> Refusal | None:
        """Wait as :meth:`Waiter.outcome` does, as one of them."""
        waiter.who = current(asyncio.get_running_loop())
        self.waiting.add(waiter)
        self.on_wait()
        try:
            return await waiter.done
        except asyncio.CancelledError:
            waiter.hold.release()
            raise
        finally:
            self.waiting.discard(waiter)
