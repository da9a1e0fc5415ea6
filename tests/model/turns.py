"""Keys that take turns at a queue, in plain Python: one message at a time, by what each key had for its weight."""

import math
from dataclasses import dataclass, field
from typing import Final

NO_KEY: Final = "*"
STEP: Final = 1 << 20


@dataclass(slots=True)
class Turns:
    """``filed``: what nobody has, by key; ``rota``: when each key is next."""

    weights: dict[str, int]
    filed: dict[str, list[int]] = field(default_factory=dict)
    rota: dict[str, int] = field(default_factory=dict)

    def file(self, key: str, seq: int) -> None:
        """Put a message where it belongs among those of its key."""
        self.rota.setdefault(key, min(self.rota.values(), default=0))
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
        seqs: list[int] = []
        while len(seqs) < most and self.rota:
            _, key = min((at, key.encode()) for key, at in self.rota.items())
            name = key.decode()
            if not self.filed.get(name):
                del self.rota[name]
                continue
            seqs.append(self.filed[name].pop(0))
            self.rota[name] += math.ceil(STEP / self.weights.get(name, 1))
        return seqs
