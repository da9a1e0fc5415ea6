"""Adapts a limit of what is held at once to what its service bears: one decision a second, in whole numbers.

``lua/lib/adapting_step.lua`` and ``gradient.lua`` decide the same in Redis; the audit replays ledgers with
this. Limits count in thousandths here, so that small ones may grow by less than one a second.
"""

import math
from dataclasses import dataclass, replace
from typing import Final, Literal

Adapt = Literal["aimd", "gradient"]
Reason = Literal["few", "grow", "keep", "overload", "probe", "rest", "slow", "slower", "start", "unused"]
ADAPTS: Final[tuple[Adapt, ...]] = ("aimd", "gradient")
RULES: Final = "4"
"""The version of these rules, as ledgers name it: a step of others cannot be replayed with them."""
MOST: Final = 1_000_000_000
"""The most that a limit which adapts may be: sums stay exact."""
UNIT: Final = 1000
FEW: Final = (20, 60, 10)
"""Finished holds whose mean time says something to a gradient: at the start, without a queue, and else."""
LONGEST: Final = 8
"""Seconds for which it waits for enough of these, and for holds from before the limit was lowered."""
TOLERATED: Final = 50
"""One overload in that many finished holds does not count."""
FAR: Final = 600
"""The same of the limit: with less of it held it is lowered at once, and not step by step."""
NEAR: Final = 800
"""Thousandths: with less of what was held served, or of the limit held, the limit is far off what is served."""
GROWTH: Final = (0, 8, 40, 100)
"""Thousandths above the last good limit, by the seconds since then: of AIMD, which then grows by a tenth."""
AIM: Final = (35, 50)
"""Thousandths above the capacity, and one at least, at which a gradient stands: so short a queue is seen to vanish."""
DIP: Final = 920
"""Thousandths of the capacity, to see the time without a queue."""
DIP_AFTER: Final = 20
"""Seconds after which that is looked at again."""
STEP: Final = 1300
"""Thousandths to which a gradient goes from where there is no queue, far from the capacity that it knew."""
SMALL: Final = (80, 300)
"""Thousandths of a step near that: the least, and the most where a second tells less."""
NEAR_KNOWN: Final = (95, 110)
"""Percent of the capacity that it knew, between which steps are small."""
FORGETS: Final = 1000
"""It forgets one part in so many of that with each second: half of it in a quarter of an hour."""
SURE: Final = (3000, 4000)
"""Thousandths of the evidence (the logarithm of a likelihood ratio) from which on there is no queue: to leave where it
stands, and to go on from a step."""
SURE_OF_A_QUEUE: Final = 2000
"""The same of a queue, above the last step."""
DOUBT: Final = (10_000, 100)
"""How far the capacity may be off, squared, in millionths: where it was lowered, and what each second adds."""
BLUR: Final = 225
"""The same of a mean time, beside what its spread says: machines are slower and faster for a second."""


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
class AdaptiveState:
    """Says where a limit is, and how it came there.

    Attributes:
        limit: in force, in thousandths.
        goal: the last good limit, of a gradient the capacity, in thousandths. It is 0 before the first congestion:
            until then it grows fast.
        calm: seconds without congestion since it was lowered, in which it kept somebody waiting. Of a gradient: 0
            without a queue, 1 where it stands, then by steps.
        base: the time of a hold without a queue, in microseconds; 0 where it is not known.
        worst: the longest mean time in this congestion; 0 outside of one.
        high: the limit at which this congestion began.
        rest: seconds for which nothing is decided: holds from before are to end first.
        stale: seconds since the time without a queue was looked at.
        waited: seconds for which it waited for finished holds.
        doubt: of a gradient: how far its goal may be off, squared, in millionths.
        evidence: of a gradient: that the queue has vanished, in thousandths.
        known: of a gradient: the highest capacity that it saw, in thousandths; it forgets it slowly.
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
    doubt: int = 0
    evidence: int = 0
    known: int = 0


def decide(
    course: AdaptiveState, sample: Sample, floor: int, ceiling: int, adapt: Adapt
) -> tuple[AdaptiveState, Reason]:
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
    start, dip, usual = FEW if adapt == "gradient" else (1, 1, 1)
    few = start if not course.goal else usual if course.calm or course.rest else dip
    enough = congested or finished >= few
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
        return _grow(course, ceiling), "grow" if course.goal else "start"
    return _by_time(course, sample, floor, ceiling)


@dataclass(frozen=True, slots=True)
class _Times:
    """The times of a sample against the time without a queue, in thousandths but for those in microseconds.

    Attributes:
        mean: of the holds, in microseconds.
        base: without a queue, in microseconds.
        longer: by how much the mean is longer.
        off: how far it may be off, by the spread of the times.
        whole: the limit, without its part of a whole one.
        above: by how much that is above the goal.
        seen: as much of the limit as did not wait: the capacity, where there is a queue.
    """

    mean: int
    base: int
    longer: int
    off: int
    whole: int
    above: int
    seen: int

    @classmethod
    def of(cls, course: AdaptiveState, sample: Sample) -> "_Times":
        mean = max(1, sample.us // sample.ok)
        base = course.base or mean
        ticks = sample.us // 64 // sample.ok
        error = 64 * math.isqrt(max(0, sample.squares // sample.ok - ticks * ticks) // sample.ok)
        whole = course.limit // UNIT * UNIT
        above = min(1000, max(0, whole * 1000 // course.goal - 1000)) if course.goal else 0
        seen = min(2000, base * 1000 // mean) * whole // 1000
        longer, off = min(3000, mean * 1000 // base) - 1000, min(1000, error * 1000 // base)
        return cls(mean, base, longer, off, whole, above, seen)


def _by_time(course: AdaptiveState, sample: Sample, floor: int, ceiling: int) -> tuple[AdaptiveState, Reason]:
    """Decide by how much longer holds take than without a queue: as much as the limit is above the capacity."""
    times = _Times.of(course, sample)
    mean, base, off = times.mean, times.base, times.off
    if times.longer > times.above + 60 + off * (5 if course.goal else 10) // 2:
        worst, high = max(course.worst, mean), max(course.high, course.limit)
        if (course.limit * 2 <= high or course.limit <= floor) and course.worst and mean * 10 > worst * 8:
            # Less did not make it faster: it is no queue, the service itself is slower.
            return replace(course, base=mean, worst=0, high=0, stale=0), "slower"
        goal = max(times.whole // 2, min(times.seen, times.whole * 97 // 100))
        return replace(_dip(course, mean, goal, floor), base=base, worst=worst, high=high, doubt=DOUBT[0]), "slow"
    if not (course.goal and course.calm and sample.pressed) or times.longer < -20 - 3 * off:
        base += (mean - base) // 4
    course = replace(course, base=max(1, base), worst=0, high=0, stale=course.stale + 1)
    if not sample.pressed:
        return replace(course, stale=0, calm=min(course.calm, 1), evidence=0), "unused"
    rest = min(LONGEST, mean // 400_000)  # it grows fast: a queue is to be seen first
    if not course.goal:
        return replace(_grow(course, ceiling), rest=rest), "start"
    aim = max(UNIT * 1000 // course.goal, min(AIM[1], max(AIM[0], off * 13 // 10)))
    if not course.calm:
        return replace(_stand(course, aim, floor, ceiling), stale=0, evidence=0, rest=rest), "grow"
    return _by_evidence(course, times, aim, rest, floor, ceiling)


def _by_evidence(
    course: AdaptiveState, times: _Times, aim: int, rest: int, floor: int, ceiling: int
) -> tuple[AdaptiveState, Reason]:
    """Weigh whether the queue is there that would be if the capacity were the goal, or none."""
    whole, blur = times.whole, times.off * times.off + BLUR
    queue = aim if course.calm == 1 else times.above
    ratio = min(6000, max(-6000, queue * (queue // 2 - times.longer) * 1000 // blur))
    evidence = max(0, min(SURE_OF_A_QUEUE + SURE[1], course.evidence + ratio))
    if course.calm == 1:
        weight = course.doubt * 1000 // (course.doubt + blur)
        goal = max(UNIT, course.goal + (times.seen - course.goal) * weight // 1000)
        doubt = course.doubt * (1000 - weight) // 1000 + DOUBT[1]
        known = max(goal, course.known - course.known // FORGETS)
        course = replace(course, goal=goal, doubt=doubt, evidence=evidence, known=known)
        if evidence >= SURE[0] and whole < ceiling:
            return _step(course, goal, whole, blur, ceiling, rest), "grow"
        if course.stale >= DIP_AFTER and evidence < 1000:
            return _dip(course, times.mean, goal, floor), "probe"
        return _stand(course, aim, floor, ceiling), "keep"
    if not evidence:
        goal = max(course.goal * 9 // 10, min(times.seen, whole))
        return replace(_dip(course, times.mean, goal, floor), doubt=DOUBT[0]), "slow"
    if evidence < SURE_OF_A_QUEUE + SURE[1]:
        return replace(course, evidence=evidence), "keep"
    if whole == ceiling:
        return replace(course, goal=whole, calm=1, evidence=0), "keep"
    return _step(course, whole, whole, blur, ceiling, rest), "grow"


def _dip(course: AdaptiveState, mean: int, goal: int, floor: int) -> AdaptiveState:
    rest = 1 + min(LONGEST, mean // 500_000)
    return replace(course, goal=goal, limit=max(floor, goal * DIP // 1000), calm=0, rest=rest, stale=0, evidence=0)


def _stand(course: AdaptiveState, aim: int, floor: int, ceiling: int) -> AdaptiveState:
    limit = (course.goal * (1000 + aim) // 1000 + UNIT // 2) // UNIT * UNIT
    return replace(course, limit=max(floor, min(limit, ceiling)), calm=1)


def _step(course: AdaptiveState, goal: int, whole: int, blur: int, ceiling: int, rest: int) -> AdaptiveState:
    """Go further above what was seen to be free of a queue, and see whether there is one."""
    to = goal * (1000 + min(SMALL[1], max(SMALL[0], math.isqrt(12 * blur)))) // 1000
    if course.calm > 1:
        far, (low, high) = whole * STEP // 1000, (course.known * part // 100 for part in NEAR_KNOWN)
        to = far if whole > high else max(to, min(far, low))
    limit = min(ceiling, max(to // UNIT * UNIT, whole + UNIT))
    calm = min(course.calm + 1, 60)
    return replace(course, limit=limit, goal=goal, calm=calm, rest=rest, evidence=SURE_OF_A_QUEUE)


def _lower(course: AdaptiveState, sample: Sample, target: int, floor: int) -> AdaptiveState:
    limit = max(floor, min(target, course.limit))
    mean = (sample.us + sample.late) // (sample.ok + sample.over)
    rest = 1 + min(LONGEST, mean // 500_000)
    return replace(course, limit=limit, goal=limit, calm=0, rest=rest, stale=0, doubt=DOUBT[0], evidence=0)


def _grow(course: AdaptiveState, ceiling: int) -> AdaptiveState:
    calm = course.calm + 1
    if not course.goal:
        limit = course.limit + max(course.limit // 2, UNIT)
    elif calm < len(GROWTH):
        more = GROWTH[calm]
        least = UNIT * min(more, 48) // 48  # of a small limit a thousandth is nothing
        limit = max(course.limit + least, course.goal * (1000 + more) // 1000)
    else:
        limit = course.limit + max(course.limit // 10, UNIT)
    return replace(course, limit=min(limit, ceiling), calm=min(calm, 60))
