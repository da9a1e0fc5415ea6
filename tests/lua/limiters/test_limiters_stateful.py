"""Limiters against the model, on every server and on a cluster."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.lua.limiters.machine import Machine
from tests.lua.world import World


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


def drive(world: World, *, examples: int, steps: int = 30) -> None:
    run_state_machine_as_test(
        type("Chosen", (Machine,), {"world": world}),
        settings=settings(
            max_examples=examples, stateful_step_count=steps, deadline=None, report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


def test_it_does_what_the_model_allows(world: World, share: int) -> None:
    drive(world, examples=30 // share)


def test_it_does_so_on_a_cluster(cluster_world: World) -> None:
    drive(cluster_world, examples=5)


@pytest.mark.soak
def test_it_does_so_for_long(world: World) -> None:
    drive(world, examples=1000, steps=60)
