"""Messages, subscriptions and consumers of the model: who has which delivery, and when a message is done with."""

from dataclasses import dataclass, field
from typing import Final

RETURNED: Final = "~returned"


@dataclass(slots=True)
class Message:
    """Stored until nobody waits for it any more."""

    size: int
    waited_for_by: set[str]


@dataclass(slots=True)
class Subscription:
    """What is not delivered yet, and who holds what is delivered and not settled; ``RETURNED`` holds what came back."""

    durable: bool
    unread: list[int] = field(default_factory=list)
    holders: dict[int, str] = field(default_factory=dict)
    failures: dict[int, int] = field(default_factory=dict)
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

    def put_back(self, seqs: list[int], *, failed: bool) -> None:
        for seq in seqs:
            self.holders[seq] = RETURNED
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

    def live(self) -> set[str]:
        return {name for name, sub in self.subscriptions.items() if not sub.ending}

    def awaiting_redelivery(self) -> bool:
        return any(sub.held_by(RETURNED) for sub in self.subscriptions.values())

    def append(self, size: int) -> bool:
        """Store one message; returns whether anybody will get it."""
        self.seq += 1
        self.largest = max(self.largest, size)
        waiting = self.live() if self.topic else {"queue"}
        if not waiting:
            return False
        self.stored[self.seq] = Message(size, waiting)
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
            self.stored[seq].waited_for_by.discard(name)
            if not self.stored[seq].waited_for_by:
                del self.stored[seq]
                gone += 1
        return settled, gone

    def purge(self) -> None:
        self.stored.clear()
        for sub in self.subscriptions.values():
            sub.unread.clear()
            sub.holders.clear()
            sub.failures.clear()
