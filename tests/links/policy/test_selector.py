"""Selectors say what JMS says, agree with a plain evaluation of random conditions, and refuse all else in one way."""

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headgate.core.amqp.types import Symbol, Timestamp
from headgate.core.selector.parser import MAX_DEPTH, Selector
from headgate.core.selector.tokens import MAX_TEXT
from headgate.errors import InvalidValue
from tests.links.expressions import CONDITIONS, HEADERS, Tree, printed, truth
from tests.support.extent import each, examples


def matches(text: str, **headers: Any) -> bool:
    return Selector.parse(text).matches(headers)


JMS = [
    ("JMSType = 'car' AND color = 'blue' AND weight > 2500", {"JMSType": "car", "color": "blue", "weight": 2501}, True),
    (
        "JMSType = 'car' AND color = 'blue' AND weight > 2500",
        {"JMSType": "car", "color": "blue", "weight": 2500},
        False,
    ),
    ("age BETWEEN 15 AND 19", {"age": 15}, True),
    ("age BETWEEN 15 AND 19", {"age": 19.0}, True),
    ("age BETWEEN 15 AND 19", {"age": 20}, False),
    ("age NOT BETWEEN 15 AND 19", {"age": 14}, True),
    ("age NOT BETWEEN 15 AND 19", {"age": 15}, False),
    ("Country IN ('UK', 'US', 'France')", {"Country": "UK"}, True),
    ("Country IN ('UK', 'US', 'France')", {"Country": "Peru"}, False),
    ("Country NOT IN ('UK', 'US', 'France')", {"Country": "Peru"}, True),
    ("Country NOT IN ('UK', 'US', 'France')", {"Country": "UK"}, False),
    ("Country NOT IN ('UK')", {}, False),
    ("phone LIKE '12%3'", {"phone": "123"}, True),
    ("phone LIKE '12%3'", {"phone": "12993"}, True),
    ("phone LIKE '12%3'", {"phone": "1234"}, False),
    ("word LIKE 'l_se'", {"word": "lose"}, True),
    ("word LIKE 'l_se'", {"word": "loose"}, False),
    (r"underscored LIKE '\_%' ESCAPE '\'", {"underscored": "_foo"}, True),
    (r"underscored LIKE '\_%' ESCAPE '\'", {"underscored": "bar"}, False),
    ("phone NOT LIKE '12%3'", {"phone": "1234"}, True),
    ("phone NOT LIKE '12%3'", {"phone": "123"}, False),
    ("phone NOT LIKE '12%3'", {}, False),
    ("prop_name IS NULL", {}, True),
    ("prop_name IS NULL", {"prop_name": None}, True),
    ("prop_name IS NULL", {"prop_name": b""}, False),
    ("prop_name IS NOT NULL", {"prop_name": False}, True),
    ("prop_name IS NOT NULL", {}, False),
    ("name = 'literal''s'", {"name": "literal's"}, True),
    ("n = 57", {"n": 57}, True),
    ("n = -957 or n = +62", {"n": -957}, True),
    ("n = 0x1F or n = 31L", {"n": 31}, True),
    ("n = 7E3", {"n": 7000}, True),
    ("n = -57.9E2", {"n": -5790.0}, True),
    ("n = 7. or n = -95.7 or n = .5d", {"n": 0.5}, True),
    ("traced = TRUE and not (traced = false)", {"traced": True}, True),
    ("traced", {"traced": True}, True),
    ("traced", {"traced": "true"}, False),
    ("not traced", {"traced": "true"}, False),
    ("2 + 3 * 4 - 6 / 4 = 13", {}, True),
    ("(2 + 3) * 4 = 20", {}, True),
    ("-n / 2 = -3 and 7 / 2.0 = 3.5", {"n": 7}, True),
    ("n = n", {}, False),
    ("JMSDeliveryMode = 'PERSISTENT'", {"JMSDeliveryMode": "PERSISTENT"}, True),
]


@each(("text", "headers", "verdict"), JMS)
def test_it_says_what_jms_says(text: str, headers: dict[str, Any], verdict: bool) -> None:
    assert Selector.parse(text).matches(headers) is verdict


def test_what_is_unknown_does_not_match_and_neither_does_its_opposite() -> None:
    """Mutant: a missing header compares as false, so that NOT makes it true."""
    for text in ("a = 1", "a <> 1", "a > 1", "a BETWEEN 1 AND 2", "a IN ('x')", "a LIKE 'x'", "a + 1 = 2", "a"):
        assert not matches(text)
        assert not matches(f"NOT ({text})")
        assert matches(f"({text}) OR TRUE"), "unknown or true is true"
        assert not matches(f"({text}) AND TRUE")
        assert matches(f"NOT (({text}) AND FALSE)"), "unknown and false is false"


