"""Levels of limits are read here as callers see them: those of a limiter, and shadow limits of all else."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from types import MappingProxyType
from typing import Final, Literal

from headgate.core.limits.limit import SHADOW, UNLIMITED, Limit, limits_of
from headgate.redis.stores.limiter_levels import LimiterLevels

_OFF: Final = "hold_off off "
_ADAPTING: Final = 12  # words that one which adapts has more


@dataclass(frozen=True, slots=True)
class Adapting:
    """Says how a limit adapts, and what it heard of finished holds.

    Attributes:
        floor: the least that it becomes.
        ceiling: the most.
        adapt: ``aimd`` or ``gradient``.
        reason: why it changed last: ``start`` and ``grow`` (no congestion), ``overload``, ``slow`` (holds took longer),
            ``probe`` (to see the time without a queue); ``new`` where it did not change yet.
        before: what it was before that.
        ago: seconds since then.
        ok: holds that went well in the second that it changed for.
        overloads: that met an overload in it.
        mean: seconds that these holds took on average.
        outcomes: of all holds so far, by outcome.
    """

    floor: int
    ceiling: int
    adapt: str
    reason: str
    before: int
    ago: float
    ok: int
    overloads: int
    mean: float
    outcomes: Mapping[str, int]

    @classmethod
    def read(cls, words: list[str]) -> "Adapting":
        """Return it as the script writes it."""
        floor, ceiling, adapt, reason, *numbers = words
        before, ago_ms, ok, over, us, *outcomes = map(int, numbers)
        counts = dict(zip(("ok", "overload", "ignore"), outcomes, strict=True))
        return cls(int(floor), int(ceiling), adapt, reason, before, ago_ms / 1000, ok, over, us / 1e6, counts)


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
        adapting: how it follows what its service bears; None where it does not.
    """

    name: str
    form: str
    limit: int
    remaining: int
    taken: int
    reset_after: float
    withheld: int = 0
    adapting: Adapting | None = None

    @classmethod
    def read(cls, row: str) -> "LimitState":
        """Return it as the script writes it."""
        name, form, most, left, whole_us, taken, withheld, *more = row.split(" ")
        adapting = Adapting.read(more[:_ADAPTING]) if len(more) >= _ADAPTING else None
        return cls(name, form, int(most), int(left), int(taken), int(whole_us) / 1e6, int(withheld), adapting)

    @property
    def is_unlimited(self) -> bool:
        """Whether it binds nothing: a shadow limit of its name stands beside it."""
        return self.limit == UNLIMITED

    @property
    def used(self) -> float:
        """The share of it that is taken or withheld; 1.0 for all of it."""
        return (self.taken + self.withheld) / self.limit


@dataclass(frozen=True, slots=True)
class ShadowState:
    """A shadow limit has a level, and counts how often it would have kept somebody waiting.

    Attributes:
        level: of it, as if it bound; below zero remains what is above it.
        rule: ``all`` for one of all keys together, ``key`` for one of each key.
        would_wait: admissions that it would have kept waiting, or refused, of all keys.
        most_above: how far above it the furthest of these was.
    """

    level: LimitState
    rule: Literal["all", "key"]
    would_wait: int
    most_above: int


@dataclass(frozen=True, slots=True)
class LimiterState:
    """A limiter state shows a limiter at one instant.

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
        shadows: shadow limits, of all keys together and of the key.
        would_wait: admissions so far that any shadow limit would have kept waiting, or refused.
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
    shadows: tuple[ShadowState, ...] = ()
    would_wait: int = 0

    @classmethod
    def of(cls, name: str, key: str | None, levels: LimiterLevels) -> "LimiterState":
        """Return it as the script tells it."""
        off = max(held_off(levels.limits), held_off(levels.of_key))
        return cls(
            name, key, read_limits(levels.limits), read_limits(levels.of_key), levels.waiting, levels.keys, off,
            levels.reason if off else "", levels.learning_ms / 1000, read_shadows(levels), levels.would_wait,
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


def read_shadows(levels: LimiterLevels) -> tuple[ShadowState, ...]:
    """Return the shadow limits of the script's rows, with what was counted; those of each key where a key was read."""
    counts = {(name, rule): numbers for name, rule, *numbers in counts_of(levels.shadowed)}
    rules: tuple[tuple[Literal["all", "key"], tuple[str, ...]], ...] = (
        ("all", levels.shadows), ("key", levels.of_key_shadows)
    )  # fmt: skip
    return tuple(
        ShadowState(limit, rule, *counts.get((limit.name, rule), (0, 0)))
        for rule, rows in rules
        for limit in read_limits(row.removeprefix(SHADOW) for row in rows).values()
    )


def counts_of(shadowed: Iterable[str]) -> Iterator[tuple[str, str, int, int]]:
    """Yield what was counted of each shadow limit: its name, ``all`` or ``key``, times, and the most above it."""
    for entry in shadowed:
        name, rule, times, most, *_ = entry.split(":")
        yield name, rule, int(times), int(most)


def read_tried(fields: Mapping[str, str], now_ms: int) -> tuple[ShadowState, ...]:
    """Return a queue's, topic's, gate's or bucket's shadow limits, each with its level and its count.

    Args:
        fields: of the destination.
        now_ms: by Redis' clock.
    """
    counts = {name: numbers for name, _, *numbers in counts_of(filter(None, fields.get("shadowed", "").split(";")))}
    levels = (one.partition("=") for one in fields.get("levels", "").split(";")) if fields.get("shadow") else ()
    whole_us = {name: int(us) for name, _, us in levels if us}
    return tuple(
        ShadowState(_level(limit, fields, whole_us, now_ms), "all", *counts.get(name, (0, 0)))
        for name, limit in (limits_of(fields["shadow"]) if fields.get("shadow") else {}).items()
    )


def _level(limit: Limit, fields: Mapping[str, str], whole_us: Mapping[str, int], now_ms: int) -> LimitState:
    if limit.rate is None:
        held = "leased" if fields["kind"] == "gate" else "pending"
        taken = int(fields.get(f"{held}_{limit.name}") or 0)
        return LimitState(limit.name, limit.form, limit.most, limit.most - taken, taken, 0.0)
    later_us = whole_us.get("S_at", 0)
    left_us = max(0, whole_us.get(f"S_{limit.name}", 0) - max(now_ms * 1000, later_us))
    taken = ceil(left_us * limit.rate / 1e6)
    return LimitState(limit.name, limit.form, limit.most, limit.most - taken, taken, left_us / 1e6)
