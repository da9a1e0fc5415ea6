"""An adaptive limit is replayed: each step follows from what was heard, and from where the limit was.

Scripts of other versions decide by other rules: their steps are taken as they are written, within the limit's bounds.
"""

from collections.abc import Callable
from dataclasses import astuple, replace
from typing import Any

from headgate.core.limits.adapting import RULES, UNIT, AdaptiveState, Sample, decide
from headgate.core.limits.limit import Limit

Violated = Callable[[str, str, object, object], None]


class AdaptiveSteps:
    """`AdaptiveSteps` follows the one limit of a limiter that adapts.

    Args:
        violated: is called with the promise, what is wrong, what was expected, and what was found.
        whole: whether nothing was decided before: it begins at its floor.
    """

    def __init__(self, violated: Violated, *, whole: bool) -> None:
        self._violated = violated
        self._whole = whole
        self._name = ""
        self._course: AdaptiveState | None = None
        self._moved = False

    def most(self, limit: Limit) -> float:
        """Return the most that may be held of a limit from now on, as its settings and its course say."""
        if limit.name != self._name:
            self._course = AdaptiveState(limit.floor * UNIT) if self._whole else None
            self._name = limit.name
        if self._course is None:
            return float(limit.most)
        # What is outside of new bounds is moved there with the next call, which says nothing about it.
        self._course, self._moved = replace(self._course, limit=max(self._course.limit, limit.floor * UNIT)), True
        return float(min(self._course.limit // UNIT, limit.most))

    def take(self, event: list[str]) -> tuple[str, float]:
        """Follow one step; returns the limit's name, and the most from then on."""
        _, name, how, floor, ceiling, before, why, heard, after = event
        *sums, pressed = map(int, heard.split(" "))
        ok, us, squares, over, late, busy = sums
        sample = Sample(ok, us, squares, over, late, busy, bool(pressed))
        written = AdaptiveState(*map(int, after.split(" ")))
        how, _, rules = how.partition(".")
        if not int(floor) * UNIT <= written.limit <= int(ceiling) * UNIT:
            bounds = f"{floor} to {ceiling}"
            self._violated("P1", f"the limit of {name} is out of its bounds", bounds, f"{written.limit / UNIT:g}")
        if self._course is not None and name == self._name and rules == RULES:
            adapt: Any = how
            course = replace(self._course, limit=int(before)) if self._moved else self._course
            follows, reason = decide(course, sample, int(floor), int(ceiling), adapt)
            if (follows, reason) != (written, why):
                expected = f"{follows.limit / UNIT:g} ({reason})"
                found = f"{written.limit / UNIT:g} ({why}), of {int(before) / UNIT:g} and {astuple(sample)}"
                self._violated("P1", f"the limit of {name} does not follow from what was heard", expected, found)
        self._name, self._course, self._moved = name, written, False
        return name, float(written.limit // UNIT)
