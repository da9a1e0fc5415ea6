"""What `make soak` says while it runs, and its verdict: its tests take minutes each, and more than an hour in all.

A test has a line as it begins, with its number and the time since the start, and one as it ends. The last line is the
verdict; `HEADGATE_SOAK_FIGURES` names a file that it is appended to as JSON.
"""

import json
import os
import platform
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest


class Progress:
    """Counts the tests of one run, and tells of each."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._began = time.monotonic()
        self._total = 0
        self._number = 0
        self.outcomes: dict[str, str] = {}
        self.seconds: dict[str, float] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._total = len(session.items)

    @pytest.hookimpl(optionalhook=True)  # of several processes each has collected the same
    def pytest_xdist_node_collection_finished(self, ids: list[str]) -> None:
        self._total = len(ids)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._number += 1
        self._say(f"{self._number} of {self._total} after {self._passed()}: {nodeid}")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._say(f"{self.outcomes.get(nodeid, 'not run')} in {self.seconds.get(nodeid, 0.0):.0f} s: {nodeid}")

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
        counts = dict.fromkeys(("passed", "failed", "skipped"), 0) | Counter(self.outcomes.values())
        told = ", ".join(f"{count} {said}" for said, count in counts.items())
        terminalreporter.write_line(f"soak: {'PASSED' if not exitstatus else 'FAILED'}: {told} in {self._passed()}")
        if path := os.environ.get("HEADGATE_SOAK_FIGURES"):
            slowest = sorted(self.seconds.items(), key=lambda one: one[1], reverse=True)[:5]
            figures = {
                "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M"), "python": platform.python_version(),
                "arguments": list(self._config.invocation_params.args), **counts,
                "minutes": round((time.monotonic() - self._began) / 60, 1),
                "slowest": {nodeid: round(took) for nodeid, took in slowest},
            }  # fmt: skip
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{json.dumps(figures)}\n")

    def _passed(self) -> str:
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes} min {seconds:02} s"

    def _say(self, text: str) -> None:
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.ensure_newline()
            reporter.write_line(f"soak: {text}")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):  # the one process that hears of all tests
        config.pluginmanager.register(Progress(config))
