"""What is flaky is told, a little of it is tolerated, and what fails is never taken for it."""

import sys
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
ROOT = Path(__file__).parents[3]
TESTS = """
import os
from pathlib import Path
import pytest

BESIDE = "PYTEST_XDIST_WORKER" in os.environ

@pytest.fixture
def untidy():
    yield
    assert not BESIDE, "leaves something beside others"

def test_good(record_property): record_property("note", "a seed is old")
def test_skipped(): pytest.skip("there is no such thing here")
"""
FLAKY = "def test_flaky_{0}(): assert not BESIDE\n"
BAD = "def test_bad(): assert False, 'always'\n"
UNTIDY = "def test_untidy(untidy): pass\n"


def outcome(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tests: str) -> tuple[int, str, str]:
    """Return the exit status, the closing line, and all that was printed."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take a second to load, each time
    pytester.makepyfile(TESTS + tests)
    run = pytester.run(
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "xdist",
        "-n",
        "1",
        "-r",
        "fE",
        "-p",
        "tests.support.flaky",
        "--maxfail",
        "6",
    )
    text = run.stdout.str()
    return int(run.ret), run.outlines[-1], text


def test_two_that_pass_alone_are_named_and_tolerated(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, closing, text = outcome(pytester, monkeypatch, FLAKY.format(1) + UNTIDY)
    assert status == 0
    assert "= 3 passed, 1 skipped, 2 flaky in " in closing
    assert "SKIPPED 1: there is no such thing here" in text
    assert "NOTE a seed is old" in text
    assert "2 flaky: failed beside others, passed alone" in text
    assert text.count("FLAKY test_two_that_pass_alone_are_named_and_tolerated.py::test_") == 2


def test_what_fails_alone_too_fails_the_run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    status, closing, text = outcome(pytester, monkeypatch, BAD + FLAKY.format(1))
    assert status == 1
    assert "= 1 failed, 2 passed, 1 skipped, 1 flaky in " in closing
    assert text.count("FAILS alone: ") == 1
    assert "AssertionError: always" in text


@pytest.mark.soak
def test_so_do_three_that_are_flaky(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    status, closing, text = outcome(pytester, monkeypatch, "".join(map(FLAKY.format, range(3))))
    assert status == 1
    assert "= 3 failed, 1 passed, 1 skipped in " in closing
    assert "3 flaky: failed beside others, passed alone (too many" in text
