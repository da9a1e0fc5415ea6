"""A limiter's ledger tells its course: who asked, waited, held and settled, and what was taken of each limit."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from headgate.core.ledger import events
from headgate.core.limits.limit import SHADOW, Limit, limits_of

NO_KEY: Final = "*"
_AMOUNT: Final = re.compile(r"(\w+)([=:])(\d+)(?:@(\d+))?")
Row = tuple[int, int, str]


@dataclass(slots=True)
class Admission:
    """An admission goes from being asked for to its end; times are ms.

    Attributes:
        hold: its id.
        key: encoded; ``*`` where there is none, or where the ledger does not name keys.
        amounts: by limit.
        asked: None where that was before the ledger begins.
        held: None where it was not admitted.
        ended: None where it goes on.
        limit: that it waited for; empty where it did not wait.
        whose: ``all`` or ``key``: of whom that limit is.
        used: by limit, as it was settled.
        end: ``freed``, ``lapsed``, ``quit`` (unserved) or ``lost`` (by Redis); empty where it goes on.
    """

    hold: str
    key: str
    amounts: dict[str, int]
    asked: int | None
    held: int | None = None
    ended: int | None = None
    limit: str = ""
    whose: str = "all"
    used: dict[str, int] = field(default_factory=dict)
    end: str = ""

    @property
    def waited(self) -> int | None:
        """Ms that it waited, as far as that is over."""
        until = self.held if self.held is not None else self.ended
        return until - self.asked if self.limit and until is not None and self.asked is not None else None

    @property
    def lasted(self) -> int | None:
        """Ms that it was held, where its begin and its end are known."""
        known = self.asked is not None and self.held is not None and self.ended is not None
        return self.ended - self.held if known and self.ended is not None and self.held is not None else None


@dataclass(slots=True)
class LimiterHistory:
    """A limiter's history holds all that happened at one limiter.

    Attributes:
        first_ms: time of its first entry.
        last_ms: of its last.
        limits: of all keys together, as they were last set; empty where no entry that is left says it.
        key_limits: of each key.
        shadows: shadow limits, of all keys together.
        key_shadows: those of each key.
        would_wait: (ms, hold, key, limit, whose, us that it would have waited, how far above) of each admission that a
            shadow limit would have kept; the us are None where nobody knows.
        changes: how often the limits were set to something else.
        admissions: in the order in which they were asked for.
        refusals: (ms, limit, whose, times) of those that did not wait.
        hold_offs: (ms, key, ms of its end).
        levels: (ms, what is taken by limit): of a rate the us at which it is whole again.
    """

    first_ms: int = 0
    last_ms: int = 0
    limits: Mapping[str, Limit] = field(default_factory=dict)
    key_limits: Mapping[str, Limit] = field(default_factory=dict)
    shadows: Mapping[str, Limit] = field(default_factory=dict)
    key_shadows: Mapping[str, Limit] = field(default_factory=dict)
    would_wait: list[tuple[int, str, str, str, str, int | None, int]] = field(default_factory=list)
    changes: int = 0
    admissions: list[Admission] = field(default_factory=list)
    refusals: list[tuple[int, str, str, int]] = field(default_factory=list)
    hold_offs: list[tuple[int, str, int]] = field(default_factory=list)
    levels: list[tuple[int, dict[str, int]]] = field(default_factory=list)


def course(rows: Iterable[Row]) -> LimiterHistory:
    """Return the course that entries tell, in order: (epoch, ms, detail) of each."""
    return _Follower().follow(rows)


def read_limits(text: str) -> dict[str, Limit]:
    """Return limits as the state or a ledger spells them; none where that cannot be read."""
    try:
        return limits_of(text.replace("|", ";"))
    except (ValueError, IndexError):
        return {}


def read_sides(text: str) -> tuple[dict[str, Limit], dict[str, Limit]]:
    """Return the limits that bind, and shadow limits, by their plain names."""
    limits = read_limits(text)
    shadows = {name: limit for name, limit in limits.items() if name.startswith(SHADOW)}
    real = {name: limit for name, limit in limits.items() if name not in shadows}
    plain = (replace(limit, name=name.removeprefix(SHADOW)) for name, limit in shadows.items())
    return real, {limit.name: limit for limit in plain}


def read_amounts(text: str) -> dict[str, int]:
    """Return amounts by limit."""
    return {name: int(number) for name, _, number, _ in _AMOUNT.findall(text)}


class _Follower:
    def __init__(self) -> None:
        self.course = LimiterHistory()
        self._open: dict[str, Admission] = {}
        self._lost: dict[str, Admission] = {}
        self._ms = self._epoch = 0
        self._handlers: dict[str, Callable[..., None]] = {
            "limiter": self._set, "waits": self._waits, "held": self._held, "claimed": self._claimed,
            "used": self._used, "freed": self._ended, "lapsed": self._ended, "quit": self._ended,
            "would-wait": self._would_wait, "refused": self._refused, "off": self._off, "levels": self._levels,
        }  # fmt: skip

    def follow(self, rows: Iterable[Row]) -> LimiterHistory:
        for epoch, ms, detail in rows:
            if not self.course.first_ms:
                self.course.first_ms, self._epoch = ms, epoch
            if epoch != self._epoch:
                self._lose(ms)
            self._ms, self._epoch, self.course.last_ms = ms, epoch, max(ms, self.course.last_ms)
            for event, arguments in events(detail):
                if (handler := self._handlers.get(event)) is not None:
                    handler(event, *arguments)
        return self.course

    def _set(self, _: str, limits: str = "", key_limits: str = "", *_rest: str) -> None:
        (found, shadows), (of_keys, of_key_shadows) = read_sides(limits), read_sides(key_limits)
        self.course.shadows, self.course.key_shadows = shadows, of_key_shadows
        if self.course.limits and (found, of_keys) != (self.course.limits, self.course.key_limits):
            self.course.changes += 1
        self.course.limits, self.course.key_limits = found, of_keys

    def _begin(self, one: Admission) -> Admission:
        self._open[one.hold] = one
        self.course.admissions.append(one)
        return one

    def _waits(self, _: str, hold: str, key: str, limit: str, whose: str, *amounts: str) -> None:
        self._begin(Admission(hold, key, read_amounts(":".join(amounts)), self._ms, limit=limit, whose=whose))

    def _held(self, _: str, hold: str, key: str, *amounts: str) -> None:
        one = self._open.get(hold)
        if one is None or one.held is not None:
            one = self._begin(Admission(hold, key, {}, self._ms))
        one.held, one.amounts = self._ms, read_amounts(":".join(amounts))

    def _claimed(self, _: str, hold: str, key: str, *amounts: str) -> None:
        one = self._lost.pop(hold, None)
        if one is None:
            self._begin(Admission(hold, key, read_amounts(":".join(amounts)), None, self._ms))
        else:
            one.ended, one.end = None, ""
            self._open[hold] = one

    def _used(self, _: str, hold: str, *amounts: str) -> None:
        if (one := self._open.get(hold)) is not None:
            one.used = read_amounts(":".join(amounts)) | one.used

    def _ended(self, event: str, hold: str, *_rest: str) -> None:
        if (one := self._open.pop(hold, None)) is not None:
            one.ended, one.end = self._ms, event

    def _refused(self, _: str, limit: str, whose: str, times: str, *_rest: str) -> None:
        self.course.refusals.append((self._ms, limit, whose, int(times)))

    def _would_wait(self, _: str, hold: str, key: str, limit: str, whose: str, us: str, over: str, *_rest: str) -> None:
        waits = int(us) if us.isdigit() else None
        self.course.would_wait.append((self._ms, hold, key, limit, whose, waits, int(over)))

    def _off(self, _: str, key: str, ms: str, *_rest: str) -> None:
        if int(ms):
            self.course.hold_offs.append((self._ms, key, self._ms + int(ms)))
        else:
            self.course.hold_offs = [
                (began, of, min(ends, self._ms) if of == key else ends) for began, of, ends in self.course.hold_offs
            ]

    def _levels(self, _: str, *text: str) -> None:
        self.course.levels.append((self._ms, read_amounts(":".join(text))))

    def _lose(self, ms: int) -> None:
        """Take all for lost with the state, until it is claimed."""
        for one in self._open.values():
            one.ended, one.end = ms, "lost"
        self._lost, self._open = self._open, {}
