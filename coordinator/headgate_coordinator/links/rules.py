"""How a link forwards, and which messages do not go over it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.core.durability import Durability
from headgate.core.links.calls import Entry

MAX_HOPS: Final = 8
"""Places that a message may come through where nobody says how many."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a message does not go over a link.

    Attributes:
        reason: one word: ``loop``, ``zone``, ``lost``, ``hops``, ``too-large``, ``unreadable``, or a filter's own.
        dead_letter: whether a copy goes to the dead-letter destination first.
    """

    reason: str
    dead_letter: bool = False


@dataclass(frozen=True, slots=True)
class Forwarding:
    """How a link forwards.

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
