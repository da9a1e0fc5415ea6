"""Levels of a limiter, as callers see them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from headgate.redis.stores.limiters import LimiterLevels

_OFF: Final = "hold_off off "


@dataclass(frozen=True, slots=True)
class LimitState:
    """One limit, and how much of it is taken.

    Attributes:
        name: of the limit.
        form: ``rate``, ``at_once`` or ``quota``.
        limit: the burst of a rate, what may be held at once, or the quota.
        remaining: what may be taken now; below zero where more is owed.
        taken: of it; of a rate what is not refilled yet.
        reset_after: seconds until the burst is whole again, or the quota's window ends; 0 for what is held at once.
        withheld: neither taken nor remaining: after a hold-off it comes back slowly.
    """

    name: str
    form: str
    limit: int
    remaining: int
    taken: int
    reset_after: float
    withheld: int = 0

    @classmethod
    def read(cls, row: str) -> "LimitState":
        """Return it as the script writes it."""
        name, form, most, left, whole_us, taken, withheld = row.split(" ")
        return cls(name, form, int(most), int(left), int(taken), int(whole_us) / 1e6, int(withheld))

    @property
    def used(self) -> float:
        """The share of it that is taken or withheld; 1.0 for all of it."""
        return (self.taken + self.withheld) / self.limit


@dataclass(frozen=True, slots=True)
class LimiterState:
    """A limiter at one instant.

    Attributes:
        name: of the limiter.
        key: that was asked for; None without one.
        limits: of all keys together, by name.
        key_limits: those of the key, by name; empty without one.
        waiting: admissions in line.
        keys: how many keys are known, for something of theirs is held, owed or waits.
        held_off: seconds for which nothing is admitted; 0 without a hold-off.
        reason: of the hold-off, for people.
        learning: seconds for which nothing new is held at once, for state may have been lost.
    """

    name: str
    key: str | None
    limits: Mapping[str, LimitState]
    key_limits: Mapping[str, LimitState]
    waiting: int
    keys: int
    held_off: float
    reason: str
    learning: float

    @classmethod
    def of(cls, name: str, key: str | None, levels: LimiterLevels) -> "LimiterState":
        """Return it as the script tells it."""
        off = max(held_off(levels.limits), held_off(levels.of_key))
        return cls(
            name, key, read_limits(levels.limits), read_limits(levels.of_key), levels.waiting, levels.keys, off,
            levels.reason if off else "", levels.learning_ms / 1000,
        )  # fmt: skip

    def __getitem__(self, limit: str) -> LimitState:
        """Return the limit of that name that has less remaining: of all keys together, or of the key."""
        both = [limits[limit] for limits in (self.limits, self.key_limits) if limit in limits]
        if not both:
            raise KeyError(limit)
        return min(both, key=lambda one: one.remaining)


def held_off(rows: Iterable[str]) -> float:
    """Return the seconds for which a hold-off lasts, by the script's rows; 0 without one."""
    return max((int(row.removeprefix(_OFF)) / 1000 for row in rows if row.startswith(_OFF)), default=0.0)


def read_limits(rows: Iterable[str]) -> Mapping[str, LimitState]:
    """Return the limits of the script's rows by name."""
    found = (LimitState.read(row) for row in rows if not row.startswith(_OFF))
    return MappingProxyType({limit.name: limit for limit in found})
