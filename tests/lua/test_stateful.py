"""The scripts against the model, on every server and on a cluster.

What it finds, Hypothesis prints as a short program of calls.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.lua.machine import Machine
from tests.lua.world import World

KINDS = ("queue", "topic", "gate")


@pytest.fixture
def world(redis_url: str, namespace: str) -> Iterator[World]:
    world = World(redis_url, namespace)
    yield world
    world.close()


@pytest.fixture
def cluster_world(cluster_url: str, namespace: str) -> Iterator[World]:
    world = World(cluster_url, namespace)
    yield world
    world.close()


def drive(world: World, kind: str, *, examples: int, steps: int = 40) -> None:
    chosen = type("Chosen", (Machine,), {"world": world, "kind": kind})
    run_state_machine_as_test(
        chosen,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.timeout(900)  # to shrink what it found may take long
@pytest.mark.parametrize("kind", KINDS)
def test_the_scripts_do_what_the_model_does(world: World, kind: str) -> None:
    drive(world, kind, examples=80 if kind != "gate" else 30)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", KINDS)
def test_the_scripts_do_what_the_model_does_on_a_cluster(cluster_world: World, kind: str) -> None:
    drive(cluster_world, kind, examples=15)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_the_scripts_do_what_the_model_does_for_long(world: World, kind: str) -> None:
    drive(world, kind, examples=800, steps=80)


@pytest.mark.soak
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", KINDS)
def test_the_scripts_do_what_the_model_does_on_a_cluster_for_long(cluster_world: World, kind: str) -> None:
    drive(cluster_world, kind, examples=150, steps=80)
