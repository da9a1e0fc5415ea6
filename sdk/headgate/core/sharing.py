"""A shared window is one for several destinations, whose fetches take turns; each is served in turn from one buffer."""

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import Any, Final, Protocol, TypeVar

from headgate.core.fetching import WindowUse
from headgate.core.window import LINGER, LINGER_SHARED, Allowance, Window

T = TypeVar("T")
_NONE: Final = (0, 0)


class WindowUsers(Protocol):
    """A shared window is used here: the messages of all destinations are for it."""

    @property
    def asked(self) -> int:
        """How many messages are asked for; only ``pull`` cares."""

    def room(self, most: int) -> int:
        """Return how many of ``most`` messages they take beside those that are here."""


class SharedWindow:
    """A window can be shared by several takers; one that has fetched goes to the end of the line.

    Attributes:
        total: what they hold, under the window that they share.
    """

    def __init__(self, window: Window, takers: WindowUsers, total: Allowance | None = None) -> None:
        self.total = total if isinstance(total, WindowUse) else WindowUse(window)
        self.line: dict[Share, None] = {}
        self.under_way: dict[Share, int] = {}
        self._takers = takers

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
        """Return the room there is beside the fetches under way, once these have been settled."""
        total = self.total
        if self.under_way and total.window.bytes != "unlimited":
            return _NONE  # a fetch may bring a message that crosses the window: one at a time, one such message
        fetching = sum(self.under_way.values())
        beside = fetching - going
        total.messages += beside
        total.bytes -= going_bytes
        try:
            messages, size = total.room(self._takers.asked)
        finally:
            total.messages -= beside
            total.bytes += going_bytes
        messages = min(messages, self._takers.room(messages + fetching) - fetching) if messages else 0
        return (messages, size) if messages > 0 else _NONE


class Share:
    """A share is one destination's part of a shared window.

    Attributes:
        messages: what it holds of it.
        bytes: their bytes.
    """

    def __init__(self, of: SharedWindow, wake: Callable[[], None]) -> None:
        self.of = of
        self.wake = wake
        self.messages = self.bytes = 0

    @property
    def window(self) -> Window:
        """The window that all share."""
        return self.of.total.window

    def configure(self, window: Window) -> None:
        """Leave the window as it is: it is changed for all together."""

    def linger(self, settled: int) -> float:
        """Return the seconds for which settlements wait: few of each destination come at a time, unless they do."""
        return LINGER if settled >= self.messages else LINGER_SHARED

    def deliver(self, messages: int, size: int) -> None:
        """Count deliveries, ``size`` bytes in all."""
        self.messages += messages
        self.bytes += size
        self.of.total.deliver(messages, size)

    def fill(self, size: int) -> None:
        """Close what is left of the bytes that are shared."""
        self.of.total.fill(size)

    def settle(self, messages: int, size: int) -> None:
        """Count settlements, ``size`` bytes in all, and give their room to whose turn it is."""
        self.messages -= messages
        self.bytes -= size
        self.of.total.settle(messages, size)
        self.of.freed()

    def clear(self) -> None:
        """Count all that is held as given back, leave the line, and end an unanswered fetch."""
        self.of.total.messages -= self.messages
        self.of.total.bytes -= self.bytes
        self.messages = self.bytes = 0
        self.of.line.pop(self, None)
        self.release(0)

    def ask(
        self, going: int, going_bytes: int, _asked: int = 0, *, due: bool = True, again: bool = False
    ) -> tuple[int, int]:
        """Return the room for a fetch that settles these in the same call; (0, 0) until it is this one's turn.

        Args:
            going: messages that are settled.
            going_bytes: their bytes.
            asked: how many are asked for here: those who wait, wait for all destinations.
            due: join the line; without it there is room only while nobody waits.
            again: the fetch is repeated: it gets what it was given then.
        """
        if again:
            return self.reserved, 1
        if due:
            self.of.line.setdefault(self)
        if next(iter(self.of.line), self) is not self:
            return _NONE
        return self.of.room(going, going_bytes)

    def reserve(self, messages: int) -> None:
        """Note that that many messages are being fetched; the next in line may have what is left."""
        self.of.line.pop(self, None)
        self.of.under_way[self] = messages
        self.of.freed()

    def release(self, brought: int) -> bool:
        """Note that a fetch was answered; returns whether bytes may have ended it, and to get in line for the rest."""
        self.of.under_way.pop(self, None)
        self.of.freed()
        return brought > 0 and self.window.bytes != "unlimited"

    @property
    def reserved(self) -> int:
        """Messages that are being fetched."""
        return self.of.under_way.get(self, 0)

    def free(self, _asked: int) -> tuple[int, int]:
        """Return whether to look again when it is time to: not while others have their turn, nor without room."""
        if self not in self.of.line:
            return (1, 1)
        return self.of.room(0, 0) if next(iter(self.of.line)) is self else _NONE


class FirstShare(Share):
    """The part of who had the window alone before, and still changes it for all."""

    def __init__(self, of: SharedWindow, wake: Callable[[], None], held: Collection[Any]) -> None:
        super().__init__(of, wake)
        self.messages, self.bytes = len(held), sum(message.size for message in held)

    def configure(self, window: Window) -> None:
        """Change the window of all."""
        self.of.configure(window)


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
