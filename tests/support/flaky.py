"""What failed beside other tests runs once more, alone, and is told apart from what fails there too.

For `make test`, which runs the tests in several processes: `-p tests.support.flaky`. What fails alone has failed.
What passes alone is flaky: it is named in the last lines, and more than :data:`TOLERATED` of that fail the run.
The last lines have each reason for which tests were skipped, too, and what one that passed wants to be known:
`record_property("note", ...)`.
"""

import subprocess
import sys
from collections import Counter
from typing import Final

import pytest

TOLERATED: Final = 2
RERUN: Final = 10
"""Beyond that many, what failed is not run again."""
_FLAKY: Final = pytest.StashKey[list[str]]()


@pytest.hookimpl(trylast=True)  # when the others' processes have ended
def pytest_sessionfinish(session: pytest.Session) -> None:
    config = session.config
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None) or reporter is None:
        return
    reports = [*reporter.stats.get("failed", ()), *reporter.stats.get("error", ())]
    failed = list(one := {report.nodeid: report for report in reports})
    if not 0 < len(failed) <= RERUN or any(not isinstance(report, pytest.TestReport) for report in reports):
        return
    reporter.write_line("")
    reporter.write_sep("-", f"{len(failed)} failed beside others; each runs once more, alone")
    config.stash[_FLAKY] = flaky = [nodeid for nodeid in failed if _passes_alone(nodeid, config, reporter)]
    if len(flaky) > TOLERATED:
        return
    for outcome in ("failed", "error"):
        left = [report for report in reporter.stats.pop(outcome, ()) if report.nodeid not in flaky]
        if left:
            reporter.stats[outcome] = left
    if flaky:
        reporter.stats["flaky"] = [one[nodeid] for nodeid in flaky]
        passed = reporter.stats.setdefault("passed", [])
        passed += [one[nodeid] for nodeid in set(flaky) - {report.nodeid for report in passed}]  # its clean-up failed
    if len(flaky) == len(failed) and session.exitstatus == pytest.ExitCode.TESTS_FAILED:
        session.exitstatus = pytest.ExitCode.OK


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    _say_what_was_flaky(terminalreporter, config)
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", ())
        if isinstance(report.longrepr, tuple)
    )
    if reasons:
        terminalreporter.section(f"{reasons.total()} skipped")
        for reason, count in reasons.most_common():
            terminalreporter.write_line(f"SKIPPED {count}: {reason}")
    for report in terminalreporter.stats.get("passed", ()):
        for note in (said for name, said in report.user_properties if name == "note"):
            terminalreporter.write_line(f"NOTE {note}")


def _say_what_was_flaky(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    flaky = config.stash.get(_FLAKY, [])
    if not flaky:
        return
    verdict = "too many" if len(flaky) > TOLERATED else "tolerated"
    terminalreporter.section(f"{len(flaky)} flaky: failed beside others, passed alone ({verdict}: at most {TOLERATED})")
    for nodeid in flaky:
        terminalreporter.write_line(f"FLAKY {nodeid}")
    for report in terminalreporter.stats.get("flaky", ()):
        terminalreporter.section(f"{report.nodeid} beside others", "_")
        terminalreporter.write_line(report.longreprtext)


def _passes_alone(nodeid: str, config: pytest.Config, reporter: pytest.TerminalReporter) -> bool:
    """Run it in a process of its own, with the same random numbers, and show what it says if it fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", nodeid]
    seed = config.getoption("randomly_seed", None)
    if isinstance(seed, int):
        command.append(f"--randomly-seed={seed}")
    done = subprocess.run(command, cwd=config.rootpath, capture_output=True, text=True, check=False)
    passes = done.returncode == pytest.ExitCode.OK
    reporter.write_line(f"{'passes' if passes else 'FAILS'} alone: {nodeid}")
    if not passes:
        reporter.write_line(done.stdout + done.stderr)
    return passes
