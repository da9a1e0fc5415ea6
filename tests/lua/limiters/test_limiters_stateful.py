"""Limiters against the model, on every server and on a cluster."""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.lua.limiters.losses import Losses
from tests.lua.limiters.machine import Machine
from tests.lua.world import World
from tests.support.extent import examples, for_long


def drive(world: World, *, count: int, steps: int = 30, machine: type[Losses | Machine] = Machine) -> None:
    run_state_machine_as_test(
        type("Chosen", (machine,), {"world": world}),
        settings=settings(
            max_examples=count, stateful_step_count=steps, deadline=None, report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip


@pytest.mark.each_server
def test_it_does_what_the_model_allows(driven: World, share: int) -> None:
    drive(driven, count=examples(30) // share)


def test_it_does_so_on_a_cluster(driven_cluster: World) -> None:
    drive(driven_cluster, count=5)


def test_a_quota_of_users_holds_over_losses_and_nobody_waits_for_ever(driven: World) -> None:
    """Mutant: a user that waits while it is learnt who holds what is looked at once something of it comes back."""
    drive(driven, count=examples(40), machine=Losses)


@pytest.mark.soak
def test_it_does_so_for_long(driven: World) -> None:
    drive(driven, count=for_long(1000), steps=60)


@pytest.mark.soak
def test_a_quota_of_users_holds_over_losses_for_long(driven: World) -> None:
    drive(driven, count=for_long(1000), steps=60, machine=Losses)
