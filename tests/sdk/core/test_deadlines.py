"""Deadlines of those that wait: the first is known, whatever order they come in, and none is kept for ever."""

import math
import random

from headgate.core.deadlines import PRUNE_AT, Deadlines
from headgate.core.outbox import Outgoing
from tests.sdk.core.test_core import Told


def _one(deadline: float) -> Outgoing:
    return Outgoing(b"", 0, deadline, Told())


def test_any_order_of_deadlines_is_that_of_a_list() -> None:
    """Mutants: only the line, or only the heap, is looked at; one that is done is yielded; equal ones count as late."""
    dice, deadlines, there = random.Random(5), Deadlines[Outgoing](), list[Outgoing]()
    for now in range(3000):
        for _ in range(dice.randrange(4)):
            one = _one(now + (20 if dice.random() < 0.7 else dice.randrange(25)))
            deadlines.add(one)
            deadlines.add(one)  # again counts once
            there.append(one)
        for one in dice.sample(there, min(2, len(there))):
            one.done.state = "done"
        there = [one for one in there if not one.done.done()]
        assert deadlines.soonest() == min((one.deadline for one in there), default=math.inf)
        over = list(deadlines.over(now))
        assert [one.deadline for one in over] == sorted(one.deadline for one in there if one.deadline <= now)
        assert set(map(id, over)) == {id(one) for one in there if one.deadline <= now}
        there = [one for one in there if one.deadline > now]
        if over and dice.random() < 0.5:  # put back in line, as what was paid and is not any more
            over[0].deadline = now + 30
            deadlines.add(over[0])
            there.append(over[0])


def test_those_that_are_done_go_as_the_next_comes() -> None:
    """A thousand that are kept are enough for the garbage collector to walk them again and again. Mutant: they stay."""
    deadlines = Deadlines[Outgoing]()
    for turn in range(3):
        there = [_one(10.0 + turn) for _ in range(256)]
        for one in there:
            deadlines.add(one)
        assert len(deadlines) == 256
        for one in there:
            one.done.state = "done"


def test_what_comes_and_is_done_is_not_kept() -> None:
    """Mutants: nothing is pruned; what has no deadline is watched."""
    deadlines, first = Deadlines[Outgoing](), _one(10.0)
    deadlines.add(first)
    for number in range(20 * PRUNE_AT):
        one = _one((5.0 if number % 2 else 20.0) + number)
        deadlines.add(one)
        deadlines.add(_one(math.inf))
        one.done.state = "done"
        assert len(deadlines) <= PRUNE_AT + 1
    assert deadlines.soonest() == 10.0
    deadlines.clear()
    assert (len(deadlines), deadlines.soonest()) == (0, math.inf)
