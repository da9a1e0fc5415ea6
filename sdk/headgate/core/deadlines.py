"""An account watches the deadlines of its messages; most come in the order in which they end."""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, takewhile
from typing import Any, Final, Generic, Protocol, TypeVar

PRUNE_AT: Final = 1024
"""Deadlines that are watched before those of finished messages are looked for and forgotten."""


class Timed(Protocol):
    """A timed thing has a deadline, unless it is done before.

    Attributes:
        deadline: on the caller's clock; it stays as it is.
        done: a future, or anything like it.
        timed: whether its deadline is being watched.
    """

    deadline: float
    done: Any
    timed: bool


T = TypeVar("T", bound=Timed)


class Deadlines(Generic[T]):
    """`Deadlines` watches those of the messages of one account that wait, or did.

    One that is no sooner than the last goes behind it, which costs next to nothing; all others go into a heap.
    """

    __slots__ = ("_heap", "_line", "_order", "_prune_at")

    def __init__(self) -> None:
        self._line: deque[T] | None = None  # one that is empty takes 0.7 KiB
        self._heap: list[tuple[float, int, T]] = []
        self._order = 0
        self._prune_at = PRUNE_AT

    def __len__(self) -> int:
        return len(self._heap) + len(self._line or ())

    def add(self, item: T) -> None:
        """Watch the deadline of a message, unless it is watched, or has none."""
        if item.timed:
            return
        item.timed = True
        if item.deadline == math.inf:
            return
        line = self._line
        if line is None:
            line = self._line = deque()
        while line and line[0].done.done():
            line.popleft().timed = False
        if not line or item.deadline >= line[-1].deadline:
            line.append(item)
        else:
            self._order += 1
            heapq.heappush(self._heap, (item.deadline, self._order, item))
        if len(line) + len(self._heap) > self._prune_at:
            self._prune()

    def add_all(self, items: Iterable[T]) -> None:
        """Watch the deadlines of messages, as :meth:`add` does."""
        for item in items:
            self.add(item)

    def look(self, *lines: Sequence[T] | deque[T]) -> None:
        """Watch those that came behind all that are watched in these lines: most are done before anybody looks."""
        came = takewhile(lambda item: not item.timed, chain.from_iterable(map(reversed, reversed(lines))))
        self.add_all(reversed(tuple(came)))

    def soonest(self) -> float:
        """Return the first deadline of those that are not done; infinite where there is none."""
        line, heap = self._line, self._heap
        while line and line[0].done.done():
            line.popleft().timed = False
        while heap and heap[0][2].done.done():
            heapq.heappop(heap)[2].timed = False
        return min(line[0].deadline if line else math.inf, heap[0][0] if heap else math.inf)

    def over(self, now: float) -> Iterator[T]:
        """Yield those whose time is over and that are not done; they are not watched any more."""
        while self.soonest() <= now:
            line, heap = self._line, self._heap
            in_line = line and (not heap or line[0].deadline <= heap[0][0])
            item = line.popleft() if line and in_line else heapq.heappop(heap)[2]
            item.timed = False
            yield item

    def clear(self) -> None:
        """Watch none any more."""
        self._line = None
        self._heap.clear()

    def _prune(self) -> None:
        """Forget those that are done: they must not be kept until their deadlines."""
        self._line = deque(item for item in self._line or () if not item.done.done())
        self._heap = [entry for entry in self._heap if not entry[2].done.done()]
        heapq.heapify(self._heap)
        self._prune_at = max(PRUNE_AT, 2 * len(self))
