"""Processes that are forked off a template are as those that Python begins: what they are given, how they end."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import template
from tests.support.forked import PIPE, Forked, run
from tests.support.waiting import is_alive

TOLD = """
import json, os, signal, sys
print(json.dumps([sys.argv[1:], os.environ.get("MINE"), os.environ.get("HOME"), os.getcwd(), __name__,
                  os.getpid(), signal.getsignal(signal.SIGINT) is signal.default_int_handler]))
print("trouble", file=sys.stderr)
line = sys.stdin.readline()
sys.exit(3 if not line else f"heard {line.strip()}")
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current directory."""
    name = f"told_{os.getpid()}_{tmp_path.name}".replace("-", "_")
    (tmp_path / f"{name}.py").write_text(TOLD)
    monkeypatch.chdir(tmp_path)
    return name


def environment() -> dict[str, str]:
    return {"MINE": "1", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def test_it_is_given_what_it_would_be_given(module: str, tmp_path: Path) -> None:
    """Mutant: the environment is added to the template's."""
    begun = subprocess.run(
        [sys.executable, "-m", module, "a", "-b"],
        env=environment(),
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    forked = run(module, "a", "-b", environment=environment(), timeout=30)
    assert (forked.returncode, forked.stderr) == (begun.returncode, begun.stderr) == (3, "trouble\n")
    told, expected = json.loads(forked.stdout), json.loads(begun.stdout)
    assert told.pop(5) != expected.pop(5)
    assert told == expected == [["a", "-b"], "1", None, str(tmp_path), "__main__", True]


def test_it_reads_and_writes_pipes_and_ends_with_what_it_says(module: str, tmp_path: Path) -> None:
    with (tmp_path / "errors").open("w") as errors:
        process = Forked(module, environment=environment(), stdin=PIPE, stdout=PIPE, stderr=errors)
    with process:
        assert process.stdin
        assert process.stdout
        assert json.loads(process.stdout.readline())[5] == process.pid
        assert (process.poll(), is_alive(process.pid)) == (None, True)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.stdin.write("a word\n")
        process.stdin.flush()
        assert process.wait(30) == 1
    assert (tmp_path / "errors").read_text() == "trouble\nheard a word\n"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_signal_that_ended_it_is_told(module: str, tmp_path: Path, number: signal.Signals) -> None:
    with (
        (tmp_path / "errors").open("w") as errors,
        Forked(module, environment=environment(), stdin=PIPE, stdout=PIPE, stderr=errors) as process,
    ):
        assert process.stdout
        process.stdout.readline()
        process.send_signal(number)
        assert process.wait(30) == -number
        assert not is_alive(process.pid)
        process.kill()  # nothing is there any more
        assert process.poll() == -number


def test_so_are_those_that_run_the_tests() -> None:
    """Mutant: `fork_workers` is not called, and each process imports all tests."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert template.__name__ in sys.orig_argv
