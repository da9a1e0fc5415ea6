"""A limiter as a model: admissions are asked for when they were, and held as long as they were, under other limits."""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Final

import numpy as np

from headgate.core.limits.limit import Limit
from headgate_pipeline.ledger.limiter_course import NO_KEY, Admission, Course
from headgate_pipeline.simulate.model import QUANTILE

MOST_LOOKED_AT: Final = 64
"""Of those in line, at a time: as many as the script looks at."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """The outcome of a replay.

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


def recorded(course: Course) -> Admitted:
    """Return what came of it in fact."""
    waits = [(one.asked, one.waited or 0, _cause(one)) for one in course.admissions if one.asked is not None]
    unserved = sum(one.end == "quit" for one in course.admissions)
    return _outcome(course, waits, unserved + sum(times for *_, times in course.refusals))


def replay(course: Course, limits: Mapping[str, Limit], key_limits: Mapping[str, Limit]) -> Admitted:
    """Return what would have come of it under other limits; quotas do not bind.

    An admission that gave up in fact gives up after as long a wait; served before, it is held as long as others.
    """
    return _Replay(course, limits, key_limits).run()


def _cause(one: Admission) -> str:
    return f"{one.limit} of a key" if one.whose == "key" else one.limit


class _Replay:
    """All limits together, in the order in which they were asked for; a key's own limit keeps only that key waiting."""

    def __init__(self, course: Course, limits: Mapping[str, Limit], key_limits: Mapping[str, Limit]) -> None:
        self._course = course
        self._limits, self._key_limits = limits, key_limits
        self._held: Counter[tuple[str, str]] = Counter()
        self._tats: dict[tuple[str, str], float] = {}
        self._line: dict[int, tuple[Admission, float, str]] = {}
        self._events: list[tuple[float, int, str, int]] = []
        self._waits: list[tuple[float, float, str]] = []
        self._unserved = 0
        lasted = [one.lasted for one in course.admissions if one.lasted is not None]
        self._usual = float(np.mean(lasted)) if lasted else 0.0

    def run(self) -> Admitted:
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
                self._line[number] = (one, now, "")
                if one.end == "quit" and one.waited is not None:
                    heapq.heappush(self._events, (now + one.waited, 2, "quits", number))
            elif event == "quits" and number in self._line:
                _, since, cause = self._line.pop(number)
                self._waits.append((since, now - since, cause))
                self._unserved += 1
            self._serve(now)
        self._waits += [(since, 0.0, "") for _, since, _ in self._line.values()]  # what is above a limit never fits
        return _outcome(self._course, self._waits, self._unserved + len(self._line))

    def _serve(self, now: float) -> None:
        again, looked_at = inf, 0
        for number, (one, since, cause) in list(self._line.items()):
            wait, limit, of_key = self._binds(one, now)
            if wait == 0:
                del self._line[number]
                self._take(one, number, now)
                self._waits.append((since, now - since, cause if now > since else ""))
                continue
            if not cause:
                self._line[number] = (one, since, f"{limit} of a key" if of_key else limit)
            if limit != "never":
                again = min(again, wait)
                looked_at += 1
                if not of_key or looked_at >= MOST_LOOKED_AT:
                    break
        if again < inf:
            heapq.heappush(self._events, (now + max(again, 0.001), 3, "looks", 0))

    def _owners(self, key: str) -> tuple[tuple[str, Mapping[str, Limit]], ...]:
        both = ((NO_KEY, self._limits), (key, self._key_limits))
        return both if key != NO_KEY else both[:1]

    def _binds(self, one: Admission, now: float) -> tuple[float, str, bool]:
        """Return for how many ms it waits at least (infinite: until something is given back), and for what."""
        longest, name, of_key = 0.0, "", False
        for owner, limits in self._owners(one.key):
            for limit_name, amount in one.amounts.items():
                limit = limits.get(limit_name)
                if limit is None or limit.form == "quota":
                    continue
                if amount > limit.most:
                    return inf, "never", owner != NO_KEY
                if limit.rate is None:
                    wait = inf if self._held[owner, limit_name] + amount > limit.most else 0.0
                else:
                    tat = max(self._tats.get((owner, limit_name), 0.0), now) + amount * 1000 / limit.rate
                    wait = max(0.0, tat - limit.most * 1000 / limit.rate - now)
                if wait > longest + 1e-6:
                    longest, name, of_key = wait, limit_name, owner != NO_KEY
        return longest, name, of_key

    def _take(self, one: Admission, number: int, now: float) -> None:
        self._add(one, 1)
        for owner, limits in self._owners(one.key):
            for name, amount in one.amounts.items():
                if (limit := limits.get(name)) is not None and limit.rate is not None:
                    at = (owner, name)
                    self._tats[at] = max(self._tats.get(at, 0.0), now) + amount * 1000 / limit.rate
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


def _outcome(course: Course, waits: Sequence[tuple[float, float, str]], refused: float) -> Admitted:
    causes: dict[str, float] = {}
    for _, waited, cause in waits:
        if waited:
            causes[cause] = causes.get(cause, 0.0) + waited
    lengths = np.array([waited for _, waited, _ in waits]) if waits else np.zeros(1)
    ends = [end for since, waited, _ in waits if waited for end in ((since, 1), (since + waited, -1))]
    peak = np.cumsum([step for _, step in sorted(ends)]).max(initial=0) if ends else 0
    took = max((since + waited for since, waited, _ in waits), default=course.first_ms) - course.first_ms
    return Admitted(
        float(lengths.sum()), float(lengths.mean()), float(np.quantile(lengths, QUANTILE)), float(peak), float(took),
        float(refused), causes,
    )  # fmt: skip
