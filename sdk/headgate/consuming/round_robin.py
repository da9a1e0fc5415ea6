"""A round robin serves several destinations in turn from one buffer."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import TypeVar

T = TypeVar("T")


class RoundRobin(deque[T]):
    """A round robin is a buffer that takes one item from each of its lanes in turn."""

    def __init__(self) -> None:
        super().__init__()
        self._lanes: deque[Lane[T]] = deque()

    def lane(self) -> "Lane[T]":
        """Return a buffer whose items are taken out here."""
        return Lane(self._lanes.append)

    def popleft(self) -> T:
        """Return the oldest item of the lane whose turn it is.

        Raises:
            IndexError: there is none.
        """
        while True:
            lane = self._lanes.popleft()
            lane.waits = False
            if lane:
                item = lane.popleft()
                if lane:
                    lane.queue()
                return item

    def clear(self) -> None:
        """Empty all lanes."""
        for lane in self._lanes:
            lane.clear()

    def __bool__(self) -> bool:
        return any(self._lanes)

    def __len__(self) -> int:
        return sum(map(len, self._lanes))

    def __iter__(self) -> Iterator[T]:
        """Yield the items in the order in which they would be taken."""
        lanes = [iter(tuple(lane)) for lane in self._lanes]
        while lanes:
            going = []
            for lane in lanes:
                for item in lane:
                    yield item
                    going.append(lane)
                    break
            lanes = going


class Lane(deque[T]):
    """A lane is one destination's part of a :class:`RoundRobin`."""

    def __init__(self, queue: Callable[["Lane[T]"], None]) -> None:
        super().__init__()
        self._queue = queue
        self.waits = False

    def append(self, item: T) -> None:
        """Add an item, and take a turn."""
        super().append(item)
        if not self.waits:
            self.queue()

    def queue(self) -> None:
        """Take the last turn."""
        self.waits = True
        self._queue(self)
