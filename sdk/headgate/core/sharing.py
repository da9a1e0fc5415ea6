"""One window over several destinations, whose fetches take turns, and one buffer from which each is served in turn."""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, TypeVar

from headgate.core.window import Holding, Window

T = TypeVar("T")
_NONE: Final = (0, 0)


class SharedWindow:
    """A window that several holdings share; one that has fetched goes to the end of the line.

    Attributes:
        total: what they hold, under the window that they share.
        asked: how many receivers wait for a message; only ``pull`` cares.
    """

    def __init__(self, window: Window) -> None:
        self.total = Holding(window)
        self.asked = 0
        self.line: dict[Share, None] = {}
        self.under_way: dict[Share, int] = {}

    def configure(self, window: Window) -> None:
        """Change the window; below what is held, nothing more comes until enough is settled."""
        self.total.configure(window)
        self.freed()

    def freed(self) -> None:
        """Tell the first in line to look again."""
        for share in self.line:
            share.wake()
            return

    def room(self, going: int, going_bytes: int) -> tuple[int, int]:
        """Return the room there is beside the fetches under way, once so much has been settled."""
        total = self.total
        if self.under_way and total.window.bytes != "unlimited":
            return _NONE  # a fetch may bring a message that crosses the window: one at a time, one such message
        beside = sum(self.under_way.values()) - going
        total.messages += beside
        total.bytes -= going_bytes
        try:
            return total.room(self.asked)
        finally:
            total.messages -= beside
            total.bytes += going_bytes


class Share(Holding):
    """One destination's part of a shared window."""

    def __init__(self, of: SharedWindow, wake: Callable[[], None]) -> None:
        super().__init__(of.total.window)
        self.of = of
        self.wake = wake

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Compare by identity, unlike other holdings."""
        return self is other

    def deliver(self, size: int) -> None:
        """Count a delivery."""
        super().deliver(size)
        self.of.total.deliver(size)

    def fill(self, size: int) -> None:
        """Close what is left of the bytes that are shared."""
        self.of.total.fill(size)

    def settle(self, size: int) -> None:
        """Count a settlement, and give its room to whose turn it is."""
        super().settle(size)
        self.of.total.settle(size)
        self.of.freed()

    def clear(self) -> None:
        """Count what is held as given back, leave the line, and end a fetch that will not be answered any more."""
        self.of.total.messages -= self.messages
        self.of.total.bytes -= self.bytes
        super().clear()
        self.of.line.pop(self, None)
        self.release()

    def ask(self, going: int, going_bytes: int, *, wait: bool = True) -> tuple[int, int]:
        """Return the room for a fetch that settles so much in the same call; (0, 0) until it is this one's turn.

        Args:
            going: messages that are settled.
            going_bytes: their bytes.
            wait: join the line; without it there is room only while nobody waits.
        """
        if wait:
            self.of.line.setdefault(self)
        if next(iter(self.of.line), self) is not self:
            return _NONE
        return self.of.room(going, going_bytes)

    def reserve(self, messages: int) -> None:
        """Note that so many messages are being fetched; the next in line may have what is left."""
        self.of.line.pop(self, None)
        self.of.under_way[self] = messages
        self.of.freed()

    def release(self) -> None:
        """Note that a fetch was answered."""
        self.of.under_way.pop(self, None)
        self.of.freed()

    @property
    def reserved(self) -> int:
        """Messages that are being fetched."""
        return self.of.under_way.get(self, 0)

    def room(self, asked: int) -> tuple[int, int]:
        """Return whether to look again when it is time to: not while others have their turn, nor without room."""
        del asked  # those who wait, wait for all destinations
        if self not in self.of.line:
            return (1, 1)
        return self.of.room(0, 0) if next(iter(self.of.line)) is self else _NONE


class Rotation(deque[T]):
    """A buffer that takes one item from each of its lanes in turn."""

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
    """One destination's part of a :class:`Rotation`."""

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
