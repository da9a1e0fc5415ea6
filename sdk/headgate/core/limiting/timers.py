"""Moments at which something is due for one of many: set anew and cancelled without a search."""

import heapq
import itertools
import math
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Timers(Generic[T]):
    """A heap of moments, each of which counts as long as its owner still says so.

    Args:
        moment: returns the moment of one; infinite where nothing is due for it.
    """

    def __init__(self, moment: Callable[[T], float]) -> None:
        self._moment = moment
        self._heap: list[tuple[float, int, T]] = []
        self._order = itertools.count()
        self._compact_at = 1024

    def set(self, one: T) -> None:
        """Take in a moment that changed."""
        at = self._moment(one)
        if at == math.inf:
            return
        heapq.heappush(self._heap, (at, next(self._order), one))
        if len(self._heap) >= self._compact_at:  # most were cancelled: their owners have come and gone
            self._heap = [entry for entry in self._heap if self._moment(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
            self._compact_at = max(1024, 2 * len(self._heap))

    @property
    def first(self) -> float:
        """The earliest moment; infinite where there is none."""
        heap = self._heap
        while heap and self._moment(heap[0][2]) != heap[0][0]:
            heapq.heappop(heap)
        return heap[0][0] if heap else math.inf

    def pop(self, now: float) -> T | None:
        """Return one whose moment is not later than ``now``, and forget that moment; None where there is none."""
        return heapq.heappop(self._heap)[2] if self.first <= now else None
