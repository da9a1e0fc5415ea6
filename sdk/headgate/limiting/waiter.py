"""Somebody who waits for an admission, and the hold that comes of it."""

import asyncio
from time import monotonic

from headgate.core.limiting.calls import Refusal, Reservation, State
from headgate.limiting.hold import Hold, Owner


class Waiter:
    """One wait at a limiter; hears what becomes of its admission, and later that its hold is lost.

    Attributes:
        hold: what it waits for.
        since: when it began.
    """

    __slots__ = ("_done", "_limiter", "hold", "since")

    def __init__(self, limiter: Owner, key: str | None, amounts: dict[str, int]) -> None:
        self.hold = Hold(limiter, key, amounts)
        self.since = monotonic()
        self._limiter = limiter
        self._done: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()

    def begin(self, reservation: Reservation) -> None:
        """Note what was asked for."""
        self.hold._reservation = reservation  # noqa: SLF001 - a waiter makes its hold

    async def outcome(self) -> Refusal | None:
        """Wait; returns why it was refused, None once it is held. Cancelled, it leaves the line at once."""
        try:
            return await self._done
        except asyncio.CancelledError:
            self.hold.release()
            raise

    def admitted(self, reservation: Reservation) -> None:
        """Wake the one who waits; a hold that nobody waits for any more is released."""
        if not self._done.done():
            self._done.set_result(None)
        elif self._done.cancelled():
            self._limiter.release(reservation)

    def refused(self, reservation: Reservation, refusal: Refusal) -> None:  # noqa: ARG002 - as all takers
        """Wake the one who waits."""
        if not self._done.done():
            self._done.set_result(refusal)

    def lost(self, reservation: Reservation) -> None:
        """Note that the hold is held no more; one that was to be taken up is not there."""
        if not self._done.done():
            self._done.set_result(Refusal("gone"))
        if reservation.state is State.OVER:
            self.hold.become_lost()
