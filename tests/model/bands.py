"""The plain model of whose turn it is: bands of those who wait for one limit, and what of it went before each."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

USUAL: Final = 3
DEARER: Final = 16
"""Times what a band takes, and for each band before it, that go before it has a turn again."""
NEARLY: Final = 1e-6
"""By which the script's sums and these may differ."""


@dataclass(frozen=True, slots=True)
class Waiter:
    """One in line; ``turn`` says when it came, or its deadline."""

    key: str
    band: int
    turn: int


@dataclass(slots=True)
class Bands:
    """Those who wait for the one limit of a limiter.

    ``work`` is what was let in, in seconds of a rate or times the limit; a band is aged once that is at its place.
    Nothing is counted before somebody names a band while others wait.
    """

    aging: float
    waiters: dict[str, Waiter] = field(default_factory=dict)
    counts: bool = False
    work: float = 0.0
    places: dict[int, float] = field(default_factory=dict)

    def ahead(self, band: int) -> float:
        """Return what may go before a band that begins to wait."""
        return band * self.aging

    def name(self, band: int) -> None:
        """Hear that somebody asks in a band, while others may wait."""
        self.counts = self.counts or (bool(self.waiters) and band != USUAL)
        self._place()

    def join(self, hold: str, waiter: Waiter) -> None:
        self.waiters[hold] = waiter
        self.name(waiter.band)

    def leave(self, hold: str) -> None:
        self.waiters.pop(hold, None)
        self._place()

    def _place(self) -> None:
        there = {waiter.band for waiter in self.waiters.values()}
        self.counts = self.counts and bool(there)
        self.places = {
            band: min(self.places.get(band, float("inf")), self.work + self.ahead(band))
            for band in there if self.counts
        }  # fmt: skip

    def may_go(self, band: int, kept: Callable[[int], int], stuck: Callable[[str, Waiter], bool]) -> bool:
        """Return whether a band has its turn: that passed longest of those that are aged, else the best one.

        The best one also has what is ``kept`` from an aged one that is ``stuck`` for it, until as much passed again.
        """
        there = {waiter.band for waiter in self.waiters.values()} | {band}
        aged = {one: place for one, place in self.places.items() if one and place <= self.work + NEARLY}
        surely = {one: place for one, place in aged.items() if place <= self.work - NEARLY}
        if band in aged and aged[band] <= min(aged.values()) + NEARLY:
            return True
        if band != min(there) or not surely:
            return not surely and band == min(there)
        first, place = min(surely.items(), key=lambda one: one[1])
        waits = [stuck(hold, waiter) for hold, waiter in self.waiters.items() if waiter.band == first]
        return kept(band) < kept(first) and any(waits) and self.work < place + self.ahead(first) + NEARLY

    def before(self, hold: str, held: dict[str, int] | None, *, by_deadline: bool) -> str:
        """Return who of its band is to go before one that waits; empty where nobody is.

        Args:
            hold: that is let in.
            held: what each key holds of the limit, where whoever holds least goes first.
            by_deadline: whether those of all keys go by their deadlines.
        """
        mine = self.waiters.get(hold)
        if mine is None:
            return ""
        for other, its in self.waiters.items():
            if its.band != mine.band:
                continue
            if (its.key == mine.key or by_deadline) and its.turn < mine.turn:
                return other
            if held and held.get(its.key, 0) < held.get(mine.key, 0):
                return other
        return ""

    def let_in(self, hold: str, band: int, part: float) -> None:
        """Count what was let in; ``part`` of the limit, or seconds of a rate."""
        if self.counts:
            self.work += part
            if hold in self.waiters and band in self.places:
                self.places[band] = self.work + DEARER * band * part
        self.leave(hold)
