"""Amounts, and one session's account: the part of the model that is plain arithmetic."""

from dataclasses import dataclass
from typing import Final, Self

UNLIMITED: Final = 1 << 60


@dataclass(slots=True, unsafe_hash=True)  # nobody changes one, or totals; to see to that takes as long as to make one
class Amount:
    """So many bytes in so many messages."""

    bytes: int = 0
    messages: int = 0

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.bytes + other.bytes, self.messages + other.messages)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.bytes - other.bytes, self.messages - other.messages)

    def fits(self, room: "Amount") -> bool:
        return self.bytes <= room.bytes and self.messages <= room.messages

    def most(self, other: "Amount") -> "Amount":
        return Amount(max(self.bytes, other.bytes), max(self.messages, other.messages))

    def least(self, other: "Amount") -> "Amount":
        return Amount(min(self.bytes, other.bytes), min(self.messages, other.messages))


NOTHING: Final = Amount()


@dataclass(slots=True)
class Account:
    """What a destination knows of one session. All amounts but ``held`` are cumulative."""

    inc: int
    ttl_ms: int
    seen: int
    granted: Amount = NOTHING
    used: Amount = NOTHING
    returned: Amount = NOTHING
    need: Amount = NOTHING
    want: Amount = NOTHING
    weight: int = 0
    consumers: int = 0
    lease_ends: int = 0
    strike: int | None = None
    turn: int = 0
    single: bool = False
    """Whether it waits for one message that is above the whole limit."""

    @property
    def held(self) -> Amount:
        return self.granted - self.used - self.returned

    @property
    def lacks(self) -> Amount:
        """What must still be granted before the message at the head of the session's own line can go."""
        return (self.need - self.granted).most(NOTHING)

    @property
    def blocked(self) -> bool:
        return self.lacks != NOTHING

    def is_silent(self, now: int) -> bool:
        """Return whether it was not heard of for so long that it loses its place in line."""
        return now - self.seen > max(3000, min(6000, self.ttl_ms * 6 // 10))

    @property
    def grace(self) -> int:
        return self.ttl_ms * 3 // 10

    def renew(self, now: int, ttl_ms: int) -> None:
        self.ttl_ms, self.seen, self.strike = ttl_ms, now, None
        self.lease_ends = now + ttl_ms * 6 // 10

    def give_back(self, returned: Amount) -> bool:
        """Take back what is newly returned, never more than is held; returns whether that was anything."""
        back = (returned - self.returned).most(NOTHING).least(self.held)
        self.returned += back
        return back != NOTHING


@dataclass(frozen=True, slots=True)
class Rules:
    """What holds beside the limit. ``resume``: pending bytes at which a destination that was full serves again."""

    off: bool = False
    stopped: bool = False
    resume: int | None = None
    allow_one: bool = False
    fair: str = ""
    retry: int = 0
    """ms that a failed delivery waits, twice as long each time, up to three times that."""


@dataclass(slots=True, unsafe_hash=True, kw_only=True)
class Totals:
    """A session's own view of its account, as it goes over the wire."""

    session: str
    inc: int
    epoch: int = 0
    granted: Amount = NOTHING
    used: Amount = NOTHING
    returned: Amount = NOTHING
    need: Amount = NOTHING
    want: Amount = NOTHING
    weight: int = 1
    size: int = 0
    sent: int = 0
    ttl_ms: int = 10_000

    def claimed(self, known: Account | None) -> tuple[Amount, Amount, Amount]:
        """Return (granted, used, returned) if the claim is added to what is known; never less than nothing held."""
        was = known if known and known.inc == self.inc else Account(self.inc, 0, 0)
        granted = self.granted.most(was.granted)
        used = self.used.most(was.used).least(granted)
        return granted, used, self.returned.most(was.returned).least(granted - used)


@dataclass(slots=True, unsafe_hash=True)
class Answer:
    """The reply to a call about credit, as far as the rules fix it."""

    code: str
    epoch: int = 0
    granted: Amount = NOTHING
    place: int = 0
    blocked: int = 0
    first: int = 0
    lost: int = 0

    @classmethod
    def about(
        cls, code: str, epoch: int, account: Account | None, line: list[str], sid: str, first: int = 0, lost: int = 0
    ) -> Self:
        place = line.index(sid) + 1 if sid in line else 0
        return cls(code, epoch, account.granted if account else NOTHING, place, len(line), first, lost)
