"""Writes `docs/conformance.md` from the rows and the tests that are named after them.

python -m tests.conformance.table          writes it
"""

import re
from pathlib import Path
from typing import Final

from tests.conformance.rows import ROWS, SYSTEMS, WAITS_FOR, Row

HERE: Final = Path(__file__).parent
PAGE: Final = HERE.parents[1] / "docs" / "conformance.md"
INTRODUCTION: Final = """# Conformance

What the documents of other brokers say of flow control, statement by statement, and the test that shows it here on a
real Redis: `make test ARGS=tests/conformance`. `python -m tests.conformance.table` makes this page, a test keeps it so.
"""


def shown_by(row: Row) -> list[str]:
    """Return the names of a row's tests, ``test_<id>_...`` in the file of its system."""
    file = HERE / f"test_{row.system}.py"
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    return re.findall(rf"^(?:async )?def (test_{row.id.lower()}_\w+)\(", text, re.MULTILINE)


def page() -> str:
    """Return the whole page."""
    parts = [INTRODUCTION]
    shown = [row for row in ROWS if shown_by(row)]
    waiting = [row for row in ROWS if row.waits_for and not shown_by(row)]
    parts.append(f"{len(ROWS)} statements: {len(shown)} shown, {len(waiting)} open.\n")
    for system, title in SYSTEMS.items():
        parts.append(f"## {title}\n\n| id | the document says | here | test |\n|---|---|---|---|")
        parts += [_line(row) for row in ROWS if row.system == system]
        parts[-1] += "\n"
    return "\n".join(parts).rstrip() + "\n"


def _line(row: Row) -> str:
    names = shown_by(row)
    shown = "<br>".join(f"[`{name}`](../tests/conformance/test_{row.system}.py)" for name in names)
    state = shown or (f"open: comes with {WAITS_FOR[row.waits_for]}" if row.waits_for else "**missing**")
    if names and row.waits_for:
        state += f"; the rest comes with {WAITS_FOR[row.waits_for]}"
    return f"| {row.id} | {row.says} | {row.ours} | {state} |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
