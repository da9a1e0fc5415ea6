"""Says how a link forwards, which messages do not go over it, and which it has in hand."""

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice, takewhile
from typing import Final

from headgate.core.durability import Durability
from headgate.core.links.calls import Entry, Put, Skip
from headgate.core.selector.messages import matcher
from headgate.core.selector.parser import Selector
from headgate.errors import MessageFormatError

MAX_HOPS: Final = 8
"""Places that a message may come through where nobody says how many."""


class Phase(StrEnum):
    """Says how far the oldest message is that the link has to do with."""

    IDLE = "idle"
    RESERVED = "reserved"
    LOADED = "loaded"
    COMMITTED = "committed"
    DURABLE = "durable"
    FENCED = "fenced"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Says why a message does not go over a link.

    Attributes:
        reason: one word: ``loop``, ``zone``, ``lost``, ``hops``, ``too-large``, ``unreadable``, or a filter's own.
        dead_letter: whether a copy goes to the dead-letter destination first.
    """

    reason: str
    dead_letter: bool = False


NOT_SELECTED: Final = Refusal("selector")
UNREADABLE: Final = Refusal("unreadable", dead_letter=True)


def judge_by(selector: Selector) -> Callable[[Entry], Refusal | None]:
    """Return a judge for :class:`Forwarding` that lets pass what a selector matches.

    A message that does not match goes nowhere (``selector``); an unreadable one is a dead letter (``unreadable``).
    """
    matches = matcher(selector)

    def judge(entry: Entry) -> Refusal | None:
        try:
            return None if matches(entry.body) else NOT_SELECTED
        except MessageFormatError:
            return UNREADABLE

    return judge


@dataclass(frozen=True, slots=True)
class Forwarding:
    """Says how a link forwards.

    Attributes:
        source: name of the place it reads at, which it adds to the path of what it forwards.
        target: name of the place it writes to; what has been there is not forwarded to it again.
        window: bytes of credit it holds, and so of messages that it has in hand.
        messages: the same in messages.
        max_hops: places that a message may come through, the source included.
        replicas: that must have a commit before the source lets go.
        fsync: whether the disk of the target must.
        zone: of which messages may make one hop only; empty where they may go on.
        pace: messages and bytes to ask the rate for at a time, of a link that has one.
        copies: whether it leaves each message of a queue to the queue's consumers too.
        has_dead_letters: whether there is a place for what can never be delivered; else that stops the link.
        judge: says why a message is not for the target; None where it is.
    """

    source: str
    target: str
    window: int = 1 << 20
    messages: int = 1000
    max_hops: int = MAX_HOPS
    replicas: int = 0
    fsync: bool = False
    copies: bool = False
    has_dead_letters: bool = True
    zone: str = ""
    pace: tuple[int, int] | None = None
    judge: Callable[[Entry], Refusal | None] | None = None

    @property
    def durability(self) -> Durability:
        """Where a commit must be before the source lets go."""
        return Durability(self.replicas, self.fsync)

    @property
    def stamp(self) -> str:
        """The link's addition to the path of each message."""
        return f"{self.source}@{self.zone}" if self.zone else self.source

    def refusal(self, entry: Entry) -> Refusal | None:
        """Return why a message does not go over the link, None where it does."""
        passed = [place.partition("@") for place in entry.path]
        if self.target == self.source or any(place == self.target for place, _, _ in passed):
            return Refusal("loop")
        if self.zone and any(zone == self.zone for _, _, zone in passed):
            return Refusal("zone")
        if entry.lost:
            return Refusal("lost", dead_letter=self.has_dead_letters)  # nobody can mend it: the rest does not wait
        if len(entry.path) >= self.max_hops:
            return Refusal("hops", dead_letter=True)
        refusal = self.judge(entry) if self.judge else None
        if refusal is not None and refusal.reason == "unreadable":  # whoever may send must not stop the link
            return Refusal("unreadable", dead_letter=self.has_dead_letters)
        return refusal


@dataclass(slots=True)
class ReadMessage:
    """A read message is one that was read, and is not known to be at the target.

    Attributes:
        entry: as it was read.
        refusal: why it does not go over the link, None where it does.
        copied: whether its copy is among the dead letters.
    """

    entry: Entry
    refusal: Refusal | None
    copied: bool = False

    @property
    def waits_for_copy(self) -> bool:
        """Whether it may be skipped only once a copy is among the dead letters."""
        return self.refusal is not None and self.refusal.dead_letter and not self.copied


