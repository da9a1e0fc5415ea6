"""A sight is what lay at a destination at one moment."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace


def size_of(stored: Iterable[bytes]) -> int:
    """Return the bytes of messages, which their ids say."""
    return sum(int(at.partition(b"-")[2]) for at in stored)


@dataclass(slots=True)
class Sight:
    """What lay at a destination after a script."""

    limit: float = 0.0
    epoch: str = ""
    pending: int = 0
    leased: dict[str, int] = field(default_factory=dict)
    granted: dict[str, int] = field(default_factory=dict)
    incarnations: dict[str, str] = field(default_factory=dict)
    needs: dict[str, int] = field(default_factory=dict)
    line: list[str] = field(default_factory=list)
    stored: dict[bytes, str] = field(default_factory=dict)
    in_hand: int = 0
    """How many of these were delivered, and have not come back."""
    opens: bool = True
    """Whether room there may be granted."""
    spread: str = ""
    """Of the first slice, how values are spread: a number, slices, and the header."""
    is_held: bool = False
    """Of a slice, whether nobody may send there before all that was sent to any is settled: values change slices."""
    sliced: bool = False
    """Whether it is a part of a destination, which has the limit together with the others."""
    full: int = 0
    """Of a slice, what it heard of its pool being full: an odd number while it is."""
    learns_until: float = 0.0
    """Until when holders could claim what they had, on the loop's clock."""

    @property
    def total(self) -> int:
        return self.pending + sum(self.leased.values())

    def beyond(self, other: "Sight") -> "Sight":
        """Return what is here and not there: messages, and what sessions hold more."""
        stored = {at: token for at, token in self.stored.items() if at not in other.stored}
        leased = {sid: held - other.leased.get(sid, 0) for sid, held in self.leased.items()}
        return Sight(pending=size_of(stored), stored=stored, leased={sid: max(0, more) for sid, more in leased.items()})

    def left_in(self, later: "Sight") -> "Sight":
        """Return what of this is left there."""
        stored = {at: token for at, token in self.stored.items() if at in later.stored}
        leased = {sid: min(held, later.leased.get(sid, 0)) for sid, held in self.leased.items()}
        return Sight(pending=size_of(stored), stored=stored, leased=leased)

    def joined(self, stored: dict[bytes, str]) -> "Sight":
        """Return this with more messages."""
        stored = self.stored | stored
        return replace(self, pending=size_of(stored), stored=stored)
