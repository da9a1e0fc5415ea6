"""Writes `docs/conformance.md` and `docs/problems.md` from their rows and the tests that belong to them.

python -m tests.conformance.table          writes both
"""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.conformance.presets.preset_rows import page as preset_page
from tests.conformance.problems import PROBLEMS, TESTS, Problem
from tests.conformance.rows import ROWS, SYSTEMS, WAITS_FOR, Row
from tests.kit.report import side_by_side
from tests.kit.rows import ROWS as KIT

HERE: Final = Path(__file__).parent
TESTS_ROOT: Final = HERE.parent
DOCS: Final = HERE.parents[1] / "docs"
CONFORMANCE: Final = """# Conformance

This page goes through what the documents of other brokers state about flow control, and names the test that shows it
here on a real Redis: `make test ARGS=tests/conformance`. [Presets](#presets-row-by-row) and [what other brokers
do](#side-by-side-over-amqp-10) are at its end. `python -m tests.conformance.table` makes this page, a test keeps it so.
"""
SUFFERED: Final = """# Problems

This page lists what users of other systems report or ask for, when it counts as solved here, and the tests that show
it. The last column says what of that no test shows. `python -m tests.conformance.table` makes this page, a test keeps
it so.
"""


def names(file: str, begin: str = "test_") -> list[str]:
    """Return the names of the tests of a file below `tests/` that begin so; none where there is no such file."""
    path = TESTS_ROOT / file
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return re.findall(rf"^(?: {{4}})?(?:async )?def ({begin}\w*)\(", text, re.MULTILINE)


def shown_by(row: Row) -> list[str]:
    """Return the names of a row's tests, ``test_<id>_...``, in the files of its system as ``<file>::<name>``."""
    begin = f"test_{row.id.lower()}_"
    files = sorted(file.name for file in HERE.glob(f"test_{row.system}*.py"))
    return [f"conformance/{file}::{name}" for file in files for name in names(f"conformance/{file}", begin)]


def shows(problem: Problem) -> list[str]:
    """Return the tests of a problem as ``<file>::<name>``, those that were written for it first."""
    file = "conformance/test_problems.py"
    own = [f"{file}::{name}" for name in names(file, f"test_p{problem.number:02}_")]
    return own + [test for number, test in map(str.split, TESTS.split("\n")[1:-1]) if int(number) == problem.number]


def conformance() -> str:
    """Return the whole page of statements."""
    parts = [CONFORMANCE]
    shown = [row for row in ROWS if shown_by(row)]
    waiting = [row for row in ROWS if row.waits_for and not shown_by(row)]
    parts.append(f"{len(ROWS)} statements: {len(shown)} shown, {len(waiting)} open.\n")
    for system, title in SYSTEMS.items():
        parts.append(f"## {title}\n\n| id | the document says | here | test |\n|---|---|---|---|")
        parts += [_line(row) for row in ROWS if row.system == system]
        parts[-1] += "\n"
    parts += preset_page()
    parts.append(side_by_side({row.id: row.promise for row in KIT}))
    return "\n".join(parts).rstrip() + "\n"


def _line(row: Row) -> str:
    shown = _links(shown_by(row))
    state = shown or (f"open: comes with {WAITS_FOR[row.waits_for]}" if row.waits_for else "**missing**")
    if shown and row.waits_for:
        state += f"; the rest comes with {WAITS_FOR[row.waits_for]}"
    return f"| {row.id} | {row.says} | {row.ours} | {state} |"


def problems() -> str:
    """Return the whole page of problems."""
    shown = [problem for problem in PROBLEMS if shows(problem)]
    counts = f"{len(shown)} shown, {len(PROBLEMS) - len(shown)} open"
    parts = [SUFFERED, f"{len(PROBLEMS)} problems: {counts}.\n"]
    parts.append("| | seen in | problem | solved here when | test | not shown |\n|---|---|---|---|---|---|")
    for one in PROBLEMS:
        state = _links(shows(one)) or "open"
        parts.append(f"| {one.number} | {one.seen_in} | {one.problem} | {one.criterion} | {state} | {one.rest} |")
    return "\n".join(parts) + "\n"


def _links(tests: Iterable[str]) -> str:
    return "<br>".join(f"[`{name}`](../tests/{file})" for file, name in (test.split("::") for test in tests))


PAGES: Final = {DOCS / "conformance.md": conformance, DOCS / "problems.md": problems}

if __name__ == "__main__":
    for path, page in PAGES.items():
        path.write_text(page(), encoding="utf-8")
