"""A timer says when something is due for one of many: it is set anew and cancelled without a search."""

import heapq
import math
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Timers(Generic[T]):
    """A moment is kept here as long as its owner still says so; those that are the same come in turn.

    Args:
        moment: returns the moment of one; infinite where nothing is due for it.
    """

    def __init__(self, moment: Callable[[T], float]) -> None:
        self._moment = moment
        self._heap: list[float] = []
        self._due: dict[float, deque[T]] = {}
        self._entries, self._compact_at = 0, 1024

    def set(self, one: T) -> None:
        """Take in a moment that changed."""
        at = self._moment(one)
        if at == math.inf:
            return
        due = self._due.get(at)
        if due is None:
            due = self._due[at] = deque()
            heapq.heappush(self._heap, at)
        due.append(one)
        self._entries += 1
        if self._entries >= self._compact_at:
            self._compact()

    def _compact(self) -> None:
        """Forget what was cancelled, which is most: its owners have come and gone."""
        due = {at: deque(one for one in ones if self._moment(one) == at) for at, ones in self._due.items()}
        self._due = {at: ones for at, ones in due.items() if ones}
        self._heap = sorted(self._due)
        self._entries = sum(map(len, self._due.values()))
        self._compact_at = max(1024, 2 * self._entries)

    @property
    def first(self) -> float:
        """The earliest moment; infinite where there is none."""
        moment = self._moment
        while self._heap:
            at = self._heap[0]
            due = self._due[at]
            while due and moment(due[0]) != at:
                due.popleft()
                self._entries -= 1
            if due:
                return at
            del self._due[heapq.heappop(self._heap)]
        return math.inf

    def pop(self, now: float) -> T | None:
        """Return one whose moment is not later than ``now``, and forget that moment; None where there is none."""
        first = self.first
        if first > now:
            return None
        self._entries -= 1
        return self._due[first].popleft()
