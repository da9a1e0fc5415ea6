"""Histories of whole fleets: the client's machines beside the plain model of destinations, with all that may fail."""

from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

import pytest

from tests.simulation.fleet.fleet import Fleet, Plan
from tests.simulation.fleet.masters import Tallied
from tests.simulation.mutants import MUTANTS
from tests.support.extent import WHOLE, for_long

SMALL = Plan(nodes=20, places=10, every=0.3, seconds=8, faults=12)
SEEDS = 20 if WHOLE else 2


def judge(seeds: range, plan: Plan = SMALL) -> None:
    for seed in seeds:
        fleet = Fleet(plan, seed)
        assert not fleet.tell()[:3]
        assert fleet.figures.taken > 100


def test_promises_hold_in_a_fleet_whatever_fails() -> None:
    judge(range(SEEDS))


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, for_long(2_000), 50))
def test_promises_hold_in_many_fleets(first: int) -> None:
    judge(range(first, first + 50))


@pytest.mark.soak
@pytest.mark.alone
def test_promises_hold_in_a_fleet_of_ten_thousand_nodes() -> None:
    """100,000 sessions at 4,999 queues of 34 masters; nodes and masters die, freeze and are cut off."""
    plan = Plan(nodes=10_000, masters=34, places=4_999, seconds=6, faults=400)
    fleet = Fleet(plan)
    assert not fleet.tell(then=15)[:3]
    assert fleet.figures.taken > 300_000


def test_a_seed_is_one_history_of_a_fleet() -> None:
    fleets = [Fleet(Plan(nodes=10, places=5, seconds=4, faults=8), 3) for _ in range(2)]
    for fleet in fleets:
        fleet.tell()
    first, second = fleets
    assert first.events.happened == second.events.happened
    assert first.figures == second.figures


def test_a_quiet_fleet_takes_each_message_once() -> None:
    fleet = Fleet(Plan(nodes=10, places=5, seconds=4))
    assert not fleet.tell()
    assert fleet.figures.taken == fleet.figures.receipts > 100
    assert not fleet.figures.ended


def _left_in_line() -> AbstractContextManager[Any]:
    """Have a settlement leave those in line that it frees room for."""
    settle = Tallied.settle

    def settled(self: Tallied, *args: Any, **named: Any) -> Any:
        with mock.patch.object(Tallied, "serve_line"):
            return settle(self, *args, **named)

    return mock.patch.object(Tallied, "settle", settled)


def _granted_twice() -> AbstractContextManager[Any]:
    """Have credit be granted beside what is stored already."""
    return mock.patch.object(Tallied, "whole_room", property(lambda self: self.slice - self.leased))


def test_what_settlements_leave_in_line_is_found() -> None:
    with _left_in_line():
        assert any(Fleet(SMALL, seed).tell()[:1] for seed in range(3))


def test_grants_beyond_the_limit_are_found() -> None:
    with _granted_twice():
        assert Fleet(SMALL).tell()[0].startswith("P1:")


def test_what_is_sent_again_under_another_number_is_found() -> None:
    numbered = next(mutant for mutant in MUTANTS if mutant.rule == "what is sent again has the number that it had")
    fleets = [Fleet(SMALL, seed) for seed in range(20)]
    with numbered.client(), pytest.raises(AssertionError, match="P5: a message is stored twice"):
        [fleet.tell() for fleet in fleets]
