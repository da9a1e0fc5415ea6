"""Messages, subscriptions and consumers of the model: who has which delivery, and when a message is done with."""

from dataclasses import dataclass, field
from typing import Final

from tests.model.turns import NO_KEY, Turns

RETURNED: Final = "~returned"
IN_TURN: Final = "~turn"
LATER: Final = "~later"
QUEUE: Final = "queue"
WEIGHTS: Final = {"7": 2}
OVERTAKEN: Final = 16


@dataclass(slots=True)
class Message:
    """Stored until nobody waits for it any more."""

    size: int
    waited_for_by: set[str]
    key: str = NO_KEY
    due: int = 0


@dataclass(slots=True)
class Subscription:
    """What is not delivered yet, and who holds what is delivered and not settled; ``RETURNED`` holds what came back.

    ``LATER`` holds what waits; ``later`` has the moments of those that failed, or were given back for later.
    """

    durable: bool
    unread: list[int] = field(default_factory=list)
    holders: dict[int, str] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
    later: dict[int, int] = field(default_factory=dict)
    consumers: int = 0
    ending: bool = False

    def held_by(self, holder: str) -> list[int]:
        return sorted(seq for seq, who in self.holders.items() if who == holder)

    def in_order(self) -> list[int]:
        """What the next fetch gets: first what came back, then what is new."""
        return self.held_by(RETURNED) + self.unread

    def deliver(self, seq: int, cid: str) -> None:
        self.holders[seq] = cid
        if seq in self.unread:
            self.unread.remove(seq)

    def put_back(self, seqs: list[int], *, failed: bool, to: str = RETURNED) -> None:
        for seq in seqs:
            self.holders[seq] = to
            if failed:
                self.failures[seq] = self.failures.get(seq, 0) + 1


@dataclass(slots=True)
class Consumer:
    subscription: str
    fetches: int = 0


