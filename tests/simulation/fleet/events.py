"""Events of a large world, in the order of their times."""

import heapq
import itertools
from bisect import insort
from collections.abc import Callable
from typing import Any, Final

BEGINS: Final = 1_000.0
"""Seconds on the world's clock at first: products may take 0 for never."""
SLOTS: Final = 2_048
"""Slots of a second, each of which is sorted when its time has come.

In one heap of all that is going to happen, each event is compared with eighteen others that lie anywhere in memory.
"""
Event = tuple[float, int, Callable[..., Any], tuple[Any, ...]]


class Events:
    """The events that are going to happen, soonest first; between events nothing runs.

    Attributes:
        now: seconds of the world's clock.
        happened: how many events there were.
    """

    __slots__ = ("_due", "_later", "_next", "_number", "_slot", "_slots", "happened", "now")

    def __init__(self) -> None:
        self.now = BEGINS
        self.happened = 0
        self._number = itertools.count().__next__
        self._slot = -1
        self._due: list[Event] = []
        """Those of the slot that it is, in order, of which ``_next`` is the first that has not happened."""
        self._next = 0
        self._later: dict[int, list[Event]] = {}
        self._slots: list[int] = []

    def at(self, when: float, what: Callable[..., Any], *args: Any) -> None:
        """Have something happen at a time; it cannot be taken back."""
        slot, event = int(when * SLOTS), (when, self._number(), what, args)
        if slot <= self._slot:
            insort(self._due, event, self._next)
        elif (later := self._later.get(slot)) is not None:
            later.append(event)
        else:
            self._later[slot] = [event]
            heapq.heappush(self._slots, slot)

    def after(self, seconds: float, what: Callable[..., Any], *args: Any) -> None:
        """Have something happen so many seconds from now."""
        self.at(self.now + seconds, what, *args)

    def end(self) -> None:
        """Have nothing more happen."""
        del self._due[self._next :]
        self._later.clear()
        self._slots.clear()

    def run(self, until: float) -> None:
        """Let all happen that is due by a time."""
        while True:
            due = self._due
            while self._next < len(due):
                when, _, what, args = due[self._next]
                if when > until:
                    break
                self._next += 1
                self.now = max(self.now, when)
                self.happened += 1
                what(*args)
            if self._next < len(due) or not self._slots:
                break
            self._slot = heapq.heappop(self._slots)
            self._due, self._next = sorted(self._later.pop(self._slot)), 0
        self.now = max(self.now, until)
