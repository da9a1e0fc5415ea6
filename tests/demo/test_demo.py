"""The demo as a whole: real processes, a real `kill -9`, and nothing left whatever happens."""

import json
import os
import random
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.demo.command import Running, run
from tests.support.waiting import wait_for

pytestmark = pytest.mark.longest

CHECKS = [
    "delivered", "identical", "nothing else", "once", "in order", "limit",
    "blocked", "reclaimed", "node reclaimed", "went on", "forwarded", "both limits",
    "counters", "audited", "processes", "clean",
]  # fmt: skip
OF_NODES = {"node reclaimed", "went on", "forwarded", "both limits"}


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Files of many sizes, an empty one, one larger than the limit, one whose name is not text."""
    source, seeded = tmp_path / "files", random.Random(7)
    (source / "inner").mkdir(parents=True)
    for number in range(20):
        (source / "inner" / f"{number}.bin").write_bytes(seeded.randbytes(seeded.randrange(1, 20_000)))
    (source / "empty").touch()
    (source / "large").write_bytes(seeded.randbytes(200_000))
    Path(os.fsdecode(os.fsencode(source) + b"/\xff\xfe")).write_bytes(b"odd")
    return source


def passed(told: dict[str, Any]) -> dict[str, bool]:
    return {check["name"]: check["passed"] for check in told["checks"]}


@pytest.mark.soak  # the others leave Spark out, whose audit tests/conformance has too
@pytest.mark.timeout(900)
def test_the_demo_passes_on_a_private_redis(files: Path) -> None:
    done = run("demo", "--seconds", "8", "--json", "--limit", "128KiB", "--input", str(files))
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert passed(told) == dict.fromkeys(CHECKS, True), told
    assert (done.returncode, told["passed"]) == (0, True)
    facts = told["facts"]
    assert facts["exit_codes"] == {
        "producer fast": 0,
        "producer medium": -signal.SIGKILL,
        "producer slow": 0,
        "producer amqp-a": 0,
        "producer amqp-b": 0,
        "consumer slow": 0,
        "consumer fast": 0,
        "consumer amqp-a": 0,
        "node a": -signal.SIGKILL,
        "node b": 0,
    }
    assert facts["node"]["held"] > 0
    assert set(facts["node"]["back"]) == {"producer amqp-a", "consumer amqp-a"}
    assert facts["blocked_at_a_time"] > 0
    assert facts["killed_held_bytes"] > 0
    assert all(count > 0 for count in (*facts["accepted_messages"].values(), *facts["received_messages"].values()))


@pytest.fixture(params=[pytest.param("with nodes", marks=pytest.mark.whole), "without the engine"])
def engine(request: pytest.FixtureRequest) -> dict[str, str]:
    """Variables with which there are nodes, of which tests/demo/test_verdict has the checks, or none can be."""
    found: dict[str, str] = {} if request.param == "with nodes" else request.getfixturevalue("without_amqp")
    return found


@pytest.mark.one_server
def test_on_a_given_redis_it_leaves_no_key_prints_lines_and_no_process_shows_the_url(
    redis_url: str, files: Path, engine: dict[str, str]
) -> None:
    options = ("--no-pipeline", "--seconds", "5", "--limit", "128KiB", "--input", str(files))
    running = Running("demo", *options, HEADGATE_URL=redis_url, **engine)
    try:
        printed = running.read_until("at work")
        assert redis_url not in running.command_lines()
        stdout, stderr = running.process.communicate(timeout=280)
    finally:
        running.process.kill()
    assert (running.process.returncode, stderr) == (0, ""), stdout
    if engine:
        assert "PASSED: 11 of 11 checks" in stdout
        assert "nodes were left out: AMQP needs the package python-qpid-proton" in stdout
        assert not any(name in stdout for name in OF_NODES)
    else:
        assert "PASSED: 15 of 15 checks" in stdout
    assert "% of 128 KiB" in stdout
    assert "\x1b" not in printed + stdout
    assert not running.left()


@contextmanager
def running_demo(files: Path, temporary: Path, **env: str) -> Iterator[Running]:
    temporary.mkdir()
    running = Running("demo", "--no-pipeline", "--seconds", "20", "--input", str(files), TMPDIR=str(temporary), **env)
    yield running
    with running.process:
        running.process.kill()
    wait_for(lambda: not running.left(), timeout=160, description="the end of all that it started")


@pytest.fixture
def demo(files: Path, tmp_path: Path) -> Iterator[Running]:
    with running_demo(files, tmp_path / "t") as running:
        yield running


@pytest.fixture
def small_demo(files: Path, tmp_path: Path, without_amqp: dict[str, str]) -> Iterator[Running]:
    """Half of the processes: without nodes and their clients."""
    with running_demo(files, tmp_path / "t", **without_amqp) as running:
        yield running


def interrupt(demo: Running, how: signal.Signals, temporary: Path, *, processes: int) -> None:
    demo.read_until("at work")
    assert len(demo.left()) >= processes  # itself, Redis with its reaper, the actors that begin with it
    demo.process.send_signal(how)
    _, stderr = demo.process.communicate(timeout=120)
    assert (demo.process.returncode, stderr) == (130, "headgate: interrupted\n")
    assert not demo.left()
    assert not list(temporary.iterdir())


def test_an_interrupted_demo_leaves_nothing(small_demo: Running, tmp_path: Path) -> None:
    interrupt(small_demo, signal.SIGINT, tmp_path / "t", processes=6)


@pytest.mark.soak
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM], ids=lambda how: how.name)
def test_nor_does_one_with_nodes(demo: Running, tmp_path: Path, how: signal.Signals) -> None:
    interrupt(demo, how, tmp_path / "t", processes=11)


@pytest.mark.whole
def test_a_killed_demo_leaves_no_process(small_demo: Running) -> None:
    """Mutant: a process does not look whether the demo is still there, and ends 20 s later."""
    assert "nodes are left out: the extra amqp is not installed" in small_demo.read_until("at work")
    small_demo.process.kill()
    wait_for(lambda: not small_demo.left(), timeout=60, description="the end of all that it started")


@pytest.mark.soak
def test_a_process_that_ends_by_itself_fails_the_demo(demo: Running) -> None:
    """Mutant: the rest of the story is played."""
    demo.read_until("at work")
    victim = next(pid for pid in demo.left() if "actors producer slow" in _command_line(pid))
    os.kill(victim, signal.SIGTERM)
    stdout, stderr = demo.process.communicate(timeout=240)
    assert (demo.process.returncode, stderr) == (1, "")
    assert "producer slow ended with -15 instead of 0" in stdout
    assert "is killed with -9" not in stdout


def _command_line(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