@dataclass(slots=True)
class ReadAhead:
    """`ReadAhead` keeps the messages that a worker of a link has read, in order.

    Attributes:
        items: all of it.
        bytes: of these.
        puts: how many of them take credit at the target, as those that are refused do not.
        puts_bytes: bytes of these.
    """

    items: deque[ReadMessage] = field(default_factory=deque)
    bytes: int = 0
    puts: int = 0
    puts_bytes: int = 0

    @property
    def head(self) -> ReadMessage | None:
        """The oldest of them, None where there is none."""
        return self.items[0] if self.items else None

    def add(self, entry: Entry, refusal: Refusal | None) -> None:
        """Append what was read."""
        self.items.append(ReadMessage(entry, refusal))
        self.bytes += len(entry.body)
        if refusal is None:
            self.puts, self.puts_bytes = self.puts + 1, self.puts_bytes + len(entry.body)

    def sizes(self, credit: int, most: int) -> list[int]:
        """Return the bytes of each of the first that take credit, as far as that goes, among that many messages."""
        sizes: list[int] = []
        for item in islice(self.items, most):
            if item.refusal is None:
                credit -= len(item.entry.body)
                if credit < 0:
                    break
                sizes.append(len(item.entry.body))
        return sizes

    def batch(
        self, credit: int, credit_m: int, most: int, allowed: Callable[[int, int], bool], stamp: str, *, alone: bool
    ) -> tuple[tuple[Put | Skip, ...], int, int]:
        """Return the next entries for the target, bytes of the message that has no credit after them, and messages.

        Args:
            credit: bytes.
            credit_m: messages.
            most: entries.
            allowed: whether that many messages of that many bytes may go now.
            stamp: that is added to the path of each.
            alone: whether the first goes, whatever the credit.
        """
        entries: list[Put | Skip] = []
        puts = size = 0
        for item in takewhile(lambda item: not item.waits_for_copy, self.items):
            entry = item.entry
            if item.refusal:
                entries.append(Skip(entry.seq))
            else:
                puts, size = puts + 1, size + len(entry.body)
                if (size > credit or puts > credit_m) and not (alone and puts == 1):
                    return tuple(entries), len(entry.body), puts - 1
                if not allowed(puts, size):
                    puts -= 1
                    break
                entries.append(Put(entry.seq, entry.body, entry.ttl_ms, (*entry.path, stamp), entry.later_ms))
            if len(entries) == most:
                break
        return tuple(entries), 0, puts

    def refuse_head(self, refusal: Refusal) -> None:
        """Note that the oldest does not go over the link after all."""
        self._paid(self.items[0])
        self.items[0].refusal = refusal

    def taken_up_to(self, mark: int) -> Iterator[ReadMessage]:
        """Take out what is at the target or was skipped there: all up to its mark."""
        while self.items and self.items[0].entry.seq <= mark:
            item = self.items.popleft()
            self.bytes -= len(item.entry.body)
            self._paid(item)
            yield item

    def _paid(self, item: ReadMessage) -> None:
        if item.refusal is None:
            self.puts, self.puts_bytes = self.puts - 1, self.puts_bytes - len(item.entry.body)


class StoreTurn:
    """The stores of a target, as its link last found them. No I/O and no clock.

    Attributes:
        spools: whether the target spools.
        full: whether its memory has no room for the oldest message.
        again_at: when a store may be tried again that took nothing.
    """

    def __init__(self) -> None:
        self.spools = self.full = False
        self.again_at = 0.0
        self._open = True

    @property
    def takes(self) -> bool:
        """Whether a store is to be tried now."""
        return self.spools and self.full and self._open

    @property
    def rests(self) -> bool:
        """Whether one is to be tried later."""
        return self.spools and self.full and not self._open

    def look(self, now: float) -> None:
        """Take in what time it is."""
        self._open = now >= self.again_at

    def rest(self, until: float) -> None:
        """Try none until then, or until one has room."""
        self.again_at, self._open = until, False

    def woken(self) -> None:
        """Take the hint that one has room."""
        self.again_at = 0.0
