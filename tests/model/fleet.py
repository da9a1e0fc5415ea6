"""Callers, their limit and a service of known capacity in virtual time, on a machine whose delays come and go."""

import heapq
import math
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from headgate.core.limits.adapting import UNIT, Adapt, AdaptiveState, Sample, decide

REFUSED_AFTER: Final = 0.002
AGAIN_AFTER: Final = 0.02
TOLD_WITHIN: Final = 0.25
"""Seconds until the script hears of a hold that ended."""


@dataclass
class Fleet:
    """A service of ``slots`` calls at a time, and more callers than it bears, which go on and on.

    Attributes:
        adapt: how the limit adapts.
        slots: what the service does at a time.
        queue: calls that wait there; it refuses more.
        took: seconds of a call, on average.
        spread: of that, as a part of it.
        callers: that always want one more.
        delay: seconds between the limit and the service, on average, as long as the machine is quiet.
        noise: how many times that may become, for some seconds.
        seed: of all that is by chance.
        limits: of each second.
        inside: how many calls were at the service, as a part of the capacity, ten times a second.
    """

    adapt: Adapt
    slots: int = 20
    queue: int = 0
    took: float = 0.2
    spread: float = 0.3
    callers: int = 60
    delay: float = 0.02
    noise: int = 4
    seed: int = 0
    floor: int = 4
    ceiling: int = 80
    limits: list[float] = field(default_factory=list)
    good: Counter[int] = field(default_factory=Counter)
    inside: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._sigma = math.sqrt(math.log(1 + self.spread**2))
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order, self._now, self._factor = count(), 0.0, 1
        self._course, self._sums, self._pressed = AdaptiveState(self.floor * UNIT), Counter[str](), False
        self._capacity, self._busy, self._held, self._wanting = self.slots, 0, 0, 0
        self._queue: deque[float] = deque()
        for _ in range(self.callers):
            self._after(self._chance.random() / 10, self._want)
        self._after(0, self._quiet_or_not)
        self._after(1, self._second)
        self._after(0.05, self._look)

    def run(self, seconds: int, part: float) -> list[float]:
        """Return the limit of each second as a part of the capacity, which is ``part`` of the slots meanwhile."""
        self._capacity, begin = round(self.slots * part), len(self.limits)
        ends = self._now + seconds
        while self._events[0][0] <= ends:
            self._now, _, happens, about = heapq.heappop(self._events)
            happens(*about)
        self._now = ends
        return [limit / self._capacity for limit in self.limits[begin:]]

    def _after(self, seconds: float, happens: Callable[..., None], *about: Any) -> None:
        heapq.heappush(self._events, (self._now + seconds, next(self._order), happens, about))

    def _lag(self) -> float:
        return self._chance.expovariate(1 / (self.delay * self._factor))

    def _quiet_or_not(self) -> None:
        self._factor = self._chance.choice((1, 1, 1, 2, self.noise))
        self._after(self._chance.uniform(0.5, 3), self._quiet_or_not)

    def _want(self) -> None:
        self._wanting += 1
        self._serve()

    def _serve(self) -> None:
        while self._wanting and self._held < self._course.limit // UNIT:
            self._wanting, self._held = self._wanting - 1, self._held + 1
            self._after(self._lag(), self._arrive)
        self._pressed |= self._wanting > 0

    def _arrive(self) -> None:
        if self._busy < self._capacity:
            self._begin(self._now)
        elif len(self._queue) < self.queue:
            self._queue.append(self._now)
        else:
            self._after(REFUSED_AFTER + self._lag() / 3, self._refused, self._now)

    def _begin(self, since: float) -> None:
        self._busy += 1
        took = self.took * math.exp(self._chance.gauss(-(self._sigma**2) / 2, self._sigma))
        self._after(took * (1 + 0.03 * (self._factor - 1)), self._done, since)

    def _done(self, since: float) -> None:
        self._busy -= 1
        while self._queue and self._busy < self._capacity:
            self._begin(self._queue.popleft())
        self.good[int(self._now)] += 1
        us = round((self._now - since) * 1e6)
        told = {"ok": 1, "us": us, "squares": (us // 64) ** 2, "busy": us // 1000}
        self._after(self._chance.uniform(0, TOLD_WITHIN), self._sums.update, told)
        self._after(self._lag() / 2, self._release)
        self._after(0.001, self._want)

    def _refused(self, since: float) -> None:
        told = {"over": 1, "late": round((self._now - since) * 1e6)}
        self._after(self._chance.uniform(0, TOLD_WITHIN), self._sums.update, told)
        self._after(self._lag() / 2, self._release)
        self._after(AGAIN_AFTER, self._want)

    def _release(self) -> None:
        self._held -= 1
        self._serve()

    def _look(self) -> None:
        self.inside.append((self._busy + len(self._queue)) / self._capacity)
        self._after(0.1, self._look)

    def _second(self) -> None:
        if self._sums["ok"] + self._sums["over"]:
            heard = Sample(**self._sums, pressed=self._pressed)
            self._course, reason = decide(self._course, heard, self.floor, self.ceiling, self.adapt)
            if reason != "few":
                self._sums.clear()
                self._pressed = False
        self.limits.append(self._course.limit // UNIT)
        self._serve()
        self._after(1, self._second)
