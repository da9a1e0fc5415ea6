"""A queue's keys may take turns: this shows which wait, how much of each, and their shares of the deliveries."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from headgate.core.limiting.amounts import NO_KEY
from headgate.core.limits.limiter_forms import weight_among
from headgate.core.limits.priority import BANDS, PRIORITY, USUAL_OVERTAKEN, band_key
from headgate.core.names import decode_name
from headgate.explain.limiter_words import shown
from headgate.redis.replies import Snapshot


@dataclass(frozen=True, slots=True)
class KeyInTurn:
    """A key of a queue with ``fair_by`` takes turns with the others.

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

    @property
    def name(self) -> str:
        """Its name in texts."""
        return shown(self.key)

    def __str__(self) -> str:
        name = "no key" if self.key is None else f"key {self.key}"
        return f"{name}: {self.waiting} waiting, {self.share:.0%} of the deliveries (weight {self.weight})"


@dataclass(frozen=True, slots=True)
class BandInTurn(KeyInTurn):
    """A band is shown like a key in turn, of a queue that delivers by priority.

    Attributes:
        key: its priorities.
        waiting: messages of it that nobody has.
        weight: 1, for bands have none.
        share: its part of the deliveries at the least, as long as all these bands have messages.
    """

    @property
    def name(self) -> str:
        """Its name in texts."""
        return str(self.key)

    def __str__(self) -> str:
        return f"{self.name}: {self.waiting} waiting, {self.share:.1%} of the deliveries or more"


@dataclass(frozen=True, slots=True)
class Turns:
    """`Turns` shows the keys of a queue that take turns, or its bands of priority.

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
        by = snapshot.fields.get("fair_by", "")
        if by == PRIORITY:
            bound = int(snapshot.fields.get("max_overtaken") or USUAL_OVERTAKEN)
            return cls(by, waiting, keys, tuple(_bands(counts, bound)))
        weights = snapshot.fields.get("fair_weights", "")
        listed = {key: weight_among(weights, key) for key in counts}
        total = sum(listed.values()) + max(0, keys - len(listed))  # of those that were not read, each counts once
        first = (
            KeyInTurn(None if key == NO_KEY else decode_name(key), count, listed[key], listed[key] / total)
            for key, count in counts.items()
        )
        order = sorted(first, key=lambda one: (-one.waiting, one.key or ""))
        return cls(by, waiting, keys, tuple(order))

    def rows(self) -> Iterator[str]:
        """Yield it in words, a line each."""
        if self.by == PRIORITY:
            yield f"delivered by priority: {self.waiting} messages of {len(self.first)} bands are ready"
            yield from map(str, self.first)
            return
        by = f" by {self.by}" if self.by else ""
        yield f"keys take turns{by}: {self.waiting} messages of {self.keys} keys are ready"
        yield from map(str, self.first)
        if self.keys > len(self.first):
            yield f"and {self.keys - len(self.first)} more keys"


def _bands(counts: Mapping[str, int], bound: int) -> Iterator[BandInTurn]:
    """Yield the bands that wait, the highest first; what is in turn from before priorities is of the usual one."""
    named: dict[str, list[int]] = {}
    for priority in range(len(BANDS)):
        named.setdefault(band_key(priority), []).append(priority)
    waiting = dict.fromkeys(reversed(named), 0)
    for key, count in counts.items():
        waiting[key if key in waiting else NO_KEY] += count
    there = [(key, count) for key, count in waiting.items() if count]
    for place, (key, count) in enumerate(there):
        share = 1 / (bound + 1) if place else 1 - (len(there) - 1) / (bound + 2 - len(waiting))
        yield BandInTurn("priority " + " and ".join(map(str, reversed(named[key]))), count, 1, share)
