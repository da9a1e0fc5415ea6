"""What tests cost: processor time of each, with all that was started for it, whether or not anybody waited for its end.

`make test ARGS="-p tests.support.costs"`, as one who may make control groups (cgroup v2). Each process forks off a
template of its own then, which takes two seconds. The last lines have the sums of folders, fixtures and tests;
`HEADGATE_TEST_COSTS` names a file that they are written to as JSON. On a busy machine they are more: its processes
share caches.
"""

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support import forked

_SHOWN: Final = 40
_LITTLE: Final = 0.1  # seconds; less is not shown


class _Group:
    """A control group of one process, and of all that it starts from now on; theirs are in it."""

    def __init__(self, name: str) -> None:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        root = next((Path(place) for _, place, kind, *_ in mounts if kind == "cgroup2"), None)
        if root is None:
            raise pytest.UsageError("costs: there is no cgroup v2 here")
        ours = next(line[4:] for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::/"))
        self._was, self._folder = root / ours, root / ours / name
        try:
            self._folder.mkdir()
            (self._folder / "cgroup.procs").write_text(str(os.getpid()))
        except OSError as error:
            raise pytest.UsageError(f"costs: {self._folder}: {error.strerror}") from None

    def spent(self) -> float:
        """Return the seconds so far."""
        return int((self._folder / "cpu.stat").read_text().split()[1]) / 1e6

    def leave(self) -> None:
        """Return to the group of before; this one stays while anybody is in it."""
        (self._was / "cgroup.procs").write_text(str(os.getpid()))
        for folder in (*self._folder.glob("headgate-tests-*"), self._folder):
            with suppress(OSError):
                folder.rmdir()


class Costs:
    """Measures the tests of one process; `seconds` and `waited` are by test, `fixtures` by name and scope."""

    def __init__(self, name: str) -> None:
        self._group = _Group(name)
        self.seconds: Counter[str] = Counter()
        self.waited: Counter[str] = Counter()
        self.fixtures: Counter[str] = Counter()

    @contextmanager
    def _of(self, *tables: tuple[Counter[str], str]) -> Iterator[None]:
        before = self._group.spent()
        try:
            yield
        finally:
            for table, name in tables:
                table[name] += self._group.spent() - before  # type: ignore[assignment]  # of seconds

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Iterator[None]:
        with self._of((self.seconds, "(collection)")):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = time.monotonic()
        with self._of((self.seconds, item.nodeid)):
            result = yield
        self.waited[item.nodeid] += time.monotonic() - began  # type: ignore[assignment]
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        with self._of((self.fixtures, f"{fixturedef.argname} of {fixturedef.baseid or 'plugins'}")):
            return (yield)

    def end(self) -> dict[str, Any]:
        """Return all, as JSON has it."""
        everything = self._group.spent()
        self._group.leave()
        return {
            "all": everything, "seconds": dict(self.seconds), "waited": dict(self.waited),
            "fixtures": dict(self.fixtures),
        }  # fmt: skip


_COSTS: Final = pytest.StashKey[Costs]()
_FOUND: Final = pytest.StashKey[list[dict[str, Any]]]()


def pytest_configure(config: pytest.Config) -> None:
    worker = getattr(config, "workerinput", {}).get("workerid", "main")
    config.stash[_FOUND] = []
    os.environ.pop(forked.DOOR, None)  # what is forked off the template of the whole run is in no group of a test
    config.stash[_COSTS] = Costs(f"headgate-tests-{os.getpid()}-{worker}")
    config.pluginmanager.register(config.stash[_COSTS])


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker["costs"] = session.config.stash[_COSTS].end()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    if costs := getattr(node, "workeroutput", {}).get("costs"):
        node.config.stash[_FOUND].append(costs)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say the sums of all processes."""
    ours = config.stash[_COSTS].end()
    found, everything = [*config.stash[_FOUND], ours], ours["all"]
    seconds, waited, fixtures = (
        sum((Counter(one[name]) for one in found), Counter[str]()) for name in ("seconds", "waited", "fixtures")
    )
    folders: Counter[str] = Counter()
    for test, spent in seconds.items():
        folders[test.partition("::")[0].rpartition("/")[0] or test] += spent
    tables = {"folders": folders, "fixtures": fixtures, "tests": seconds}
    terminalreporter.section(f"{everything:.0f} s of processor time, {sum(waited.values()):.0f} s of waiting and work")
    for name, table in tables.items():
        terminalreporter.write_line(f"{name}:")
        for what, spent in table.most_common(_SHOWN):
            if spent >= _LITTLE:
                terminalreporter.write_line(f"  {spent:7.1f} s  {what}")
    if path := os.environ.get("HEADGATE_TEST_COSTS"):
        rounded = {name: {what: round(one, 3) for what, one in table.most_common()} for name, table in tables.items()}
        Path(path).write_text(json.dumps({"all": round(everything, 1), **rounded}, indent=1))
