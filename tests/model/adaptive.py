"""The plain model of a limit that adapts: what was said of holds until a second ends, and the step that follows."""

from dataclasses import dataclass, field, replace
from typing import Any

from headgate.core.limits.adapting import RULES, UNIT, AdaptiveState, Sample, decide
from tests.model.limiter import Limit


@dataclass(slots=True)
class Adaptive:
    """One limit from its floor on. ``second``: the last in which somebody called."""

    limit: Limit
    heard: Sample = field(default_factory=Sample)
    second: int = 0
    course: AdaptiveState = field(init=False)

    def __post_init__(self) -> None:
        self.course = AdaptiveState(self.limit.floor * UNIT)

    @property
    def most(self) -> int:
        """The most that may be held now."""
        return self.course.limit // UNIT

    def hear(self, **sums: int) -> None:
        """Add what a session says of holds that ended."""
        self.heard = replace(self.heard, **{name: getattr(self.heard, name) + sums[name] for name in sums})

    def is_due(self, second: int) -> bool:
        """Return whether a call in this second has to decide, and take note of it."""
        is_new, self.second = second > self.second, max(second, self.second)
        return is_new and self.heard.ok + self.heard.over > 0

    def step(self, *, pressed: bool) -> str:
        """Decide; returns what the ledger is to say of it. Whether somebody waited for it is taken from there."""
        adapt: Any = self.limit.adapt
        before, heard = self.course.limit, replace(self.heard, pressed=pressed)
        self.course, reason = decide(self.course, heard, self.limit.floor, self.limit.most, adapt)
        self.heard = self.heard if reason == "few" else Sample()
        one, sums = self.course, (heard.ok, heard.us, heard.squares, heard.over, heard.late, heard.busy, int(pressed))
        after = (
            one.limit,
            one.goal,
            one.calm,
            one.base,
            one.worst,
            one.high,
            one.rest,
            one.stale,
            one.waited,
            one.doubt,
            one.evidence,
            one.known,
        )
        return ":".join((
            self.limit.name, f"{adapt}.{RULES}", str(self.limit.floor), str(self.limit.most), str(before), reason,
            " ".join(map(str, sums)), " ".join(map(str, after)),
        ))  # fmt: skip