def test_values_of_different_types_are_not_equal_and_not_unequal_either() -> None:
    """As JMS says: a comparison of types that are not alike is false. Mutant: it is unknown."""
    for header in ("1", True, b"1"):
        for text in ("a = 1", "a <> 1", "a < 1", "a >= 1"):
            assert not matches(text, a=header)
            assert matches(f"NOT ({text})", a=header)
    assert not matches("a = b", a=b"x", b=b"x")
    assert not matches("a < b", a="x", b="y"), "texts have no order"
    assert matches("NOT (a = TRUE)", a=1), "a truth value is no number"


def test_only_numbers_are_computed_with() -> None:
    for text in ("a + 1 = 2", "1 / a = 1", "-a = 1", "+a = 1"):
        for header in ("1", True, b"1", None):
            assert not matches(text, a=header)
            assert not matches(f"NOT {text}", a=header)


def test_a_number_beyond_64_bits_and_a_division_by_zero_are_unknown() -> None:
    for text in ("a * a = a * a", "1 / b = 1", "1.0 / b = 1", "1 / (b * 1.0) = 1"):
        assert not matches(text, a=2**63, b=0)
        assert not matches(f"NOT ({text})", a=2**63, b=0)


def test_what_clients_of_amqp_send_is_text_and_numbers_too() -> None:
    assert matches("a = 'x' AND a LIKE 'x' AND a IN ('x')", a=Symbol("x"))
    assert matches("a = 1.5 AND a * 2 = 3", a=Decimal("1.5"))
    assert not matches("a = a", a=Decimal("sNaN"))
    assert matches("a = -62135596800001 AND a + 1 < 0", a=Timestamp(-62135596800001))
    assert matches("a = 1700000000001", a=dt.datetime.fromtimestamp(1700000000.001, dt.UTC))
    assert not matches("a = 0", a=dt.datetime(1970, 1, 1)), "of a moment without a time zone nobody knows when it is"  # noqa: DTZ001


def test_names_are_case_sensitive_and_words_are_not() -> None:
    assert matches("a Between 1 aNd 2 oR a iS nUlL", a=2)
    assert not matches("A = 1", a=1)
    assert matches("größe = 1 AND $x = 2 AND _y = 3", größe=1, **{"$x": 2, "_y": 3})


def test_any_name_may_stand_in_double_quotes() -> None:
    selector = Selector.parse('"amqp.subject" = \'x\' AND "x-tenant" = 1 AND "say ""hi""" = 2 AND "not" IS NULL')
    assert selector.names == {"amqp.subject", "x-tenant", 'say "hi"', "not"}
    assert selector.matches({"amqp.subject": "x", "x-tenant": 1, 'say "hi"': 2})


WRONG = [
    ("", 1, "expected a header, a text, a number, TRUE, FALSE or ("),
    ("  ", 3, "found the end"),
    ("a = ", 5, "found the end"),
    ("a = 'x", 5, "a text with a ' at its end"),
    ('"a = 1', 1, 'a name with a " at its end'),
    ('"" = 1', 1, 'a name with a " at its end'),
    ("a b", 3, "an operator or the end"),
    ("a = 1 = TRUE", 7, "an operator or the end"),
    ("1", 1, "a condition"),
    ("a = 1 AND 'x'", 11, "a condition"),
    ("NOT 1 + 2", 5, "a condition"),
    ("a > 'x'", 5, "a header or a number"),
    ("TRUE < 1", 1, "a header or a number"),
    ("(a = 1) + 2 = 3", 1, "a header or a number"),
    ("a + 'x' = 1", 5, "a header or a number"),
    ("a BETWEEN 1 AND 'x'", 17, "a header or a number"),
    ("a BETWEEN 1", 12, "AND"),
    ("a NOT = 1", 7, "BETWEEN, IN or LIKE"),
    ("a IN ('x' 'y')", 11, ")"),
    ("a IN ()", 7, "a text in '...'"),
    ("a IN (1)", 7, "a text in '...'"),
    ("1 IN ('x')", 1, "a header alone"),
    ("(a) IS NULL", 1, "a header alone"),
    ("a + 1 LIKE 'x'", 1, "a header alone"),
    ("a IS 1", 6, "NULL"),
    ("a LIKE b", 8, "a text in '...'"),
    ("a LIKE 'x' ESCAPE ''", 19, "a text of one character"),
    ("a LIKE 'x!y' ESCAPE '!'", 8, "a pattern with %, _ or ! after each !"),
    ("a LIKE 'x!' ESCAPE '!'", 8, "a pattern with %, _ or ! after each !"),
    ("a != 1", 3, "<>"),
    ("a = NULL", 5, "expected a header"),
    ("a = 007", 5, "without zeros"),
    ("a = 1x", 5, "a number and then a space"),
    ("a = 1.2.3", 5, "a number and then a space"),
    ("a = 18446744073709551616", 5, "a whole number up to 18446744073709551615"),
    ("a = 1e400", 5, "a number that a double can hold"),
    ("a = ?", 5, "a name, a text, a number or an operator"),
    ("a = 1 /* comment */", 8, "expected a header"),
    ("((a)", 5, ")"),
]


