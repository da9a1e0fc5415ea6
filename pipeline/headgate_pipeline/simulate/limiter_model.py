"""A model of a limiter replays admissions under other limits: asked for when they were, held as long as they were."""

import heapq
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

import numpy as np

from headgate.core.limits.limit import Limit
from headgate.core.limits.limiter_forms import weight_among
from headgate_pipeline.ledger.limiter_course import NO_KEY, Admission, LimiterHistory
from headgate_pipeline.simulate.model import QUANTILE
from headgate_pipeline.simulate.quota_windows import window_of

MOST_LOOKED_AT: Final = 64
"""Of those in line, at a time: as many as the script looks at."""
Unit = tuple[str, tuple[str, ...]]
"""A key, and names of limits."""


@dataclass(frozen=True, slots=True)
class LimiterOutcome:
    """An outcome says how long the admissions of a replay waited and for what, and how many were refused.

    Attributes:
        waited: ms of all that waited, together.
        delay: ms that an admission waited, on average; those that did not wait included.
        delay_p99: of all but 1 % of them.
        peak: that waited at once, at most.
        took: ms until the last of them was admitted, or gave up.
        refused: that gave up unserved, and, of what was recorded, calls that did not wait.
        causes: ms of ``waited``, by the limit that bound when it began to wait.
    """

    waited: float
    delay: float
    delay_p99: float
    peak: float
    took: float
    refused: float
    causes: Mapping[str, float] = field(default_factory=dict)


def recorded(course: LimiterHistory) -> LimiterOutcome:
    """Return what came of it in fact."""
    waits = [(one.asked, one.waited or 0, _cause(one)) for one in course.admissions if one.asked is not None]
    unserved = sum(one.end == "quit" for one in course.admissions)
    return _outcome(course, waits, unserved + sum(times for *_, times in course.refusals))


def replay(
    course: LimiterHistory,
    limits: Mapping[str, Limit],
    key_limits: Mapping[str, Limit],
    weights: str = "",
    zone: str = "",
) -> LimiterOutcome:
    """Return what would have come of it under other limits; holds-off were as they were.

    An admission that gave up in fact gives up after as long a wait; served before, it is held as long as others.

    Args:
        course: what happened.
        limits: of all keys together.
        key_limits: of each key.
        weights: shares of keys that wait, as settings spell them.
        zone: offsets from UTC of the time zone of quotas, likewise; empty for UTC.
    """
    return _Replay(course, limits, key_limits, weights, zone).run()


def _cause(one: Admission) -> str:
    return f"{one.limit} of a key" if one.whose == "key" else one.limit


