"""The scripts against the model, on every server and on a cluster.

What it finds, Hypothesis prints as a short program of calls.
"""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.lua.machine import BEGIN_MS, TTL_MS, Machine
from tests.lua.world import World
from tests.model.credit import NOTHING, UNLIMITED, Amount, Rules
from tests.support.extent import WHOLE, examples, for_long

KINDS = ("queue", "topic", "gate")


def drive(world: World, kind: str, *, count: int, steps: int = 40) -> None:
    chosen = type("Chosen", (Machine,), {"world": world, "kind": kind})
    run_state_machine_as_test(
        chosen,
        settings=settings(
            max_examples=count,
            stateful_step_count=steps,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("kind", ["queue", "topic"])
@pytest.mark.parametrize("then", ["back", "clock"])
def test_a_call_that_is_refused_after_a_restart_gives_no_numbers_away(driven: World, kind: str, then: str) -> None:
    """Nothing is written by it: numbers go on from where they were when that run of the server is gone again.

    Two programs that Hypothesis found: the server of before is back, or the clock has jumped back meanwhile.
    """
    state: Any = type("Chosen", (Machine,), {"world": driven, "kind": kind})()
    state.create(limit=Amount(400, UNLIMITED), rules=Rules(), consumers=1)
    state.send("bob", [5, 6], 20, 20, too_much=False, skip=0, times=0)
    assert sorted(state.look().messages) == [1, 2]
    state.restart(back=False)
    state.clients["cid"].granted = Amount(7, 1)  # an account that nobody has heard of
    state.publish(state.clients["cid"].totals(NOTHING, NOTHING, 1), 1, (3,))
    if then == "back":
        state.restart(back=True)
    else:
        state.pass_time(-3000)
        state.ask("bob", 0, 0, 0, 0, 1, TTL_MS, 0)
        state.pass_time(TTL_MS)
    state.send("bob", [7], 0, 20, too_much=False, skip=0, times=0)
    state.all_is_well()
    first = 2 if then == "back" else 1000 * (BEGIN_MS - 3000)
    assert sorted(state.look().messages) == [1, 2, first + 1]
    state.teardown()


def test_what_fits_is_judged_by_the_largest_since_a_queue_was_last_empty(driven: World) -> None:
    """A program that Hypothesis found: a model that never forgot the largest kept a key without messages in turn."""
    state: Any = type("Chosen", (Machine,), {"world": driven, "kind": "queue"})()
    state.create(limit=Amount(400, UNLIMITED), rules=Rules(fair="header:tenant"), consumers=1)
    (reader,) = state.readers.values()
    nothing: tuple[list[str], ...] = ([], [], [], [])
    state.send("bob", [24], 20, 20, too_much=False, skip=0, times=0)
    state.settle(reader, 1, Amount(50, 5), nothing)
    state.settle(reader, 0, Amount(50, 5), (list(reader.got.values()), *nothing[1:]))
    state.send("bob", [4], 0, 20, too_much=False, skip=0, times=0)
    state.settle(reader, 2, Amount(22, 4), nothing)
    state.all_is_well()
    state.teardown()


def test_what_is_due_goes_to_those_who_wait_one_each(driven: World) -> None:
    """A program that Hypothesis found: a model that saw none of this where nobody had read it before."""
    state: Any = type("Chosen", (Machine,), {"world": driven, "kind": "queue"})()
    state.create(limit=Amount(100, UNLIMITED), rules=Rules(), consumers=2)
    reader = next(iter(state.readers.values()))
    state.send("ann", [1, 1], 0, 20, too_much=False, skip=0, times=0, later="400")
    state.pass_time(400)
    state.settle(reader, 1, Amount(2, 2), ([], [], [], []), waits=1)
    assert len(reader.got) == 1
    state.all_is_well()
    state.teardown()


@pytest.mark.parametrize("rule", ["shadow", "turns", ""])
def test_a_consumer_that_comes_has_those_served_who_wait_wherever_there_is_a_rule(driven: World, rule: str) -> None:
    """Programs like one that Hypothesis found: a model that took a shadow for no rule, and what is in turn still.

    Who waited while the destination learnt could go; without a rule nobody sees to that before the next call of theirs.
    """
    state: Any = type("Chosen", (Machine,), {"world": driven, "kind": "queue"})()
    fair = Rules(fair="header:tenant" if rule == "turns" else "")
    state.create(
        limit=Amount(100, UNLIMITED), rules=fair, consumers=0, shadow="messages at_once 1" * (rule == "shadow")
    )
    state.send("bob", [4], 0, 0, too_much=False, skip=0, times=0)
    state.change(Amount(100, UNLIMITED), Rules(), 0)
    state.restart(back=False)
    for more in (0, 1):
        state.ask("ann", more, 0, 0, 0, 1, TTL_MS, 0)
        state.ask("bob", 0, 0, 0, 0, 1, TTL_MS, 0)
        state.pass_time(TTL_MS // 2 + 500 * more)
    assert state.look().line == ["ann"]
    state.attach("cid", 1, "red", durable=False, times=0)
    state.all_is_well()
    assert state.look().line == ([] if rule else ["ann"])
    state.teardown()


@pytest.mark.each_server
@pytest.mark.timeout(900)  # to shrink what it found may take long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "as_functions", [True, pytest.param(False, marks=pytest.mark.whole)], ids=["functions", "scripts"]
)
def test_the_scripts_do_what_the_model_does(driven: World, kind: str, share: int) -> None:
    drive(driven, kind, count=examples(40 if kind != "gate" else 15) // share)


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "kind", ["topic", *(pytest.param(kind, marks=pytest.mark.whole) for kind in KINDS if kind != "topic")]
)
def test_the_scripts_do_what_the_model_does_on_a_cluster(driven_cluster: World, kind: str) -> None:
    drive(driven_cluster, kind, count=15 if WHOLE else 5)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_the_scripts_do_what_the_model_does_for_long(driven: World, kind: str) -> None:
    drive(driven, kind, count=for_long(800), steps=80)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_the_scripts_do_what_the_model_does_on_a_cluster_for_long(driven_cluster: World, kind: str) -> None:
    drive(driven_cluster, kind, count=for_long(150), steps=80)
