"""Numbers as people write them: whatever they write is read, or refused as what it is."""

import inspect
import re
from typing import Any

import pytest

from headgate import InvalidValue, Settings, units
from headgate.core.settings_table import ROWS
from headgate.policy import BadDocument, loads

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


COUNTS = [name for name, row in ROWS.items() if row.form and row.form.written in ("Count", "LimitCount", "Kept")]


@pytest.mark.parametrize("name", [*COUNTS, "resume_at_messages", "max_keys"])
def test_what_is_counted_takes_no_bytes(name: str) -> None:
    """A limit of "64KiB" messages was one of 65,536. Mutants: the unit is not looked at; one setting is of sizes."""
    form = ROWS[name].form
    assert form is not None
    assert form.spell(" 4 ", name) == "4"
    for size in ("64KiB", "10mb", "4B ", "5 b"):
        with pytest.raises(InvalidValue, match=f"{name}: '{size}' is not a count; write a whole number"):
            form.spell(size, name)


def test_what_is_counted_has_its_place_in_the_error() -> None:
    with pytest.raises(InvalidValue, match=r"limit_messages: '64KiB' is not a count; .* '200k', or 'unlimited'"):
        Settings(limit_messages="64KiB").fields()  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="messages: '1KiB' is not a count"):
        Settings(shadow={"messages": "1KiB"}).fields()


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("[[destination]]\nmatch = 'a'\nlimit.messages = 9\nresume_at.messages", "destination[1].resume_at.messages"),
        ("[[destination]]\nmatch = 'a'\nshadow.messages", "destination[1].shadow.messages"),
        ("[[limiter]]\nmatch = 'a'\nlimit = [{ name = 'calls', at_once = 5 }]\nmax_keys", "limiter[1].max_keys"),
        ("[[user_limit]]\nname = 'a'\nusers = ['b']\nconnections", "user_limit[1].connections"),
        ("[[user_limit]]\nname = 'a'\nusers = ['b']\ndestinations", "user_limit[1].destinations"),
    ],
)
def test_a_policy_counts_in_no_bytes(table: str, key: str) -> None:
    loads(f"{table} = '5'", "x")
    with pytest.raises(BadDocument, match=f"{re.escape(key)}: '5KiB' is not a count"):
        loads(f"{table} = '5KiB'", "x")
