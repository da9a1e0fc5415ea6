"""The calls of one session at one limiter: operations, what is answered, and who hears of it. Values only."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, Protocol

from headgate.core.credit import RENEW_EVERY, USE_UNTIL
from headgate.units import MAX_DURATION

HEARD_WITHIN: Final = 2.5
"""Seconds within which a hold is renewed, however long its lease is: where state was lost it is claimed that soon."""
SOON: Final = 0.5
"""Seconds in which no lease ends, for none is shorter than a second."""
LEARNT: Final = 60.0
"""Seconds for which nothing new is held where state was lost, at the most."""

NOT_SAFE: Final = "durability"
"""Stands in place of a limit where what was admitted is not yet as safe as the durability asks."""
UNSAFE: Final = f"wait 100000 {NOT_SAFE} all"
"""The answer to such an admission: it is held in Redis, and is asked for again."""

MOVED: Final = "moved"
"""Why a slice refuses what is for a key that is pinned to another one."""


PARTS: Final = "parts"
"""A slice refuses so what the first one is to be asked for too; a hold that it renewed so has a part."""


class State(Enum):
    """Says how far an admission has come."""

    ASKING = "asking"
    """It is to be asked for, or was, and there is no answer yet."""
    IN_LINE = "in line"
    DOUBTED = "doubted"
    """Redis admitted it, and that was heard so late that its lease may be over: Redis is asked first."""
    HELD = "held"
    OVER = "over"
    """It was released, refused, lost, or its caller gave up."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An admission's refusal, or what it waits for.

    Attributes:
        why: ``late`` (not now, or not in time), ``timeout`` (it waited as long as it may), ``unanswered`` (Redis does
            not answer), ``never`` (more than the limit), ``limit`` (no such limit), ``key`` (a key that is not
            allowed), ``hopeless`` (it would not be admitted in time), ``shed`` (its band is refused above that fill),
            ``keys`` or ``holds`` (no room for one more), ``kind`` (no limiter), ``moved`` (another slice has the key),
            ``parts`` (the first slice is to be asked too), ``failed``.
        limit: the name of the limit that binds; empty where none does.
        rule: ``all`` for the limit of all callers together, ``key`` for that of one key.
        retry_at: when it could be admitted, on the caller's clock; None where that is not known.
        most: the most that is ever admitted at once, for ``never``.
        error: for ``failed``: why it cannot be asked for.
        band: for ``shed``: its band.
        fill: for ``shed``: how far the limit is filled, from 0 to 1.
    """

    why: str
    limit: str = ""
    rule: str = ""
    retry_at: float | None = None
    most: int = 0
    error: Exception | None = None
    band: int = 0
    fill: float = 0.0

    @classmethod
    def read(cls, words: Sequence[str], now: float) -> "Refusal":
        """Return what the script answered to an admission that it did not hold."""
        match words:
            case ["wait" | "late", "-", limit, rule, *_] | [
                "wait",
                "1000000",
                limit,
                rule,
                *_,
            ]:  # it is to ask again: no more
                return cls("late", limit, rule)
            case ["wait" | "late", wait_us, limit, rule, *_]:
                return cls("late", limit, rule, now + int(wait_us) / 1e6)
            case ["hopeless", wait_us, limit, rule, *_]:
                return cls("hopeless", limit, rule, now + int(wait_us) / 1e6)
            case ["shed", band, fill, limit, rule, *_]:
                return cls("shed", limit, rule, band=int(band), fill=int(fill) / 1000)
            case ["never", most, limit, rule, *_]:
                return cls("never", limit, rule, most=int(most))
            case ["limit", name, *_]:
                return cls("limit", name)
        return cls(words[0])


class Asker(Protocol):
    """An asker wants an admission, and hears what becomes of it."""

    def in_line(self, reservation: "Reservation") -> None:
        """Learn that it waits."""

    def admitted(self, reservation: "Reservation") -> None:
        """Take what was admitted."""

    def refused(self, reservation: "Reservation", refusal: Refusal) -> None:
        """Learn that nothing was taken, and why."""

    def lost(self, reservation: "Reservation") -> None:
        """Learn that what was held is held no more: its lease ran out, or Redis lost it."""


class _NoAsker:
    """This asker hears nothing: it stands for the taker of what is over."""

    def in_line(self, reservation: "Reservation") -> None: ...

    def admitted(self, reservation: "Reservation") -> None: ...

    def refused(self, reservation: "Reservation", refusal: Refusal) -> None: ...

    def lost(self, reservation: "Reservation") -> None: ...


NOBODY: Final[Asker] = _NoAsker()
"""Stands for the taker of what is over."""


@dataclass(eq=False, slots=True)
class Reservation:
    """A reservation is one admission, from being asked for to its end.

    Attributes:
        id: of the hold, as Redis knows it.
        key: encoded; ``*`` where there is none.
        amounts: as the script takes them.
        ttl_ms: of its own lease.
        since: when it was asked for.
        deadline: when the asker gives up.
        taker: hears of it.
        waits: whether it stands in line where it is not admitted at once.
        again: whether its id was asked for before: a hint may be of that, and so it asks.
        state: how far it has come.
        epoch: of the destination, in which it was last confirmed.
        held_since: when the call was sent by which it was held first.
        heard_at: when that was heard.
        confirmed_at: when the call was sent that confirmed its lease, or its place in line, last.
        attend_at: when its wait is over; infinite for one that does not wait, or was not heard of yet.
        again_at: when it is asked for again, in line; infinite elsewhere.
        renew_at: when its lease is to be renewed; infinite where it has none.
        binding: what it waits for, as last answered; None where nothing was.
        sent: whether a call with it was made: it may be known to Redis.
        flying: whether a call with it is under way.
        claimed: whether it is to be claimed, for an epoch began, and that is not answered yet.
        foreign: whether somebody else asked for it: what it holds is not known here.
        has_part: whether it is held only with its part at the first slice, by its last renewal.
    """

    id: str
    key: str
    amounts: str
    ttl_ms: int
    since: float
    deadline: float
    taker: Asker
    waits: bool = True
    again: bool = False
    state: State = field(default=State.ASKING, init=False)
    epoch: int = field(default=0, init=False)
    held_since: float = field(default=math.inf, init=False)
    heard_at: float = field(default=math.inf, init=False)
    confirmed_at: float = field(default=0.0, init=False)
    attend_at: float = field(default=math.inf, init=False)
    again_at: float = field(default=math.inf, init=False)
    renew_at: float = field(default=math.inf, init=False)
    binding: Refusal | None = field(default=None, init=False)
    sent: bool = field(default=False, init=False)
    flying: bool = field(default=False, init=False)
    claimed: bool = field(default=False, init=False)
    foreign: bool = field(default=False, init=False)
    has_part: bool = field(default=False, init=False)

    @property
    def use_until(self) -> float:
        """Until when it is certainly held: its lease, counted from before the call, less what clocks may differ by.

        At first no longer than others wait where state was lost: replicas have it by the time of its first renewal.
        """
        lease = self.ttl_ms / 1000
        if self.confirmed_at < self.held_since + HEARD_WITHIN:
            lease = min(lease, LEARNT)
        return self.confirmed_at + USE_UNTIL * lease

    def may_be_over(self, now: float) -> bool:
        """Return whether it may be held no more."""
        return now > self.confirmed_at + SOON and now >= self.use_until

    def stand_in_line(self, binding: Refusal, asked_at: float) -> Refusal:
        """Note what it waits for, as it was answered, and return that."""
        self.state, self.binding = State.IN_LINE, binding
        if binding.limit != NOT_SAFE:  # else its lease began already
            self.confirmed_at = asked_at
            self.taker.in_line(self)
        return binding

    def confirm(self, asked_at: float) -> None:
        """Note that its lease began again, and when to renew it."""
        self.confirmed_at = asked_at
        self.renew_at = asked_at + min(RENEW_EVERY * self.ttl_ms / 1000, HEARD_WITHIN)

    def end(self) -> Asker:
        """Note that it is over; returns the taker, of which it knows nothing any more: both are gone at once."""
        taker, self.taker = self.taker, NOBODY
        self.state = State.OVER
        self.attend_at = self.again_at = self.renew_at = math.inf
        return taker


class Operation(NamedTuple):
    """An operation is one thing to be done for one admission.

    Attributes:
        verb: ``admit``, ``settle``, ``release``, ``renew``, ``claim`` or ``sample``.
        reservation: the admission.
        amounts: what is asked for, or what was used.
        done: called with whether it is held, once that is known; ``bool`` where nobody is to hear of it.
    """

    verb: str
    reservation: Reservation
    amounts: str = "-"
    done: Callable[[bool], object] = bool

    def is_done(self, answer: str) -> bool:
        """Return whether it was done for a hold; one that was renewed learns whether it has a part."""
        if self.verb == "renew":
            self.reservation.has_part = answer == PARTS
        return answer == "ok" or (self.verb == "renew" and answer == PARTS)


@dataclass(frozen=True, slots=True)
class Decide:
    """Have operations decided, under a number; repeated until it is answered, with the same words.

    Attributes:
        seq: its number.
        epoch: as the oldest of what it claims knows it, else as last seen.
        operations: at most 128.
        words: as the script takes them.
        since: when it was made first.
    """

    seq: int
    epoch: int
    operations: tuple[Operation, ...]
    words: tuple[str | int, ...]
    since: float

    @classmethod
    def of(
        cls, seq: int, epoch: int, operations: tuple[Operation, ...], more: tuple[str | int, ...], now: float
    ) -> "Decide":
        """Return a call with operations, and with ``more`` as the script takes it; they are on their way now."""
        words: list[str | int] = []
        for verb, one, amounts, _ in operations:
            one.flying, patience = True, 0
            if verb == "admit":
                if not one.sent:
                    one.sent, one.confirmed_at = True, now
                left = one.deadline - now
                if one.waits and left > 0:
                    patience = int(min(left, MAX_DURATION) * 1000) or 1
            words += (verb, one.id, one.key, amounts, one.ttl_ms, patience)
        return cls(seq, epoch, operations, (*words, *more), now)


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision answers :class:`Decide`; ``answers`` has one for each operation where the code is ``OK``."""

    code: str
    epoch: int = 0
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Create:
    """Make the limiter exist; ``recover`` says that it was there before, and is gone."""

    recover: bool


Call = Decide | Create
