"""The two ends of a link in plain Python: what lua/link_open, link_read and link_commit must answer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from headgate.core.links.calls import Committed, Entry, Opened, Put, Read, Skip


@dataclass
class ModelSource:
    """A queue, or a topic with one subscription: of the link, and perhaps of others that take messages away.

    Attributes:
        waiting: messages that nobody has.
        held: those that the link has read and not released.
        back: those that another consumer had, and gave back.
        copies: whether the link gets each beside the queue's consumers.
        own: then those that none of these has had.
    """

    born: int = 1
    seq: int = 0
    waiting: list[Entry] = field(default_factory=list)
    held: list[Entry] = field(default_factory=list)
    elsewhere: list[Entry] = field(default_factory=list)
    back: list[Entry] = field(default_factory=list)
    fence: int = 0
    taken: int = 0
    released: int = 0
    is_open: bool = False
    largest: int = 0
    copies: bool = False
    own: list[Entry] = field(default_factory=list)

    @property
    def stored(self) -> list[Entry]:
        every = (*self.waiting, *self.held, *self.elsewhere, *self.back, *self.own)
        return list({entry.seq: entry for entry in every}.values())

    def send(self, body: bytes) -> None:
        self.largest = max(self.largest if self.stored else 0, len(body))
        self.seq += 1
        self.waiting.append(Entry(self.seq, body))
        if self.copies:
            self.own.append(self.waiting[-1])

    def steal(self) -> None:
        """Let another consumer take the first that nobody has."""
        if waits := self.back or (self.own if self.copies else self.waiting):
            self.elsewhere.append(waits.pop(0))

    def give_back(self) -> None:
        """Let the other consumer give back what it took first."""
        if self.elsewhere:
            self.back.append(self.elsewhere.pop(0))
            self.back.sort(key=lambda entry: entry.seq)

    def settle(self) -> Entry | None:
        """Let the other consumer accept what it took first."""
        return self.elsewhere.pop(0) if self.elsewhere else None

    def make_anew(self) -> None:
        """Remove it, and make another of that name."""
        self.__init__(born=self.born + 1000)  # type: ignore[misc]  # as new, but younger

    def open(self, fence: int) -> Opened:
        if fence < self.fence:
            return Opened("FENCED", fence=self.fence)
        self.fence, self.is_open = fence, True
        return Opened("OK", self.born, self.released)

    def read(self, fence: int, born: int, mark: int, after: int, messages: int, size: int) -> Read:
        if not self.is_open:
            return Read("CLOSED")
        if fence < self.fence:
            return Read("FENCED", fence=self.fence)
        if born != self.born:
            return Read("BORN", born=self.born)
        self.fence = fence
        self.held = [entry for entry in self.held if entry.seq > mark]
        self.released = max(self.released, mark)
        self.taken = max(self.taken, after, mark)
        if messages == 0:
            return Read("OK", self.released)
        for entry in [entry for entry in self.back if entry.seq <= self.taken and not self.copies]:
            self.back.remove(entry)
            self.seq += 1
            self.waiting.append(Entry(self.seq, entry.body, entry.ttl_ms, entry.path))
        entries = self._in_hand(after, messages, size)
        total = sum(len(entry.body) for entry in entries)
        if not entries or (len(entries) < messages and total < size):
            self._take(messages - len(entries), size - total)
            entries = self._in_hand(after, messages, size)
        if entries:
            self.taken = max(self.taken, entries[-1].seq)
        return Read("OK", self.released, tuple(entries))

    def end(self, fence: int, mark: int) -> None:
        """Close it with the target's last mark; what it held above that is back, and keeps its number."""
        self.open(fence)
        self.read(fence, self.born, mark, mark, 0, 1)
        self.taken, self.is_open = self.released, False
        self.back = sorted((*self.back, *self.held), key=lambda entry: entry.seq)
        self.held = []

    def _take(self, messages: int, size: int) -> None:
        """Take what is back, then what is new, as consumers do: by the size of the largest message there was."""
        taken, total = 0, 0
        while (
            self.back and not self.copies and taken < messages and not (total and total + len(self.back[0].body) > size)
        ):
            self.held.append(self.back.pop(0))
            taken, total = taken + 1, total + len(self.held[-1].body)
        while self.waiting and taken < messages:
            fits = (size - total) // max(self.largest, 1)
            if fits < 1 and total:
                return
            for _ in range(max(1, min(messages - taken, fits))):
                if self.waiting:
                    self.held.append(self.waiting.pop(0))
                    taken, total = taken + 1, total + len(self.held[-1].body)

    def _in_hand(self, after: int, messages: int, size: int) -> list[Entry]:
        entries: list[Entry] = []
        for entry in sorted(self.held, key=lambda entry: entry.seq):
            total = sum(len(e.body) for e in entries)
            if entry.seq > after and len(entries) < messages:
                if entries and total + len(entry.body) > size:
                    break
                entries.append(entry)
        return entries


@dataclass
class ModelTarget:
    """A queue of which the link is the only producer.

    Attributes:
        log: bodies in the order in which they came, those that were consumed included.
        consumed: how many of them are gone.
    """

    limit: int = 100
    log: list[bytes] = field(default_factory=list)
    consumed: int = 0
    born: int = 0
    fence: int = 0
    mark: int = 0
    held: int = 0
    waits_for: int = 0
    wants: int = 0

    @property
    def pending(self) -> int:
        return sum(len(body) for body in self.log[self.consumed :])

    def consume(self) -> None:
        if self.consumed < len(self.log):
            self.consumed += 1
            if self.waits_for:
                self._ask()

    def lapse(self) -> None:
        """End the lease on credit: it goes back, and the place in line with it."""
        self.held = self.waits_for = self.wants = 0

    def lose(self) -> None:
        """Lose everything, as an empty restart does."""
        self.log, self.consumed, self.born, self.fence, self.mark = [], 0, 0, 0, 0
        self.lapse()

    def commit(
        self, fence: int, born: int, prev: int, entries: Sequence[Put | Skip], *, need: int, want: int, lost: bool
    ) -> Committed:
        if fence < self.fence:
            return Committed("FENCED", fence=self.fence)
        if born < self.born and fence == self.fence:
            return Committed("STALE")
        if fence > self.fence:
            self.lapse()
        if born != self.born:
            self.born, self.mark = born, 0
        self.fence = fence
        if lost:
            self.mark = max(self.mark, prev)
        code = "OK"
        if prev > self.mark:
            code = "GAP"
        for entry in entries if code == "OK" else ():
            if entry.seq <= self.mark:
                continue
            if isinstance(entry, Put):
                if len(entry.body) > self.held:
                    code, need = "NOCREDIT", len(entry.body)
                    break
                self.log.append(entry.body)
                self.held -= len(entry.body)
            self.mark = entry.seq
        if need > self.limit:
            code, need = "TOO_LARGE", 0
        self.waits_for, self.wants = need, max(want, need)
        self._ask()
        return Committed(code, self.mark, self.held, 512 if self.held else 0, place=int(self.waits_for > 0))

    def _ask(self) -> None:
        room = self.limit - self.pending - self.held
        if self.waits_for - self.held <= room:
            self.held += max(0, min(self.wants - self.held, room))
            self.waits_for = 0
        else:
            self.held = 0  # whoever waits keeps nothing that others may wait for
