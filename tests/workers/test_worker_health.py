"""What counts against a worker: that it is stopped, or could have said something; never that the machine is busy."""

import asyncio
import os
import signal
import subprocess
import sys

import pytest

from headgate_coordinator.workers import worker_health
from headgate_coordinator.workers.supervisor import Supervisor
from headgate_coordinator.workers.worker import WorkerAssignment
from headgate_coordinator.workers.worker_health import EVERY, HUNG, STOPPED, ProcessSample, WorkerHealth, glimpse
from tests.support.waiting import wait_for


def looks(watch: WorkerHealth, *states: str, ran: float = 0.0, spoke: bool = False) -> list[str | None]:
    """Look at one that runs so long between two looks."""
    return [watch.look(ProcessSample(state, (number + 1) * ran), spoke=spoke) for number, state in enumerate(states)]


def test_one_that_is_stopped_is_given_up_within_three_seconds_and_once() -> None:
    """Mutant: only those that are silent are looked at; one that is stopped waits like one that thinks for long."""
    found = looks(WorkerHealth(), *"T" * 20)
    assert found == [None] * (STOPPED - 1) + ["is stopped"] + [None] * (20 - STOPPED)
    assert STOPPED * EVERY < 3


def test_one_that_goes_on_in_time_stays() -> None:
    """Mutant: looks are added up."""
    assert set(looks(WorkerHealth(), *("T" * (STOPPED - 1) + "S") * 5)) == {None}


def test_one_that_gets_no_processor_is_never_given_up() -> None:
    """Mutant: silence counts as such, so that a busy machine kills its nodes and is busier."""
    assert set(looks(WorkerHealth(), *"R" * HUNG * 100)) == {None}
    assert set(looks(WorkerHealth(), *"R" * HUNG * 100, ran=EVERY / 3)) == {None}


@pytest.mark.parametrize(("state", "ran"), [("S", 0.0), ("R", EVERY)])
def test_one_whose_loop_hangs_is_given_up(state: str, ran: float) -> None:
    found = looks(WorkerHealth(), *state * HUNG * 2, ran=ran)
    assert found.index("does not answer") in (HUNG - 1, HUNG)
    assert found.count(None) == HUNG * 2 - 1


def test_a_beat_begins_the_count_anew() -> None:
    watch = WorkerHealth()
    assert set(looks(watch, *"S" * (HUNG - 1))) == {None}
    assert looks(watch, "S", spoke=True) == [None]
    assert set(looks(watch, *"S" * (HUNG - 1))) == {None}


@pytest.mark.parametrize("state", ["t", "D", "Z"])
def test_one_that_a_debugger_holds_or_a_disk_is_left_alone(state: str) -> None:
    assert set(looks(WorkerHealth(), *state * HUNG * 2)) == {None}


@pytest.mark.skipif(sys.platform != "linux", reason="no /proc here: nothing is told of processes")
def test_what_the_system_says_of_a_process() -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        try:
            os.kill(process.pid, signal.SIGSTOP)
            wait_for(lambda: (seen := glimpse(process.pid)) is not None and seen.state == "T")
        finally:
            process.kill()
    assert glimpse(process.pid) is None
    assert glimpse(0) is None
    before = glimpse(os.getpid())
    assert before is not None
    assert before.ran == pytest.approx(sum(os.times()[:2]), abs=0.2)


async def test_one_that_hangs_before_it_says_anything_is_given_up(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: one that begins may be silent for ever, and a rolling restart waits for it as long."""
    monkeypatch.setattr(worker_health, "HUNG", 3)
    post = WorkerAssignment(0, "crew", 1, None, None)
    supervisor = Supervisor([sys.executable, "-c", "import time; time.sleep(600)"], 1, post, 600.0, lambda _: None)
    assert await asyncio.wait_for(supervisor.run(), 60) == 1
    assert "does not answer, and is killed" in caplog.text
