"""Histories drawn from seeds, in which everything fails that may: the promises hold at every moment of each."""

import os
from collections.abc import Sequence

import pytest

from tests.simulation.drawing import Event, drawn, shortest
from tests.simulation.history import History
from tests.simulation.mutants import MUTANTS, Mutant
from tests.simulation.server import Backing
from tests.support.extent import WHOLE, for_long

SEEDS = 187
OF_DEPLOYMENTS = {"sentinels": 8, "cluster": 5}
"""Seeds for each; with the others 200."""
THROUGH_NODES = 40 if WHOLE else 8
AT_ONCE, AT_ONCE_IN_A_SOAK = 10, 250
"""Seeds that one test tries."""
IN_A_SOAK = for_long(16_000)
NODES_IN_A_SOAK = for_long(5_000)
EACH_IN_A_SOAK = for_long(2_000)
"""For each kind of deployment; with the others 10,000 in half a soak."""
NAMED = os.environ.get("HEADGATE_SEEDS", "")
"""``<first>-<last>``: the seeds to try in the place of these."""
TRIED = 60
"""Histories in which a broken rule is to show itself."""


def seeds(count: int, at_once: int) -> list[range]:
    first, last = map(int, NAMED.split("-")) if NAMED else (0, count - 1)
    return [range(begin, min(begin + at_once, last + 1)) for begin in range(first, last + 1, at_once)]


def told(backing: Backing, seed: int, nodes: int = 0, kind: str = "alone") -> History:
    history = History(backing, seed, nodes=nodes, kind=kind)
    history.tell()
    return history


def judge(backing: Backing, some: Sequence[int], nodes: int = 0, kind: str = "alone") -> None:
    for seed in some:
        if broken := told(backing, seed, nodes, kind).oracle.broken:
            pytest.fail(story_of(backing, seed, broken[0], nodes=nodes, kind=kind), pytrace=False)


def story_of(
    backing: Backing, seed: int, broken: str, mutant: Mutant | None = None, nodes: int = 0, kind: str = "alone"
) -> str:
    """Return the shortest history that breaks the same promise, event by event, and how it ends."""
    promise = broken.partition(":")[0]

    def tell(events: Sequence[Event]) -> History:
        history = History(backing, seed, events, rewrite=mutant.script if mutant else None, nodes=nodes, kind=kind)
        history.tell()
        return history

    def fails(events: Sequence[Event]) -> bool:
        return any(one.startswith(f"{promise}:") for one in tell(events).oracle.broken)

    events = shortest(drawn(seed, nodes=nodes > 0, kind=kind), fails)
    ends = tell(events)
    happened = [" ".join(map(str, line)) for line in ends.world.log[-40:]]
    return "\n".join([f"seed {seed} breaks {ends.oracle.broken[0]}", *map(str, events), "and ends with", *happened])


@pytest.mark.parametrize("some", seeds(SEEDS, AT_ONCE), ids=lambda some: f"{some.start}-{some.stop - 1}")
def test_promises_hold_whatever_fails(backing: Backing, some: range) -> None:
    judge(backing, some)


@pytest.mark.parametrize("some", seeds(THROUGH_NODES, AT_ONCE), ids=lambda some: f"{some.start}-{some.stop - 1}")
def test_promises_hold_through_nodes_and_over_links(backing: Backing, some: range) -> None:
    judge(backing, some, nodes=2)


@pytest.mark.parametrize("kind", OF_DEPLOYMENTS)
def test_promises_hold_where_replicas_take_over(backing: Backing, kind: str) -> None:
    """Breaks when a promise does not hold as masters take turns, slots move or a former master goes on for a while."""
    for some in seeds(OF_DEPLOYMENTS[kind] * (5 if WHOLE else 1), AT_ONCE_IN_A_SOAK):
        judge(backing, some, kind=kind)


@pytest.mark.soak
@pytest.mark.parametrize("kind", OF_DEPLOYMENTS)
@pytest.mark.parametrize(
    "some", seeds(EACH_IN_A_SOAK, AT_ONCE_IN_A_SOAK), ids=lambda some: f"{some.start}-{some.stop - 1}"
)
def test_promises_hold_where_replicas_take_over_in_many_histories(backing: Backing, some: range, kind: str) -> None:
    judge(backing, some, kind=kind)


@pytest.mark.soak
@pytest.mark.parametrize(
    "some", seeds(NODES_IN_A_SOAK, AT_ONCE_IN_A_SOAK), ids=lambda some: f"{some.start}-{some.stop - 1}"
)
def test_promises_hold_through_nodes_in_many_histories(backing: Backing, some: range) -> None:
    judge(backing, some, nodes=2)


@pytest.mark.soak
@pytest.mark.parametrize("some", seeds(IN_A_SOAK, AT_ONCE_IN_A_SOAK), ids=lambda some: f"{some.start}-{some.stop - 1}")
def test_promises_hold_in_many_histories(backing: Backing, some: range) -> None:
    judge(backing, some)


@pytest.mark.parametrize(("nodes", "kind"), [(0, "alone"), (2, "alone"), (0, "sentinels"), (0, "cluster")])
def test_a_seed_is_one_history(backing: Backing, nodes: int, kind: str) -> None:
    for seed in (0, 3, 17) if WHOLE else (3,):
        first, second = told(backing, seed, nodes, kind), told(backing, seed, nodes, kind)
        assert len(first.world.log) > 50
        assert first.world.log == second.world.log
        assert first.world.events == second.world.events


def found(backing: Backing, mutant: Mutant) -> History:
    """Return the first history in which a broken rule shows itself."""
    seeds_tried = range(mutant.seed, mutant.seed + TRIED)
    histories = (
        History(backing, seed, rewrite=mutant.script, nodes=mutant.nodes, kind=mutant.kind) for seed in seeds_tried
    )
    history = next((one for one in histories if one.tell()), None)
    assert history, f"{TRIED} histories do not show it"
    return history


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_a_broken_rule_is_found(backing: Backing, mutant: Mutant) -> None:
    with mutant.client():
        broken = found(backing, mutant).oracle.broken
    assert broken[0].startswith(f"{mutant.promise}:"), broken


def test_what_breaks_a_promise_is_shown_as_a_short_history(backing: Backing) -> None:
    mutant = MUTANTS[0]
    history = found(backing, mutant)
    story = story_of(backing, history.seed, history.oracle.broken[0], mutant)
    shown = story.partition("\nand ends with")[0].splitlines()
    assert shown[0].startswith(f"seed {history.seed} breaks {mutant.promise}:")
    assert 0 < len(shown[1:]) < len(history.events) / 2, story
