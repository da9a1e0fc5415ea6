"""Shadow limits of a queue or a topic as they are said to count: by what is pending, and by rates of what was sent."""

import math
from dataclasses import dataclass, field

from headgate.core.limits.limit import Limit, limits_of

SECOND_US = 1_000_000


@dataclass(slots=True)
class Shadow:
    """What shadow limits counted.

    Attributes:
        text: the limits, as the state keeps them; empty for none.
        would_wait: messages that would have waited.
        counts: by limit, how many, and how far above it the furthest was.
        whole_us: by rate, when its burst is whole again.
        at: when a rate was last charged.
    """

    text: str = ""
    would_wait: int = 0
    counts: dict[str, tuple[int, int]] = field(default_factory=dict)
    whole_us: dict[str, int] = field(default_factory=dict)
    at: int = 0

    def see(self, now_ms: int, sizes: list[int], pending: tuple[int, int] | None) -> None:
        """Judge messages as they are stored, one after the other; ``pending``: bytes and messages, where it counts."""
        now, most = now_ms * 1000, 0
        amounts = {"bytes": sizes, "messages": [1] * len(sizes), "rate": [1] * len(sizes), "byte_rate": sizes}
        before = dict(zip(("bytes", "messages"), pending, strict=True)) if pending else {}
        set_back, charged = max(0, self.at - now), False
        self.whole_us = {name: us - set_back for name, us in self.whole_us.items()}
        for name, limit in limits_of(self.text).items() if self.text else ():
            if limit.rate is None:
                if name not in before:
                    continue
                left = float(limit.most - before[name])
            else:
                left, charged = self._charge(limit, now, sum(amounts[name])), True
            times, taken = 0, 0
            for amount in amounts[name]:
                times += amount > left - taken
                taken += amount
            if times:
                had = self.counts.get(name, (0, 0))
                self.counts[name] = had[0] + times, max(had[1], math.ceil(taken - left))
                most = max(most, times)
        self.would_wait += most
        if charged:
            self.at = now
        else:
            self.whole_us = {name: us + set_back for name, us in self.whole_us.items()}

    def _charge(self, limit: Limit, now: int, amount: int) -> float:
        """Charge a rate; returns what was left of it before."""
        assert limit.rate is not None
        whole = self.whole_us.get(limit.name, 0)
        self.whole_us[limit.name] = max(0, max(whole, now) + math.ceil(amount * SECOND_US / limit.rate))
        return limit.most - max(0, whole - now) * limit.rate / SECOND_US

    @property
    def told(self) -> tuple[int, dict[str, tuple[int, int]]]:
        """How many would have waited, in all and by limit."""
        return self.would_wait, self.counts
