"""Events of a large world, in the order of their times."""

import heapq
import itertools
from collections.abc import Callable
from typing import Any, Final

BEGINS: Final = 1_000.0
"""Seconds on the world's clock at first: products may take 0 for never."""


class Events:
    """A heap of what is going to happen, soonest first; between events nothing runs.

    Attributes:
        now: seconds of the world's clock.
        happened: how many events there were.
    """

    __slots__ = ("_heap", "_numbers", "happened", "now")

    def __init__(self) -> None:
        self.now = BEGINS
        self.happened = 0
        self._heap: list[tuple[float, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._numbers = itertools.count()

    def at(self, when: float, what: Callable[..., Any], *args: Any) -> None:
        """Have something happen at a time; it cannot be taken back."""
        heapq.heappush(self._heap, (when, next(self._numbers), what, args))

    def after(self, seconds: float, what: Callable[..., Any], *args: Any) -> None:
        """Have something happen so many seconds from now."""
        heapq.heappush(self._heap, (self.now + seconds, next(self._numbers), what, args))

    def end(self) -> None:
        """Have nothing more happen."""
        self._heap.clear()

    def run(self, until: float) -> None:
        """Let all happen that is due by a time."""
        heap, happened = self._heap, 0
        while heap and heap[0][0] <= until:
            when, _, what, args = heapq.heappop(heap)
            self.now = max(self.now, when)
            happened += 1
            what(*args)
        self.happened += happened
        self.now = max(self.now, until)