@each(("text", "place", "remedy"), WRONG)
def test_what_is_wrong_is_told_with_its_place_and_what_belongs_there(text: str, place: int, remedy: str) -> None:
    with pytest.raises(InvalidValue, match=rf"character {place}: .*{re.escape(remedy)}"):
        Selector.parse(text)


@given(CONDITIONS, HEADERS)
@settings(max_examples=examples(400), deadline=None)
def test_random_conditions_are_what_they_are_when_evaluated_plainly(tree: Tree, headers: dict[str, Any]) -> None:
    """Mutants: NOT BETWEEN is the opposite of BETWEEN; a comparison of types that are not alike is unknown."""
    selector = Selector.parse(printed(tree))
    assert selector.matches(headers) == (truth(tree, headers) == 1)
    assert Selector.parse(f"NOT ({printed(tree)})").matches(headers) == (truth(tree, headers) == 0)


WORDS = st.sampled_from([
    "a", '"b.c"', "'x'", "''", "1", "2.5", "0x1F", "1e9", "TRUE", "FALSE", "NULL", "NOT", "AND", "OR", "BETWEEN", "IN",
    "LIKE", "IS", "ESCAPE", "(", ")", ",", "+", "-", "*", "/", "=", "<>", "<", "<=", ">", ">=",
])  # fmt: skip


@given(st.text(max_size=40) | st.lists(WORDS, max_size=20).map(" ".join) | st.lists(WORDS, max_size=20).map("".join))
@example("\ud800")
@example("a = 1\0")
@settings(max_examples=examples(600), deadline=None)
def test_any_text_is_a_selector_or_is_refused(text: str) -> None:
    try:
        selector = Selector.parse(text)
    except InvalidValue:
        return
    for value in (None, 1, -2.5, "x", True, b"x", 2**64, float("nan"), [1]):
        assert selector.matches({"a": value, "b.c": value}) in (True, False)


def test_a_selector_has_an_end() -> None:
    assert matches("a = 1" + " " * (MAX_TEXT - 5), a=1)
    with pytest.raises(InvalidValue, match="at most 4096"):
        Selector.parse("a = 1" + " " * (MAX_TEXT - 4))
    inside = "(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH
    assert matches(inside, a=1)
    with pytest.raises(InvalidValue, match=f"character {MAX_DEPTH + 1}: expected no more than {MAX_DEPTH} levels of"):
        Selector.parse(f"({inside})")


@pytest.mark.parametrize(
    "text",
    [
        "a" + "-1" * 2000 + "<0",
        "a" + "*1" * 2000 + "=1",
        "-" * 4000 + "a=1",
        "NOT " * 1000 + "a=1",
        "a=1" + " OR a=1" * 500,
        "a=1" + " AND a=1" * 500,
        "a=1" + " AND (a=1)" * 400,
        "a IN ('x'" + ",'x'" * 1000 + ") OR a=1",
        "NOT (TRUE AND " * MAX_DEPTH + "-1*-1-0=a" + ")" * MAX_DEPTH,
    ],
)
def test_however_much_stands_in_it_no_stack_is_too_small(text: str) -> None:
    """Mutant: parentheses count although they were closed."""
    assert matches(text, a=1)


def test_a_pattern_cannot_be_made_that_takes_for_ever() -> None:
    """Mutant: groups that give back what they took; this text then has more ways to be tried than atoms."""
    assert not matches(f"a LIKE '{'%a' * 500}%b'", a="a" * 1000)
    assert matches(f"a LIKE '{'%a' * 500}%'", a="a" * 1000)


def test_a_pattern_is_about_the_whole_text_and_its_lines() -> None:
    assert matches("a LIKE '%b%'", a="a\nb\n")
    assert not matches("a LIKE 'a'", a="a\n")
    assert matches("a LIKE '(._%'", a="(.x")
    assert not matches("a LIKE 'ab%ba'", a="aba"), "the ends do not overlap"
