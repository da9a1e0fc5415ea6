"""Limiters' needs in a period are computed here: of each limit, of all keys together and of the key that needs most."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame

from headgate.core.limits.limit import WINDOWS, Limit
from headgate.core.limits.shadow import is_unlimited
from headgate.core.names import decode_name
from headgate_pipeline.ledger.limiter_course import NO_KEY, Admission, LimiterHistory
from headgate_pipeline.ledger.limiters import each_limiter
from headgate_pipeline.simulate.model import CONFIDENCE, QUANTILE, bound

TOP_KEYS: Final = 100
"""Keys that are looked at: those that were admitted most."""
TOP_NAMED: Final = 3
"""Keys that a proposal names."""
LONGEST_MS: Final = 60_000
"""Of a window over which the demand of a rate is taken; else it is as long as its burst takes to be whole again."""
HOLDS: Final = "holds"
"""Stands for a limit in the row about all holds."""
_SCHEMA: Final = (
    "limit string, of string, form string, most double, rate double, window string, windows long, need double, "
    "confidence double, size_ms double, largest double, mean double, come double, lasted double, waits long, "
    "waited long, refused long, unserved long, keys long, shadow string, would_wait long, would_keys string, "
    "asked long, holds long, held_p99 double, held_max double, lapsed long"
)


@dataclass(frozen=True, slots=True)
class LimitDemand:
    """`LimitDemand` holds the measured demand on one limit of a limiter; of ``holds``, the times of all holds.

    Where nothing was seen of something, it is None.

    Attributes:
        limit: its name, or ``holds``.
        of: ``all`` keys together, or each ``key``.
        form: ``rate``, ``at_once`` or ``quota``.
        most: in force at the end: the burst of a rate.
        rate: a second, in force at the end.
        window: of a quota.
        windows: that the quantile is of.
        need: of a rate a second and of a quota in its window, as it was settled; else what was held and waited for at
            the same time. A bound of the quantile, held with ``confidence``; of each key that of the key that needs
            most.
        confidence: of ``need``.
        size_ms: of a window.
        largest: the largest amount of one admission.
        mean: that was held, on average over time.
        come: admissions a second.
        lasted: ms that one was held, on average.
        waits: for this limit.
        waited: ms of all of them.
        refused: calls that did not wait.
        unserved: that left the line.
        keys: that were seen.
        shadow: the shadow limit beside it, in words; empty without one.
        would_wait: admissions that it would have kept waiting, or refused.
        asked: admissions that asked for it.
        would_keys: the keys of most of these, and how many of each.
        holds: whose time is known.
        held_p99: ms, all but 1 % of them.
        held_max: ms.
        lapsed: whose lease ended before they were released.
    """

    limit: str
    of: str
    form: str = ""
    most: float = 0.0
    rate: float | None = None
    window: str = ""
    windows: int = 0
    need: float | None = None
    confidence: float | None = None
    size_ms: float = 0.0
    largest: float = 0.0
    mean: float | None = None
    come: float | None = None
    lasted: float | None = None
    waits: int = 0
    waited: int = 0
    refused: int = 0
    unserved: int = 0
    keys: int = 0
    shadow: str = ""
    would_wait: int = 0
    would_keys: str = ""
    asked: int = 0
    holds: int = 0
    held_p99: float | None = None
    held_max: float | None = None
    lapsed: int = 0


def limit_needs(entries: DataFrame) -> dict[str, tuple[LimitDemand, ...]]:
    """Return what the limits of each limiter of one namespace needed, by its name."""
    found: dict[str, tuple[LimitDemand, ...]] = {}
    for row in each_limiter(entries, lambda _, course: needs_of(course), _SCHEMA).drop("namespace").collect():
        values = {key: value for key, value in row.asDict().items() if value is not None}
        name = values.pop("destination")
        found[name] = (*found.get(name, ()), LimitDemand(**values))
    return found


def needs_of(course: LimiterHistory) -> Iterator[dict[str, Any]]:
    """Yield what each limit of a limiter needed, and how long holds lasted."""
    by_key: Counter[str] = Counter(one.key for one in course.admissions if one.key != NO_KEY)
    keys = {key for key, _ in by_key.most_common(TOP_KEYS)}
    for of, limits, shadows in (
        ("all", course.limits, course.shadows), ("key", course.key_limits, course.key_shadows)
    ):  # fmt: skip
        for name, limit in _looked_at(limits, shadows).items():
            own = [one for one in course.admissions if one.amounts.get(name) and one.asked is not None]
            parts = [own] if of == "all" else [[one for one in own if one.key == key] for key in keys]
            waits = [one for one in own if (one.limit, one.whose) == (name, of)]
            yield {
                "limit": name, "of": of, "form": limit.form, "most": float(limit.most), "rate": limit.rate,
                "window": limit.window, "keys": len(by_key), "asked": len(own), "waits": len(waits),
                "largest": float(max((one.amounts[name] for one in own), default=0)),
                "waited": sum(one.waited or 0 for one in waits), "unserved": sum(one.end == "quit" for one in waits),
                "refused": sum(n for _, *what, n in course.refusals if what == [name, of]),
                **_need(course, limit, parts), **_in_shadow(course, of, shadows.get(name)),
            }  # fmt: skip
    lasted = [one.lasted for one in course.admissions if one.lasted is not None]
    lapsed = sum(one.end == "lapsed" for one in course.admissions)
    yield {
        "limit": HOLDS, "of": "all", "holds": len(lasted), "lapsed": lapsed, **_in_shadow(course, "all", None),
        "held_p99": float(np.quantile(lasted, QUANTILE)) if lasted else None, "held_max": float(max(lasted, default=0)),
    }  # fmt: skip


def _looked_at(limits: Mapping[str, Limit], shadows: Mapping[str, Limit]) -> dict[str, Limit]:
    """Return limits, and where one binds nothing, or there is none, the shadow limit of its name."""
    real = {name: limit for name, limit in limits.items() if not is_unlimited(limit)}
    return {**limits, **shadows, **real}


def _in_shadow(course: LimiterHistory, of: str, shadow: Limit | None) -> dict[str, Any]:
    if shadow is None:
        return {"shadow": "", "would_wait": 0, "would_keys": ""}
    keys = Counter(
        key for _, _, key, limit, whose, _, _ in course.would_wait if (limit, whose) == (shadow.name, of)
    )  # fmt: skip
    named = (
        f"{times} of {'no key' if key == NO_KEY else decode_name(key)}" for key, times in keys.most_common(TOP_NAMED)
    )
    return {"shadow": str(shadow), "would_wait": keys.total(), "would_keys": ", ".join(named)}


def _need(course: LimiterHistory, limit: Limit, parts: Iterable[Sequence[Admission]]) -> Mapping[str, Any]:
    parts = [part for part in parts if part]
    span = max(course.last_ms - course.first_ms, 1)
    if not parts:
        return {}
    if limit.window:
        return _spent(course, limit, parts, span)
    whole_ms = limit.most * 1000 / limit.rate if limit.rate else 0.0
    size = min(max(whole_ms, 1000.0), LONGEST_MS) if limit.rate else 1000.0 if span >= LONGEST_MS else 100.0
    windows = int(span // size) + 1
    highest = np.zeros(windows)
    for part in parts:
        amounts = (
            _came(course, limit, part, size, windows) if limit.rate else _at_once(course, limit, part, size, windows)
        )
        highest = np.maximum(highest, amounts)
    need, confidence = bound(highest, QUANTILE, CONFIDENCE)
    numbers = {"windows": windows, "need": need, "confidence": confidence, "size_ms": size}
    if limit.rate:
        return numbers
    times = [((one.ended or course.last_ms) - one.held, one.amounts[limit.name]) for one in parts[0] if one.held]
    held = sum(ms * number for ms, number in times)
    return numbers | {
        "mean": held / span, "come": len(times) * 1000 / span,
        "lasted": sum(ms for ms, _ in times) / len(times) if times else 0.0,
    }  # fmt: skip


def _spent(course: LimiterHistory, limit: Limit, parts: Iterable[Sequence[Admission]], span: int) -> Mapping[str, Any]:
    """Return a quota's demand in whole windows of its length, or in a shorter history."""
    size = WINDOWS[limit.window] * 60_000.0
    windows = max(1, int(span // size))
    highest = np.zeros(windows)
    for part in parts:
        highest = np.maximum(highest, _came(course, limit, part, size, windows + 1)[:windows] * size / 1000)
    need, confidence = bound(highest, QUANTILE, CONFIDENCE)
    return {"windows": windows, "need": need, "confidence": confidence, "size_ms": size}


def _came(course: LimiterHistory, limit: Limit, part: Sequence[Admission], size: float, windows: int) -> Any:
    """Return a rate's demand a second in each window, as far as its outcome is known."""
    amounts = np.zeros(windows)
    for one in part:
        amounts[int(((one.asked or 0) - course.first_ms) // size)] += one.used.get(limit.name, one.amounts[limit.name])
    return amounts * 1000 / size


def _at_once(course: LimiterHistory, limit: Limit, part: Sequence[Admission], size: float, windows: int) -> Any:
    """Return the most in each window that was held and waited for at the same time."""
    changes = sorted(
        change
        for one in part
        for change in (
            ((one.asked or 0), one.amounts[limit.name]),
            (course.last_ms + 1 if one.ended is None else one.ended, -one.amounts[limit.name]),
        )
    )
    at = np.array([ms for ms, _ in changes], dtype=np.float64)
    level = np.cumsum([number for _, number in changes])
    highest = np.zeros(windows)
    into = np.searchsorted(at, course.first_ms + size * np.arange(windows), side="right") - 1
    highest = np.where(into >= 0, level[np.maximum(into, 0)], 0.0)
    where = np.clip(((at - course.first_ms) // size).astype(np.int64), 0, windows - 1)
    np.maximum.at(highest, where, level)
    return highest
