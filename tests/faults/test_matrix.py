"""The table of failures in docs/guarantees.md: each row is whole, and names tests that there are."""

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
COLUMNS: Final = ["fault", "what holds", "lost at most", "goes on within", "test"]
_TEST: Final = re.compile(r"^ *(?:async )?def (test_\w+)\(", re.MULTILINE)


def table() -> list[list[str]]:
    section = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8").partition("\n## Failures\n")[2]
    lines = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def names_in(folder: Path) -> set[str]:
    own = Path(__file__)
    files = [path for path in folder.rglob("test_*.py") if path != own]
    return {name for path in files for name in _TEST.findall(path.read_text(encoding="utf-8"))}


def test_each_row_is_whole_and_names_tests_that_there_are() -> None:
    head, _, *rows = table()
    assert head == COLUMNS
    known = names_in(ROOT / "tests")
    for row in rows:
        assert len(row) == len(COLUMNS), row
        assert all(row), f"{row[0]}: a cell is empty"
        named = re.findall(r"`(\w+)`", row[-1])
        assert named, f"{row[0]}: no test"
        assert set(named) <= known, f"{row[0]}: {set(named) - known}"


def test_each_test_of_faults_has_its_row() -> None:
    named = {name for row in table() for name in re.findall(r"`(\w+)`", row[-1])}
    assert names_in(Path(__file__).parent) <= named


def test_no_fault_has_two_rows() -> None:
    faults = [row[0] for row in table()]
    assert len(faults) == len(set(faults))
