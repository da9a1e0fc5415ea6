"""A service of known capacity in virtual time, and what its holds of a second would say. Plain arithmetic, a seed."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headgate.core.limits.adapting import UNIT, Adapt, AdaptiveState, Sample, decide

SUMS = ("ok", "us", "squares", "over", "late", "busy")
AGAIN = 50
"""Times a second that somebody whom the service refuses asks again."""


@dataclass
class Service:
    """A service.

    Attributes:
        slots: calls that it does at a time: its capacity.
        queue: calls that wait there; it refuses more.
        seconds: that a call takes.
        spread: of that, as a part of it.
        seed: of the noise.
    """

    slots: int
    queue: int = 0
    seconds: float = 0.1
    spread: float = 0.3
    seed: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def sample(self, limit: float) -> Sample:
        """Return what a second says in which so many calls are there at a time."""
        inside = min(limit, self.slots + self.queue)
        took = self.seconds * max(1.0, inside / self.slots)
        ok = max(1, round(inside / took * self._random.gauss(1, 0.03)))
        mean = max(1e-4, took + self.seconds * self.spread * self._random.gauss(0, 1) / ok**0.5)
        square = mean**2 + (self.seconds * self.spread) ** 2
        over = round((limit - inside) * AGAIN)
        us = round(ok * mean * 1e6)
        return Sample(ok, us, round(ok * square * 1e12 / 4096), over, over * 1000, us // 1000, pressed=True)


def follow(
    service: Service, seconds: int, floor: int, ceiling: int, adapt: Adapt, course: AdaptiveState
) -> Iterator[AdaptiveState]:
    """Yield where the limit is after each second; a part of each sample is of the second before."""
    before = course.limit
    for _ in range(seconds):
        old, new = service.sample(before / UNIT), service.sample(course.limit / UNIT)
        parts = {name: (getattr(old, name) + 7 * getattr(new, name)) // 8 for name in SUMS}
        before = course.limit
        course, _ = decide(course, replace(new, **parts), floor, ceiling, adapt)
        yield course
