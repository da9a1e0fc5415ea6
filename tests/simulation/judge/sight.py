"""A sight is what lay at a destination at one moment."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from math import inf
from typing import Final, NamedTuple

from headgate.redis.replies import record
from tests.simulation.server import Call

ASKS: Final = ("acquire", "publish")
RENEWS: Final = (*ASKS, "attach", "settle")


def renews(call: Call) -> bool:
    """Return whether a call renewed the lease of its session; one that is refused, or known already, does not."""
    return call.script in RENEWS and isinstance(call.reply, list) and call.reply[0] in {b"OK", b"AGAIN"}


@lru_cache(maxsize=4096)
def _size_in(at: bytes) -> int:
    return int(at.partition(b"-")[2])


def size_of(stored: Iterable[bytes]) -> int:
    """Return the bytes of messages, which their ids say."""
    return sum(map(_size_in, stored))


@lru_cache(maxsize=1024)
def tags_of(keys: tuple[bytes, ...]) -> frozenset[bytes]:
    """Return what the slots of keys depend on."""
    return frozenset(key.partition(b"{")[2].partition(b"}")[0] for key in keys)


class Credit(NamedTuple):
    """What a session has at a destination."""

    held: int
    granted: int
    incarnation: str
    needs: int


@lru_cache(maxsize=1024)
def credit_in(text: bytes) -> Credit:
    """Return what the record of a session says."""
    facts = record(text)
    granted = int(facts["granted"])
    held = granted - int(facts["used"]) - int(facts["returned"])
    return Credit(held, granted, facts["inc"], int(facts["need"]) - granted)


@lru_cache(maxsize=1024)
def messages_in_hand(text: bytes) -> int:
    """Return how many messages a consumer has, as its record says."""
    facts = record(text)
    return int(facts["delivered"]) - int(facts["settled"])


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
    messages: int = 0
    """Pending and leased, where a queue that spools has a limit in these too."""
    most_messages: float = inf
    """That limit."""
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
