"""No statement without a test or a reason, and the page says so."""

import pytest

from tests.conformance.rows import ROWS, Row
from tests.conformance.table import PAGE, page, shown_by


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_each_row_has_a_test_or_says_what_it_waits_for(row: Row) -> None:
    assert shown_by(row) or row.waits_for


def test_the_page_is_as_the_rows_and_tests_are() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "run python -m tests.conformance.table"
