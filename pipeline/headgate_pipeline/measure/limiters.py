"""Use of limiters in windows: each of their limits, and the keys that took most. Pure transforms of a batch."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812, as everybody calls them

from headgate.core.limits.limit import Limit
from headgate_pipeline.ledger.limiter_course import NO_KEY, LimiterHistory
from headgate_pipeline.ledger.limiters import each_limiter

TOP_KEYS: Final = 10
"""Of a limiter in a window; there may be a million of them."""
FULL: Final = 0.95
"""Share of a limit from which on it counts as reached."""
_SAMPLES: Final = 100
_TIMES: Final = ("p50_ms", "p95_ms", "p99_ms", "max_ms")
_LIMITS: Final = (
    "limit string, of string, start long, end long, form string, most double, taken_p50 double, taken_p95 double, "
    "taken_max double, full_ms double, admitted long, amount long, refunded long, owed long, waits long, "
    "unserved long, waited_ms long, wait_p50_ms double, wait_p95_ms double, wait_p99_ms double, wait_max_ms double, "
    "refused long, would_wait long, held_p50_ms double, held_p95_ms double, held_p99_ms double, held_max_ms double, "
    "lapsed long"
)
_KEYS: Final = (
    "key string, start long, end long, share double, admitted long, waits long, unserved long, waited_ms long, "
    "amounts map<string,long>"
)


def limiters(entries: DataFrame, length: str) -> DataFrame:
    """Return how much of each limit of each limiter was taken in every window that has entries of it.

    Args:
        entries: rows of :data:`~headgate_pipeline.ledger.schema.ENTRY`.
        length: of a window.

    Returns:
        ``namespace``, ``destination``, ``limit`` (also ``hold_off``, and ``line`` for waits behind others), ``of``
        (``all`` keys together, or each ``key``), ``start``, ``end``; ``form`` and ``most`` as they were last set;
        ``taken_p50``, ``taken_p95`` and ``taken_max`` over time; ``full_ms`` for which 95 % was taken, or for which it
        was held off; ``admitted`` holds and their ``amount``; ``refunded`` and ``owed`` by settling; ``waits`` for it
        that ended, of which ``unserved``, with ``waited_ms`` and percentiles; ``refused`` calls that did not wait;
        ``would_wait``: admissions that a shadow limit of that name would have kept waiting, or refused;
        percentiles of the time of holds that ended, and how many ``lapsed``. Columns that no ledger tells are null.
    """
    size = _ms_of(entries, length)
    return _dated(each_limiter(entries, lambda _, course: _of_limits(course, size), _LIMITS))


def limiter_keys(entries: DataFrame, length: str) -> DataFrame:
    """Return the keys of each limiter that took most in a window, at most :data:`TOP_KEYS`; arguments as above.

    Returns:
        ``namespace``, ``destination``, ``key``, ``start``, ``end``; ``share``, the largest of what was admitted of any
        limit; ``admitted`` holds and their ``amounts`` by limit; ``waits`` that ended, of which ``unserved``, and
        ``waited_ms``.
    """
    size = _ms_of(entries, length)
    return _dated(each_limiter(entries, lambda _, course: _of_keys(course, size), _KEYS))


def whole(entries: DataFrame) -> DataFrame:
    """Return the same as :func:`limiters` over the whole period, one row a limit."""
    return each_limiter(entries, lambda _, course: _of_limits(course, course.last_ms + 1, course.first_ms), _LIMITS)


def _ms_of(entries: DataFrame, length: str) -> int:
    window = entries.sparkSession.range(1).select(F.window(F.timestamp_millis(F.lit(0)), length).alias("window"))
    (row,) = window.select(F.unix_millis("window.end") - F.unix_millis("window.start")).collect()
    return int(row[0])


def _dated(found: DataFrame) -> DataFrame:
    return found.withColumns({name: F.timestamp_millis(name) for name in ("start", "end")})


_COUNTS: Final = ("admitted", "amount", "refunded", "owed", "unserved", "refused", "would_wait", "lapsed")


@dataclass(slots=True)
class _Cell:
    """A cell counts what happened at one limit in one window."""

    counts: Counter[str] = field(default_factory=Counter)
    waits: list[int] = field(default_factory=list)
    lasted: list[int] = field(default_factory=list)


def _of_limits(course: LimiterHistory, size: int, begin: int = 0) -> Iterator[dict[str, Any]]:
    cells = _cells(course, size)
    use = {name: _Use(course, limit) for name, limit in course.limits.items()}
    for (name, of, start), found in sorted(cells.items()):
        limit = (course.limits if of == "all" else course.key_limits).get(name)
        taken = use[name].within(max(start, begin), start + size) if of == "all" and name in use else {}
        counts = {key: found.counts[key] for key in _COUNTS}
        off = {"full_ms": float(found.counts["off_ms"])} if name == "hold_off" else {}
        yield {
            "limit": name, "of": of, "start": start, "end": start + size, "form": limit.form if limit else None,
            "most": float(limit.most) if limit else None, **taken, **off, **counts, "waits": len(found.waits),
            "waited_ms": sum(found.waits), **_ranks("wait_", found.waits), **_ranks("held_", found.lasted),
        }  # fmt: skip


def _ranks(prefix: str, values: Sequence[int]) -> dict[str, float | None]:
    if not values:
        return {}
    ranks = [*np.percentile(values, [50, 95, 99]), max(values)]
    return {f"{prefix}{name}": float(rank) for name, rank in zip(_TIMES, ranks, strict=True)}


def _cells(course: LimiterHistory, size: int) -> dict[tuple[str, str, int], _Cell]:
    cells: dict[tuple[str, str, int], _Cell] = {}

    def cell(name: str, of: str, ms: int) -> _Cell:
        return cells.setdefault((name, of, ms - ms % size), _Cell())

    for ms, _ in course.levels:
        for name in course.limits:
            cell(name, "all", ms)
    for one in course.admissions:
        if one.waited is not None and one.asked is not None:
            found = cell(one.limit, one.whose, one.asked + one.waited)
            found.waits.append(one.waited)
            found.counts["unserved"] += one.held is None
        for name, number in one.amounts.items() if one.held is not None and one.asked is not None else ():
            cell(name, "all", one.held or 0).counts.update(admitted=1, amount=number)
        for name, number in one.amounts.items() if one.held is not None and one.ended is not None else ():
            found = cell(name, "all", one.ended or 0)
            less = number - one.used.get(name, number)
            found.counts.update(refunded=max(less, 0), owed=max(-less, 0), lapsed=int(one.end == "lapsed"))
            if one.lasted is not None:
                found.lasted.append(one.lasted)
    counted = [("refused", *refusal) for refusal in course.refusals]
    counted += [("would_wait", ms, name, of, 1) for ms, _, _, name, of, _, _ in course.would_wait]
    for what, ms, name, of, times in counted:
        cell(name, of, ms).counts[what] += times
    for began, key, ends in course.hold_offs:
        for start in range(began - began % size, ends, size):
            part = cell("hold_off", "all" if key == NO_KEY else "key", start)
            part.counts["off_ms"] += min(ends, start + size) - max(began, start)
    return cells


class _Use:
    """The taken part of one limit over time, from what entries say is taken after them."""

    def __init__(self, course: LimiterHistory, limit: Limit) -> None:
        self._limit = limit
        self._last = course.last_ms
        self._at = np.array([ms for ms, _ in course.levels], dtype=np.float64)
        self._level = np.array([levels.get(limit.name, 0) for _, levels in course.levels], dtype=np.float64)

    def within(self, start: int, end: int) -> dict[str, float]:
        moments = np.linspace(start, end, _SAMPLES, endpoint=False)
        inside = self._at[(self._at >= start) & (self._at < end)]
        sampled = moments[(moments >= self._at[0]) & (moments <= self._last)]
        over_time = self._taken(sampled if len(sampled) else inside)
        peak = self._taken(inside)
        p50, p95 = np.percentile(over_time, [50, 95]) if len(over_time) else (0.0, 0.0)
        full = float((over_time >= FULL * self._limit.most).mean()) if len(over_time) else 0.0
        most = max(peak.max(initial=0.0), over_time.max(initial=0.0))
        covered = min(end, self._last) - max(start, self._at[0])
        values = (float(p50), float(p95), float(most), full * max(covered, 0.0))
        return dict(zip(("taken_p50", "taken_p95", "taken_max", "full_ms"), values, strict=True))

    def _taken(self, moments: Any) -> Any:
        level = self._level[np.maximum(np.searchsorted(self._at, moments, side="right") - 1, 0)]
        if self._limit.rate is None:
            return level
        return np.maximum(0.0, level / 1000 - moments) * self._limit.rate / 1000


def _of_keys(course: LimiterHistory, size: int) -> Iterator[dict[str, Any]]:
    amounts: dict[int, dict[str, Counter[str]]] = {}
    counts: dict[tuple[int, str], Counter[str]] = {}
    for one in course.admissions:
        if one.key == NO_KEY:
            continue
        until = one.held if one.held is not None else one.ended
        if until is None or one.asked is None:
            continue
        start = until - until % size
        found = counts.setdefault((start, one.key), Counter())
        found.update(
            admitted=int(one.held is not None), unserved=int(one.held is None), waits=int(bool(one.limit)),
            waited_ms=one.waited or 0,
        )  # fmt: skip
        of_key = amounts.setdefault(start, {}).setdefault(one.key, Counter())
        of_key.update(one.amounts if one.held is not None else {})
    for start, keys in sorted(amounts.items()):
        whole: Counter[str] = Counter()
        for of_key in keys.values():
            whole.update(of_key)
        shares = {key: max((n / whole[name] for name, n in of.items() if n), default=0.0) for key, of in keys.items()}
        for key in sorted(shares, key=lambda key: (-shares[key], -counts[start, key]["waited_ms"], key))[:TOP_KEYS]:
            numbers = {name: counts[start, key][name] for name in ("admitted", "waits", "unserved", "waited_ms")}
            yield {
                "key": key, "start": start, "end": start + size, "share": shares[key], **numbers,
                "amounts": dict(keys[key]),
            }  # fmt: skip
