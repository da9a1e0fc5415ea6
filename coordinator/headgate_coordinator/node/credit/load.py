"""A user's load counts the messages in flight to it, or that may be, and their bytes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from headgate.core.limits.limit import Limit
from headgate.core.limits.user_limit import IN_FLIGHT, IN_FLIGHT_BYTES
from headgate.units import MAX_SIZE

NAMES: Final = (IN_FLIGHT, IN_FLIGHT_BYTES)


@dataclass(frozen=True, slots=True)
class Load:
    """A load is a number of messages, and their bytes.

    >>> Load(3, 100) - Load(1, 40)
    Load(messages=2, size=60)
    >>> Load(3, 100).least(Load(5, 40)), Load(3, 100).covers(Load(3, 101))
    (Load(messages=3, size=40), False)
    """

    messages: int = 0
    size: int = 0

    @classmethod
    def of(cls, limits: Mapping[str, Limit] | Mapping[str, int], otherwise: int = 0) -> Self:
        """Return what limits or amounts say by their names; ``otherwise`` where they say nothing."""
        found = [limits.get(name, otherwise) for name in NAMES]
        return cls(*(one if isinstance(one, int) else one.most for one in found))

    def __add__(self, other: "Load") -> "Load":
        return Load(self.messages + other.messages, self.size + other.size)

    def __sub__(self, other: "Load") -> "Load":
        return Load(self.messages - other.messages, self.size - other.size)

    def least(self, other: "Load") -> "Load":
        """Return the smaller number and the smaller size."""
        return Load(min(self.messages, other.messages), min(self.size, other.size))

    def most(self, other: "Load") -> "Load":
        """Return the larger number and the larger size."""
        return Load(max(self.messages, other.messages), max(self.size, other.size))

    def covers(self, other: "Load") -> bool:
        """Return whether the other fits in."""
        return self.messages >= other.messages and self.size >= other.size

    @property
    def by_name(self) -> dict[str, int]:
        """Both, by the names of limits."""
        return dict(zip(NAMES, (self.messages, self.size), strict=True))

    def amounts(self, names: Mapping[str, object]) -> dict[str, int]:
        """Return what is more than nothing of it, by the names of limits, of those that are named."""
        return {name: number for name, number in self.by_name.items() if number > 0 and name in names}


NOTHING: Final = Load()
UNBOUND: Final = MAX_SIZE - 1
