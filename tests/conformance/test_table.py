"""No statement and no problem without a test or a reason, no test that is not there, and the pages say so."""

from pathlib import Path

import pytest

from tests.conformance.problems import PROBLEMS, Problem
from tests.conformance.rows import ROWS, Row
from tests.conformance.table import PAGES, names, shown_by, shows
from tests.support.extent import each


@each("row", ROWS)
def test_each_row_has_a_test_or_says_what_it_waits_for(row: Row) -> None:
    assert shown_by(row) or row.waits_for


@each("problem", PROBLEMS)
def test_each_problem_has_tests_that_are_there_or_says_why_not(problem: Problem) -> None:
    tests = shows(problem)
    assert tests or problem.rest
    for test in tests:
        file, name = test.split("::")
        assert name in names(file), f"there is no {test}"


def test_problems_are_numbered_and_each_test_written_for_one_is_listed() -> None:
    assert [problem.number for problem in PROBLEMS] == list(range(1, 40))
    listed = {test for problem in PROBLEMS for test in shows(problem)}
    assert {f"conformance/test_problems.py::{name}" for name in names("conformance/test_problems.py")} <= listed


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_page_is_as_its_rows_and_tests_are(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == PAGES[path](), "run python -m tests.conformance.table"
