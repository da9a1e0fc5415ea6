"""Moments at which something is due: those of one moment in turn, cancelled ones never, and none is kept for ever."""

import math
import random
from dataclasses import dataclass

from headgate.core.limiting.timers import Timers


@dataclass(eq=False)
class Due:
    at: float = math.inf


def test_those_of_one_moment_come_in_turn_and_what_was_cancelled_never() -> None:
    timers: Timers[Due] = Timers(lambda one: one.at)
    first, second, third = Due(2.0), Due(1.0), Due(2.0)
    for one in (first, second, third):
        timers.set(one)
    second.at = math.inf
    assert timers.first == 2.0
    assert timers.pop(1.9) is None
    assert [timers.pop(2.0), timers.pop(2.0)] == [first, third]
    assert (timers.first, timers.pop(99.0)) == (math.inf, None)


def test_any_order_of_moments_is_that_of_a_list() -> None:
    dice, timers, there = random.Random(3), Timers[Due](lambda one: one.at), list[Due]()
    for now in range(2000):
        for _ in range(dice.randrange(4)):
            one = Due(now + dice.randrange(20))
            timers.set(one)
            there.append(one)
        for one in dice.sample(there, min(2, len(there))):
            one.at = dice.choice((math.inf, now + dice.randrange(20)))
            timers.set(one)
        while (found := timers.pop(now)) is not None:
            assert found.at == min(one.at for one in there) <= now
            found.at = math.inf
        there = [one for one in there if one.at < math.inf]
        assert timers.first == min((one.at for one in there), default=math.inf)


def test_what_comes_and_goes_is_not_kept() -> None:
    timers: Timers[Due] = Timers(lambda one: one.at)
    for number in range(10_000):
        one = Due(float(number // 7))
        timers.set(one)
        one.at = math.inf
    assert sum(map(len, timers._due.values())) <= 1024
    assert len(timers._heap) == len(timers._due)
