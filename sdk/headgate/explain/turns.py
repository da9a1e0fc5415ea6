"""Keys of a queue that take turns: which of them wait, how much of each, and what share of the deliveries each gets."""

from collections.abc import Iterator
from dataclasses import dataclass

from headgate.core.limiting.amounts import NO_KEY
from headgate.core.limits.forms import weight_among
from headgate.core.names import decode_name
from headgate.redis.replies import Snapshot


@dataclass(frozen=True, slots=True)
class KeyInTurn:
    """One key of a queue with ``fair_by``.

    Attributes:
        key: its name, cut where it is long; None for messages without one.
        waiting: messages of it that nobody has.
        weight: its share beside other keys, as ``fair_weights`` says.
        share: its part of the deliveries as long as all these keys have messages; 1.0 for all of them.
    """

    key: str | None
    waiting: int
    weight: int
    share: float

    def __str__(self) -> str:
        name = "no key" if self.key is None else f"key {self.key}"
        return f"{name}: {self.waiting} waiting, {self.share:.0%} of the deliveries (weight {self.weight})"


@dataclass(frozen=True, slots=True)
class Turns:
    """The keys of a queue that take turns.

    Attributes:
        by: what a message's key is, as ``fair_by`` says; empty where that was taken away, and some wait still.
        waiting: messages that nobody has, of all keys.
        keys: how many keys are in turn.
        first: some of them: those that are next, and those that have most messages, these before the others.
    """

    by: str
    waiting: int
    keys: int
    first: tuple[KeyInTurn, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot) -> "Turns | None":
        """Return it from what was read; None where no keys take turns, or who asked may not see them."""
        if snapshot.turns is None:
            return None
        waiting, keys, counts = snapshot.turns
        weights = snapshot.fields.get("fair_weights", "")
        listed = {key: weight_among(weights, key) for key in counts}
        total = sum(listed.values()) + max(0, keys - len(listed))  # of those that were not read, each counts once
        first = (
            KeyInTurn(None if key == NO_KEY else decode_name(key), count, listed[key], listed[key] / total)
            for key, count in counts.items()
        )
        order = sorted(first, key=lambda one: (-one.waiting, one.key or ""))
        return cls(snapshot.fields.get("fair_by", ""), waiting, keys, tuple(order))

    def rows(self) -> Iterator[str]:
        """Yield it in words, a line each."""
        by = f" by {self.by}" if self.by else ""
        yield f"keys take turns{by}: {self.waiting} messages of {self.keys} keys are ready"
        yield from map(str, self.first)
        if self.keys > len(self.first):
            yield f"and {self.keys - len(self.first)} more keys"
