"""Keys that take turns at a queue, or go by priority, in plain Python: one message at a time."""

import math
from dataclasses import dataclass, field
from typing import Final

NO_KEY: Final = "*"
STEP: Final = 1 << 20
BANDS: Final = "01234*67"


@dataclass(slots=True)
class Turns:
    """``filed``: what nobody has, by key; ``rota``: when each key is next, or how often it was overtaken.

    ``bound``: at most how many of other bands go before one that is next in its own; None where keys take turns.
    """

    weights: dict[str, int]
    bound: int | None = None
    filed: dict[str, list[int]] = field(default_factory=dict)
    rota: dict[str, int] = field(default_factory=dict)
    turned: int = 0
    """How much of a turn of all keys, in steps, the last take was."""

    def file(self, key: str, seq: int) -> None:
        """Put a message where it belongs among those of its key."""
        if self.bound and key not in BANDS and key not in self.rota:
            key = NO_KEY
        self.rota.setdefault(key, 0 if self.bound else min(self.rota.values(), default=0))
        self.filed.setdefault(key, []).append(seq)
        self.filed[key].sort()

    def forget(self, seq: int) -> None:
        """Take a message out, wherever it is."""
        for key, line in self.filed.items():
            self.filed[key] = [other for other in line if other != seq]

    @property
    def seqs(self) -> set[int]:
        """All that is in turn."""
        return {seq for line in self.filed.values() for seq in line}

    def take(self, most: int) -> list[int]:
        """Take up to so many, each key in its turn; one that has nothing when it is its turn leaves."""
        if self.bound:
            return self._by_band(most, self.bound)
        seqs: list[int] = []
        turned = 0.0
        while len(seqs) < most and self.rota:
            _, key = min((at, key.encode()) for key, at in self.rota.items())
            name = key.decode()
            if not self.filed.get(name):
                del self.rota[name]
                continue
            seqs.append(self.filed[name].pop(0))
            self.rota[name] += (step := math.ceil(STEP / self.weights.get(name, 1)))
            turned += step / len(self.rota)
        self.turned = math.ceil(turned)
        return seqs

    def _by_band(self, most: int, bound: int) -> list[int]:
        for key in [key for key in self.rota if key not in BANDS]:
            del self.rota[key]
            for seq in self.filed.pop(key, []):
                self.file(NO_KEY, seq)
        seqs: list[int] = []
        while True:
            waiting = [key for key in BANDS if self.filed.get(key)]
            self.rota = {key: self.rota[key] for key in waiting}
            if not waiting or len(seqs) == most:
                return seqs
            due = [key for key in waiting if self.rota[key] > bound - len(BANDS)]
            key = max(due, key=lambda key: (self.rota[key], -BANDS.index(key)), default=waiting[0])
            seqs.append(self.filed[key].pop(0))
            self.rota = {other: self.rota[other] + 1 for other in waiting} | {key: 0}