@dataclass(slots=True)
class Shelf:
    """All messages, subscriptions and consumers of one destination."""

    topic: bool
    seq: int = 0
    largest: int = 0
    stored: dict[int, Message] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    consumers: dict[str, Consumer] = field(default_factory=dict)
    turns: Turns | None = None
    fair: str = ""
    now: int = 0
    sent: dict[int, int] = field(default_factory=dict)
    """Of messages that were sent for later, and wait: their moments."""
    promoted: bool = False
    """Whether the fetch that comes gets what was due, which nobody may have read yet."""

    @property
    def waits(self) -> bool:
        """Whether anything waits for its time."""
        return bool(self.sent) or any(sub.later for sub in self.subscriptions.values())

    def moments(self) -> list[int]:
        """Return when what waits for its time is due; some of that may be late, where a call had room for no more."""
        return [*self.sent.values(), *(moment for sub in self.subscriptions.values() for moment in sub.later.values())]

    def live(self) -> set[str]:
        return {name for name, sub in self.subscriptions.items() if not sub.ending}

    def awaiting_redelivery(self) -> bool:
        return self.promoted or any(sub.held_by(RETURNED) for sub in self.subscriptions.values())

    def take_turns(self, fair: str) -> None:
        """Begin to have keys take turns, or go by priority, or end it: then what is in turn stays so."""
        self.fair = fair
        if fair:
            self.subscribe(QUEUE, durable=True)
            self.turns = self.turns or Turns(WEIGHTS)
        elif self.turns and not self.turns.seqs:
            self.turns = None
        if self.turns:
            self.turns.weights = WEIGHTS if fair else {}
            self.turns.bound = OVERTAKEN if fair == "priority" else None

    def sort(self) -> None:
        """Put in turn what is not yet."""
        if self.fair and self.turns:
            unread = self.subscriptions[QUEUE].unread
            for seq in self.timely(QUEUE, unread):
                self.turns.file(self.stored[seq].key, seq)
            unread.clear()

    def timely(self, name: str, seqs: list[int]) -> list[int]:
        """Return those that are due of what was just read, and set the others aside."""
        due = []
        for seq in tuple(seqs):
            moment = self.stored[seq].due
            if self.waits and moment > self.now:
                self.subscriptions[name].holders[seq] = LATER
                self.sent.setdefault(seq, moment)
            else:
                due.append(seq)
                if not self.topic and moment:
                    self.sent.pop(seq, None)
        return due

    def promote(self, room: int) -> None:
        """Give back what is due: of a plain queue, before a fetch with that room, as much as that fetch gets."""
        self.promoted = False
        if room and not self.topic and not self.fair and len(self.subscriptions) == 1:
            self.promote_some(max(0, room - len(self.subscriptions[QUEUE].held_by(RETURNED))))
            return
        for seq in [seq for seq, moment in self.sent.items() if moment <= self.now]:
            del self.sent[seq]
            for name, sub in self.subscriptions.items():
                if sub.holders.get(seq) == LATER and seq not in sub.later:
                    self.give_back(name, [seq])
        for name, sub in self.subscriptions.items():
            for seq in [seq for seq, moment in sub.later.items() if moment <= self.now]:
                del sub.later[seq]
                self.give_back(name, [seq])

    def promote_some(self, most: int) -> None:
        """Give back so much of what is due, that first which is due first, and of the same moment in order."""
        sub = self.subscriptions[QUEUE]
        due = [(moment, seq, f"{seq}-") for seq, moment in self.sent.items() if moment <= self.now]
        due += [(moment, seq, f"{QUEUE}|{seq}-") for seq, moment in sub.later.items() if moment <= self.now]
        for _, seq, member in sorted(due, key=lambda one: (one[0], one[1] // 16 % 4096, one[2]))[:most]:
            self.promoted = True
            waits, moments = (sub.holders.get(seq) == LATER, self.sent) if member[0] != "q" else (True, sub.later)
            del moments[seq]
            if waits:
                self.give_back(QUEUE, [seq])

    def put_back(self, name: str, seqs: list[int], *, failed: bool, retry: int = 0, after: int | None = None) -> None:
        """Give deliveries back, at once or for later: so many ms, or as failed ones wait."""
        sub = self.subscriptions[name]
        sub.put_back(seqs, failed=failed, to=LATER)
        for seq in seqs:
            wait = after if after is not None else failed * min(retry * 2 ** (sub.failures.get(seq, 1) - 1), 3 * retry)
            if self.sent.get(seq, 0) > self.now:
                continue
            if wait:
                sub.later[seq] = self.now + wait
            else:
                self.give_back(name, [seq])

    def give_back(self, name: str, seqs: list[int]) -> None:
        """Give deliveries back: before all others, or all others of their keys."""
        in_turn = bool(self.fair) and name == QUEUE
        self.subscriptions[name].put_back(seqs, failed=False, to=IN_TURN if in_turn else RETURNED)
        for seq in seqs if in_turn and self.turns else ():
            self.turns.file(self.stored[seq].key, seq)  # type: ignore[union-attr]

    def fetch(self, name: str, messages: int, most_bytes: int) -> list[int] | None:
        """Return what a fetch gets where keys take turns; None where none do."""
        sub = self.subscriptions[name]
        if not self.turns or name != QUEUE:
            return None
        got: list[int] = []
        size = 0
        for seq in sub.held_by(RETURNED)[:messages]:
            if got and size + self.stored[seq].size > most_bytes:
                break
            got.append(seq)
            size += self.stored[seq].size
        while True:
            left, fits = messages - len(got), (most_bytes - size) // max(self.largest, 1)
            if left < 1 or (fits < 1 and size > 0):
                return got
            most = max(1, min(left, fits))
            self.sort()
            some = [] if self.turns is None else self.turns.take(most)
            if not some and not self.fair:
                self.turns = None
            if self.turns is None:
                some = sub.unread[:most]
                del sub.unread[:most]
            due = self.timely(name, some)
            got += due
            size += sum(self.stored[seq].size for seq in due)
            if len(some) < most and (self.fair or self.turns is None):
                return got

    def fetch_early(self, name: str, messages: int, most_bytes: int) -> list[int]:
        """Return what a fetch gets where no keys take turns, and some messages may not be due."""
        sub, got, size = self.subscriptions[name], list[int](), 0
        for seq in sub.held_by(RETURNED)[:messages]:
            if got and size + self.stored[seq].size > most_bytes:
                break
            got.append(seq)
            size += self.stored[seq].size
        while True:
            left, fits = messages - len(got), (most_bytes - size) // max(self.largest, 1)
            if left < 1 or (fits < 1 and size > 0):
                return got
            most = max(1, min(left, fits))
            some, sub.unread = sub.unread[:most], sub.unread[most:]
            due = self.timely(name, some)
            got += due
            size += sum(self.stored[seq].size for seq in due)
            if len(some) < most:
                return got

    def append(self, size: int, key: str = NO_KEY, due: int = 0) -> bool:
        """Store one message; returns whether anybody will get it."""
        self.seq += 1
        self.largest = max(self.largest, size)
        waiting = self.live() if self.topic else {"queue"}
        if not waiting:
            return False
        self.stored[self.seq] = Message(size, waiting, key if self.fair else NO_KEY, due)
        if due:
            self.sent[self.seq] = due
        for name in waiting & self.live():
            self.subscriptions[name].unread.append(self.seq)
        return True

    def subscribe(self, name: str, *, durable: bool) -> Subscription:
        """Return the subscription: a new one begins with what is published next, a queue's with what is there."""
        if name not in self.subscriptions:
            self.subscriptions[name] = Subscription(durable, [] if self.topic else sorted(self.stored))
        return self.subscriptions[name]

    def settle(self, name: str, seqs: list[int]) -> tuple[int, int]:
        """Settle deliveries of a subscription, whoever holds them; returns how many, and how many messages went."""
        sub, settled, gone = self.subscriptions[name], 0, 0
        for seq in seqs:
            if sub.holders.pop(seq, None) is None:
                continue
            settled += 1
            sub.failures.pop(seq, None)
            sub.later.pop(seq, None)
            self.stored[seq].waited_for_by.discard(name)
            if not self.stored[seq].waited_for_by:
                del self.stored[seq]
                self.sent.pop(seq, None)
                gone += 1
        if not self.stored:
            self.largest = 0
        return settled, gone

    def why_kept(self, seq: int) -> str | None:
        """Say why one message cannot be taken out: it is not there, or somebody has it."""
        holders = [sub.holders.get(seq, RETURNED) for sub in self.subscriptions.values()]
        if seq not in self.stored:
            return "GONE"
        return None if all(who in (RETURNED, IN_TURN, LATER) for who in holders) else "HELD"

    def discard(self, seq: int) -> None:
        """Take one message out for all that wait for it."""
        del self.stored[seq]
        self.sent.pop(seq, None)
        if self.turns:
            self.turns.forget(seq)
        for sub in self.subscriptions.values():
            if seq in sub.unread:
                sub.unread.remove(seq)
            sub.holders.pop(seq, None)
            sub.later.pop(seq, None)
            sub.failures.pop(seq, None)
        self.largest = self.largest if self.stored else 0

    def purge(self) -> None:
        self.stored.clear()
        self.largest = 0
        self.sent.clear()
        for seq in self.turns.seqs if self.turns else ():
            self.turns.forget(seq)  # type: ignore[union-attr]
        for sub in self.subscriptions.values():
            sub.unread.clear()
            sub.holders.clear()
            sub.later.clear()
            sub.failures.clear()
