"""Numbers as people write them: whatever they write is read, or refused as what it is."""

import inspect
from typing import Any

import pytest

from headgate import InvalidValue, units

PARSERS = {
    name: parser
    for name, parser in inspect.getmembers(units, inspect.isfunction)
    if name.startswith(("parse_", "split_", "check_timeout"))
}
ODD: list[Any] = [
    10**400, -(10**400), 10**5000, float("nan"), float("inf"), -float("inf"), True, None, b"1s", [], 1j,
    "9" * 400, "9" * 5000, "9" * 400 + "s", "9" * 400 + ".5", "9" * 400 + ".5k", "9" * 400 + "/s",
    "9" * 308 + "k", "1e400s", "nan", "inf", "٣s", "1s\0", "x" * 100_000,
]  # fmt: skip


@pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)
def test_what_is_no_number_that_can_be_used_is_refused_in_a_few_words(parse: Any) -> None:
    """A window of 5,000 digits in an address was an internal error of a node. Mutants: digits without end; `float`."""
    for value in ODD:
        if value is None and parse is units.check_timeout:
            continue
        with pytest.raises(InvalidValue) as caught:
            parse(value)
        assert len(str(caught.value)) < 300