class _Replay:
    """All limits together. Keys share what is scarce by weight; within a key what needs the same limits goes in turn.

    A wait for a limit of all keys holds up those who need it too; one for a key's own limit only that key.
    """

    def __init__(
        self,
        course: LimiterHistory,
        limits: Mapping[str, Limit],
        key_limits: Mapping[str, Limit],
        weights: str,
        zone: str,
    ) -> None:
        self._course = course
        self._limits, self._key_limits = limits, key_limits
        self._weights, self._zone = weights, zone
        self._held: Counter[tuple[str, str]] = Counter()
        self._tats: dict[tuple[str, str], float] = {}
        self._spent: dict[tuple[str, str], tuple[float, int]] = {}  # of quotas: when the window began, and how much
        self._windows: dict[tuple[str, str], tuple[float, float]] = {}
        self._offs: dict[str, tuple[list[int], list[int]]] = {}  # by key: when holds-off were set, and their ends
        for at, key, until in course.hold_offs:
            began, ends = self._offs.setdefault(key, ([], []))
            began.append(at)
            ends.append(until)
        self._line: dict[Unit, dict[int, tuple[Admission, float, str]]] = {}
        self._because: dict[Unit, str] = {}  # for what its first waits, or those before it that need the same
        self._misfits: dict[int, tuple[Admission, float, str]] = {}  # which are above a limit
        self._got: dict[str, float] = {}  # by key, divided by its weight
        self._now_served = 0.0
        self._events: list[tuple[float, int, str, int]] = []
        self._waits: list[tuple[float, float, str]] = []
        self._unserved = 0
        lasted = [one.lasted for one in course.admissions if one.lasted is not None]
        self._usual = float(np.mean(lasted)) if lasted else 0.0

    def run(self) -> LimiterOutcome:
        asked = [one for one in self._course.admissions if one.asked is not None]
        for number, one in enumerate(asked):
            self._events.append((float(one.asked or 0), 1, "asks", number))
        heapq.heapify(self._events)
        while self._events:
            now, _, event, number = heapq.heappop(self._events)
            one = asked[number]
            if event == "ends":
                self._add(one, -1)
            elif event == "settles":
                self._settle(one, now)
            elif event == "asks":
                self._line.setdefault(_unit(one), {})[number] = (one, now, "")
                if one.end == "quit" and one.waited is not None:
                    heapq.heappush(self._events, (now + one.waited, 2, "quits", number))
            elif event == "quits" and (quit_ := self._leave(one, number)) is not None:
                _, since, cause = quit_
                self._waits.append((since, now - since, cause or self._because.get(_unit(one), "")))
                self._unserved += 1
            self._serve(now)
        left = [*self._misfits.values(), *(waits for line in self._line.values() for waits in line.values())]
        self._waits += [(since, 0.0, "") for _, since, _ in left]
        return _outcome(self._course, self._waits, self._unserved + len(left))

    def _leave(self, one: Admission, number: int) -> tuple[Admission, float, str] | None:
        unit = _unit(one)
        line = self._line.get(unit, {})
        found = line.pop(number, None) or self._misfits.pop(number, None)
        if unit in self._line and not line:
            del self._line[unit]
        return found

    def _serve(self, now: float) -> None:
        again, looked_at, taken = inf, 0, set[str]()
        units = [(self._rank(unit), next(iter(line)), unit) for unit, line in self._line.items()]
        heapq.heapify(units)
        while units and looked_at < MOST_LOOKED_AT:
            _, number, unit = heapq.heappop(units)
            if not taken.isdisjoint(unit[1]):  # those before it wait for what it needs too
                self._because[unit] = next(name for name in unit[1] if name in taken)
                continue
            line = self._line[unit]
            one, since, cause = line[number]
            wait, limit, of_key = self._binds(one, now)
            if wait == 0:
                self._take(one, number, now)
                self._waits.append((since, now - since, (cause or self._because.get(unit, "")) if now > since else ""))
            elif limit == "never":
                self._misfits[number] = (one, since, cause or limit)
            else:
                self._because[unit] = f"{limit} of a key" if of_key else limit
                line[number] = (one, since, cause or self._because[unit])
                again, looked_at = min(again, wait), looked_at + 1
                if limit == "hold_off" and not of_key:
                    break
                taken |= set() if of_key else {limit}
                continue
            self._leave_line(unit, number)
            if unit in self._line:
                heapq.heappush(units, (self._rank(unit), next(iter(line)), unit))
        if again < inf:
            heapq.heappush(self._events, (now + max(again, 0.001), 3, "looks", 0))

    def _leave_line(self, unit: Unit, number: int) -> None:
        del self._line[unit][number]
        if not self._line[unit]:
            del self._line[unit]

    def _rank(self, unit: Unit) -> tuple[float, float]:
        """Return what the key holds of what it waits for, and what it got, divided by its weight: least goes first."""
        key, names = unit
        at_once = (
            (name, limit.most) for name in names if (limit := self._limits.get(name)) and limit.form == "at_once"
        )
        share = max((self._held[key, name] / most for name, most in at_once), default=0.0)
        return share / weight_among(self._weights, key), max(self._now_served, self._got.get(key, 0.0))

    def _off_until(self, key: str, now: float) -> float:
        began, ends = self._offs.get(key, ((), ()))
        last = bisect_right(began, now) - 1
        return ends[last] if last >= 0 else 0.0

    def _window(self, owner: str, limit: Limit, now: float) -> tuple[float, float]:
        """Return the window of a quota that holds this moment."""
        kept = self._windows.get((limit.window, limit.name if owner == NO_KEY else f"{limit.name} a key"))
        if kept is None or not kept[0] <= now < kept[1]:
            kept = window_of(limit, self._zone, now)
            self._windows[limit.window, limit.name if owner == NO_KEY else f"{limit.name} a key"] = kept
        return kept

    def _owners(self, key: str) -> tuple[tuple[str, Mapping[str, Limit]], ...]:
        both = ((NO_KEY, self._limits), (key, self._key_limits))
        return both if key != NO_KEY else both[:1]

    def _binds(self, one: Admission, now: float) -> tuple[float, str, bool]:
        """Return for how many ms it waits at least (infinite: until something is given back), and for what."""
        longest, name, of_key = 0.0, "", False
        for owner in dict.fromkeys((NO_KEY, one.key)):
            if (wait := self._off_until(owner, now) - now) > longest:
                longest, name, of_key = wait, "hold_off", owner != NO_KEY
        for owner, limits in self._owners(one.key):
            for limit_name, amount in one.amounts.items():
                limit = limits.get(limit_name)
                if limit is None:
                    continue
                if amount > limit.most:
                    return inf, "never", owner != NO_KEY
                if limit.form == "quota":
                    begin, end = self._window(owner, limit, now)
                    since, spent = self._spent.get((owner, limit_name), (begin, 0))
                    wait = end - now if since == begin and spent + amount > limit.most else 0.0
                elif limit.rate is None:
                    wait = inf if self._held[owner, limit_name] + amount > limit.most else 0.0
                else:
                    tat = max(self._tats.get((owner, limit_name), 0.0), now) + amount * 1000 / limit.rate
                    wait = max(0.0, tat - limit.most * 1000 / limit.rate - now)
                if wait > longest + 1e-6:
                    longest, name, of_key = wait, limit_name, owner != NO_KEY
        return longest, name, of_key

    def _take(self, one: Admission, number: int, now: float) -> None:
        self._add(one, 1)
        self._now_served = max(self._now_served, self._got.get(one.key, 0.0))
        known = ((self._limits[name], amount) for name, amount in one.amounts.items() if name in self._limits)
        cost = max((amount / (limit.rate or limit.most) for limit, amount in known), default=0.0)
        self._got[one.key] = self._now_served + cost / weight_among(self._weights, one.key)
        for owner, limits in self._owners(one.key):
            for name, amount in one.amounts.items():
                if (limit := limits.get(name)) is not None and limit.rate is not None:
                    at = (owner, name)
                    self._tats[at] = max(self._tats.get(at, 0.0), now) + amount * 1000 / limit.rate
                elif limit is not None and limit.form == "quota":
                    self._spend(owner, limit, amount, now)
        lasts = self._usual if one.held is None else inf if one.ended is None else float(one.ended - one.held)
        if lasts < inf:
            heapq.heappush(self._events, (now + lasts, 0, "ends", number))
            if one.used:
                heapq.heappush(self._events, (now + lasts, 0, "settles", number))

    def _add(self, one: Admission, times: int) -> None:
        for owner in {NO_KEY, one.key}:
            for name, amount in one.amounts.items():
                self._held[owner, name] += times * amount

    def _settle(self, one: Admission, now: float) -> None:
        for owner, limits in self._owners(one.key):
            for name, used in one.used.items():
                if (limit := limits.get(name)) is not None and limit.rate is not None and name in one.amounts:
                    at = (owner, name)
                    moved = self._tats.get(at, now) + (used - one.amounts[name]) * 1000 / limit.rate
                    self._tats[at] = max(moved, now)
                elif limit is not None and limit.form == "quota" and name in one.amounts:
                    self._spend(owner, limit, used - one.amounts[name], now, anew=False)

    def _spend(self, owner: str, limit: Limit, amount: int, now: float, *, anew: bool = True) -> None:
        """Count what is spent of a quota; what is settled in a later window than it was reserved in counts nowhere."""
        begin, _ = self._window(owner, limit, now)
        since, spent = self._spent.get((owner, limit.name), (begin, 0))
        if since == begin or anew:
            self._spent[owner, limit.name] = (begin, max(0, (spent if since == begin else 0) + amount))


def _unit(one: Admission) -> Unit:
    """Return what goes in turn: what a key asks for of the same limits."""
    return one.key, tuple(sorted(one.amounts))


def _outcome(course: LimiterHistory, waits: Sequence[tuple[float, float, str]], refused: float) -> LimiterOutcome:
    causes: dict[str, float] = {}
    for _, waited, cause in waits:
        if waited:
            causes[cause] = causes.get(cause, 0.0) + waited
    lengths = np.array([waited for _, waited, _ in waits]) if waits else np.zeros(1)
    ends = [end for since, waited, _ in waits if waited for end in ((since, 1), (since + waited, -1))]
    peak = np.cumsum([step for _, step in sorted(ends)]).max(initial=0) if ends else 0
    took = max((since + waited for since, waited, _ in waits), default=course.first_ms) - course.first_ms
    return LimiterOutcome(
        float(lengths.sum()), float(lengths.mean()), float(np.quantile(lengths, QUANTILE)), float(peak), float(took),
        float(refused), causes,
    )  # fmt: skip
