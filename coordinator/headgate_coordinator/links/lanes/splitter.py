"""A splitter keeps what a link read at one slice of its source, for each slice of its target.

Each message belongs to a lane, which brings it to one slice of the target, and each lane keeps the order of its own.
The source lets go of all up to the first that is not safe at its slice.
"""

from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from headgate.core.limits.spread import Spread
from headgate.core.links.calls import Committed, Entry
from headgate_coordinator.links.rules import Forwarding


@dataclass(slots=True)
class SplitMessage:
    """A split message is in hand: it, or another before it, may not be safe at its slice.

    Attributes:
        entry: as it was read.
        is_done: whether it is at its slice, or was skipped.
        is_skipped: whether it was, and is to be nowhere.
        is_safe: whether it is done for good.
    """

    entry: Entry
    is_done: bool = False
    is_skipped: bool = False
    is_safe: bool = False


@dataclass(slots=True)
class SplitLane:
    """A split lane has what goes to one slice of the target.

    Attributes:
        items: that are not safe there, in order.
        safe: number up to which all of its own are.
        last: number of the last that it got.
    """

    items: deque[SplitMessage] = field(default_factory=deque)
    safe: int = 0
    last: int = 0

    @property
    def waiting(self) -> tuple[int, int]:
        """How many messages are not there, and their bytes."""
        sizes = [len(item.entry.body) for item in self.items if not item.is_done]
        return len(sizes), sum(sizes)


class Splitter:
    """A splitter says where each message goes, and what the source may let go of.

    Args:
        spread: how the target is spread.
        producer: with which messages go that have no value.
        how: window of the link.

    Attributes:
        born: which destination the source is.
        done: all up to that number is safe.
        after: number of the last message that was read.
        lanes: by the numbers of the slices of the target.
        released: number of the last message that left the source.
    """

    def __init__(self, spread: Spread, producer: str, how: Forwarding) -> None:
        self._spread, self._producer, self._how = spread, producer, how
        self.born = self.done = self.after = self.released = 0
        self.lanes = {number: SplitLane() for number in range(spread.slices)}
        self._hand: deque[SplitMessage] = deque()
        self._bytes = 0
        self._found: Collection[int] = ()

    @property
    def spreading(self) -> tuple[int, int]:
        """The number of the spread, and up to which number all is safe."""
        return self._spread.number, self.done

    def begin(self, born: int, released: int, found: Iterable[Committed]) -> None:
        """Begin where earlier workers got to.

        Args:
            born: which destination the source is.
            released: the last message that left it.
            found: what each slice of the target says; all that it has is safe there.
        """
        every = tuple(found)
        self.born, self.released = born, released
        self.done = self.after = max((released, *(one.mark for one in every)))
        self._found = {number for one in every for number in one.beyond if number > self.done}
        self._hand.clear()
        self._bytes = 0
        for number in self.lanes:
            self.lanes[number] = SplitLane(safe=self.done, last=self.done)

    def add(self, entries: Iterable[Entry]) -> set[int]:
        """Take in what was read; returns the lanes that got something."""
        lanes = set()
        for entry in entries:
            if entry.seq <= self.after:
                continue
            self.after = entry.seq
            item = SplitMessage(entry)
            self._hand.append(item)
            self._bytes += len(entry.body)
            if entry.seq in self._found:  # an earlier worker stored it, at whatever slice was its own then
                item.is_done = item.is_safe = True
                continue
            number = self._spread.slice_of_stored(entry.body, self._producer)
            lane = self.lanes[number]
            lane.items.append(item)
            lane.last = entry.seq
            lanes.add(number)
        self._settle()
        return lanes

    def of_lane(self, number: int, after: int, messages: int, size: int) -> tuple[Entry, ...]:
        """Return what a lane is to bring next: after that number, so many messages and bytes, and at least one."""
        found: list[Entry] = []
        for item in self.lanes[number].items:
            if item.entry.seq > after and len(found) < messages:
                size -= len(item.entry.body)
                if found and size < 0:
                    break
                found.append(item.entry)
        return tuple(found)

    def heard(self, number: int, answer: Committed, skipped: Collection[int]) -> int:
        """Take in what a slice has, and what a lane skipped; returns up to which number the lane's own are there."""
        lane = self.lanes[number]
        mark, is_gap, there = lane.safe, False, set(answer.beyond)
        for item in lane.items:
            item.is_skipped = item.is_skipped or item.entry.seq in skipped
            item.is_done = item.is_skipped or item.entry.seq <= answer.mark or item.entry.seq in there
            if not item.is_done and not is_gap:
                mark, is_gap = max(mark, item.entry.seq - 1), True
        return mark if is_gap else lane.last

    def make_safe(self, number: int, mark: int) -> bool:
        """Note that all of a lane up to a number is safe; returns whether the source may let go of more."""
        lane, before = self.lanes[number], self.done
        lane.safe = max(lane.safe, mark)
        while lane.items and lane.items[0].entry.seq <= mark:
            item = lane.items.popleft()
            item.is_done = item.is_safe = True
        self._settle()
        return self.done > before

    def room(self, credit: Iterable[tuple[int, int, int]]) -> tuple[int, int]:
        """Return how many messages and bytes more may be read: as many as there is credit for.

        One lane without room does not hold up the others as long as the window has room; what is not known is whose the
        next message is.

        Args:
            credit: number of each lane, and the bytes and messages that it may bring to its slice.
        """
        messages = size = 0
        for number, held, held_m in credit:
            waiting, waiting_bytes = self.lanes[number].waiting
            idle = 0 if waiting else 1
            messages, size = messages + max(idle, held_m - waiting), size + max(idle, held - waiting_bytes)
        how = self._how
        messages, size = min(messages, how.messages - len(self._hand)), min(size, how.window - self._bytes)
        return (0, 0) if min(messages, size) < 1 else (messages, size)

    def _settle(self) -> None:
        while self._hand and self._hand[0].is_safe:
            item = self._hand.popleft()
            self._bytes -= len(item.entry.body)
            self.done = item.entry.seq
        if not self._hand:
            self.done = max(self.done, self.after)
