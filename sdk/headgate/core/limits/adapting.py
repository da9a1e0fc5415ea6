"""How a limit of what is held at once follows what its service bears: one decision a second, in whole numbers.

``lua/lib/adapting.lua`` decides the same in Redis; the audit replays the steps of a ledger with this. Limits count in
thousandths here, so that small ones may grow by less than one a second.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

Adapt = Literal["aimd", "gradient"]
Reason = Literal["few", "grow", "keep", "overload", "probe", "rest", "slow", "slower", "start", "unused"]
ADAPTS: Final[tuple[Adapt, ...]] = ("aimd", "gradient")
RULES: Final = "2"
"""The version of these rules, as ledgers name it: a step of others cannot be replayed with them."""
MOST: Final = 1_000_000_000
"""The most that a limit which adapts may be: sums stay exact."""
UNIT: Final = 1000
FEW: Final = 30
"""Finished holds whose mean time says something; with fewer it waits for more."""
LONGEST: Final = 8
"""Seconds for which it waits for enough of these, and for holds from before the limit was lowered."""
TOLERATED: Final = 50
"""One overload in that many finished holds does not count."""
FAR: Final = 600
"""The same of the limit: with less of it held it is lowered at once, and not step by step."""
PROBE_AFTER: Final = 15
"""Seconds after which a gradient lowers the limit for a moment, to see the time without a queue."""
GROWTH: Final[dict[Adapt, tuple[int, ...]]] = {"aimd": (0, 8, 40, 100), "gradient": (0, 4, 16, 48, 80, 160, 320)}
"""Thousandths above the last good limit, by the seconds since then."""
STEP: Final[dict[Adapt, int]] = {"aimd": 100, "gradient": 250}
"""Thousandths by which it grows each second after these: an overload tells at once, a mean later."""
NEAR: Final = 800
"""Thousandths: with less of what was held served, or of the limit held, the limit is far off what is served."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The sums of holds that ended since the last decision.

    Attributes:
        ok: how many went well.
        us: their time in all, in microseconds.
        squares: of their times, each in 64 us.
        over: how many met an overload.
        late: their time in all.
        busy: what those that went well held, times the milliseconds for which they did: what was served in a second.
        pressed: whether the limit kept somebody waiting.
    """

    ok: int = 0
    us: int = 0
    squares: int = 0
    over: int = 0
    late: int = 0
    busy: int = 0
    pressed: bool = False


@dataclass(frozen=True, slots=True)
class Course:
    """Where a limit is, and how it came there.

    Attributes:
        limit: in force, in thousandths.
        goal: the last good limit, in thousandths; 0 before the first congestion: until then it grows fast.
        calm: seconds without congestion since it was lowered, in which it kept somebody waiting.
        base: the time of a hold without a queue, in microseconds; 0 where it is not known.
        worst: the longest mean time in this congestion; 0 outside of one.
        high: the limit at which this congestion began.
        rest: seconds for which it is not lowered again: holds from before are to end first.
        stale: seconds since the time without a queue was looked at.
        waited: seconds for which it waited for finished holds.
    """

    limit: int
    goal: int = 0
    calm: int = 0
    base: int = 0
    worst: int = 0
    high: int = 0
    rest: int = 0
    stale: int = 0
    waited: int = 0


def decide(course: Course, sample: Sample, floor: int, ceiling: int, adapt: Adapt) -> tuple[Course, Reason]:
    """Return where a limit goes from here, and why; ``few`` keeps the sample for the next second.

    Args:
        course: where it is.
        sample: what was heard since the last decision.
        floor: the least that it may be, in whole ones.
        ceiling: the most.
        adapt: ``aimd`` goes by overloads, ``gradient`` also by the time that holds take.
    """
    floor, ceiling = floor * UNIT, ceiling * UNIT
    course = replace(course, limit=max(floor, min(course.limit, ceiling)))
    finished = sample.ok + sample.over
    congested = sample.over * TOLERATED > finished
    enough = finished >= (FEW if adapt == "gradient" else 1) or congested
    if not enough and course.waited < LONGEST:
        return replace(course, waited=course.waited + 1, rest=max(0, course.rest - 1)), "few"
    course = replace(course, waited=0)
    if course.rest:
        return replace(course, rest=course.rest - 1), "rest"
    if congested:
        # The part of what was held that was served scatters less than how much was served in a second.
        part = sample.us // 1024 * 1000 // max(1, (sample.us + sample.late) // 1024)
        target = course.limit * min(part, 980) // 1000
        held = (sample.busy + sample.late // 1000) * 1000 // course.limit
        if part < NEAR or held < NEAR:
            least = 500 if part < NEAR or held < FAR else NEAR
            target = max(course.limit * least // 1000, min(target, sample.busy))
        return _lower(course, sample, target, floor), "overload"
    if adapt == "aimd" or not sample.ok:
        if not sample.pressed:
            return course, "unused"
        return _grow(course, ceiling, adapt), "grow" if course.goal else "start"
    return _by_time(course, sample, floor, ceiling)


def _by_time(course: Course, sample: Sample, floor: int, ceiling: int) -> tuple[Course, Reason]:
    mean = sample.us // sample.ok
    base = course.base or mean
    ticks = sample.us // 64 // sample.ok
    error = 64 * math.isqrt(max(0, sample.squares // sample.ok - ticks * ticks) // sample.ok)
    doubt = error * (25 if course.goal else 50)  # ten times what the mean may be off by
    if mean * 100 > base * 106 + doubt * 10:
        worst, high = max(course.worst, mean), max(course.high, course.limit)
        if (course.limit * 2 <= high or course.limit <= floor) and course.worst and mean * 10 > worst * 8:
            # Less did not make it faster: it is no queue, the service itself is slower.
            return replace(course, base=mean, worst=0, high=0, stale=0), "slower"
        target = max(course.limit // 2, course.limit * min(base * 1000 // mean * 95 // 100, 920) // 1000)
        lower = _lower(course, sample, target, floor)
        return replace(lower, base=base, worst=worst, high=high), "slow"
    if course.calm == 0 or not course.goal or not sample.pressed:
        base += (mean - base) // (4 if mean < base else 12)  # a queue that is left over is not to become usual
    course = replace(course, base=max(1, base), worst=0, high=0, stale=course.stale + 1)
    if not sample.pressed:
        return replace(course, stale=0, calm=min(course.calm, 1)), "unused"
    if course.goal and course.stale >= PROBE_AFTER and course.calm < 4:  # not while it finds more and more
        return replace(_lower(course, sample, course.limit * 92 // 100, floor), goal=course.limit), "probe"
    if course.goal and mean * 100 > base * 103 + doubt * 5:
        return replace(course, calm=min(max(course.calm, 1), 2)), "keep"
    rest = 0 if course.goal else mean // 500_000  # it grows so fast that a queue is to be seen first
    return replace(_grow(course, ceiling, "gradient"), rest=min(LONGEST, rest)), "grow" if course.goal else "start"


def _lower(course: Course, sample: Sample, target: int, floor: int) -> Course:
    limit = max(floor, min(target, course.limit))
    mean = (sample.us + sample.late) // (sample.ok + sample.over)
    rest = 1 + min(LONGEST, mean // 500_000)
    return replace(course, limit=limit, goal=limit, calm=0, rest=rest, stale=0)


def _grow(course: Course, ceiling: int, adapt: Adapt) -> Course:
    calm, growth = course.calm + 1, GROWTH[adapt]
    if not course.goal:
        limit = course.limit + max(course.limit // 2, UNIT)
    elif calm < len(growth):
        more = growth[calm]
        least = UNIT * min(more, 48) // 48  # of a small limit a thousandth is nothing
        limit = max(course.limit + least, course.goal * (1000 + more) // 1000)
    else:
        limit = course.limit + max(course.limit * STEP[adapt] // 1000, UNIT)
    return replace(course, limit=min(limit, ceiling), calm=min(calm, 60))
