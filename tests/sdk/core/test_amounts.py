"""Amounts and keys of admissions: what is taken, what is refused, and what the refusal says."""

import math
from urllib.parse import unquote

import pytest

from headgate.core.limiting.amounts import (
    MAX_AMOUNT,
    MOST_ALIKE,
    AmountChecker,
    amounts_text,
    check_amounts,
    encode_key,
)
from headgate.errors import InvalidName, InvalidValue

KNOWN = ("requests", "tokens", "in_flight")


@pytest.mark.parametrize("value", [0, 1, MAX_AMOUNT, "64KiB", "10MB"])
def test_whole_numbers_and_sizes_are_amounts(value: int | str) -> None:
    assert check_amounts({"tokens": value}, KNOWN)["tokens"] in (0, 1, MAX_AMOUNT, 65536, 10**7)


@pytest.mark.parametrize("value", [-1, MAX_AMOUNT + 1, 1.5, math.nan, math.inf, True, None, "x", "-1", [1], "1.5"])
def test_nothing_else_is(value: object) -> None:
    with pytest.raises(InvalidValue, match="tokens") as caught:
        check_amounts({"tokens": value}, KNOWN)  # type: ignore[dict-item]
    assert caught.value.setting == "tokens"
    assert len(str(caught.value)) < 250


def test_an_unknown_name_is_refused_with_one_that_is_near() -> None:
    with pytest.raises(InvalidValue, match=r"did you mean 'tokens'.*requests, tokens, in_flight"):
        check_amounts({"tokns": 1}, KNOWN)


def test_a_name_that_no_limit_can_have_is_refused_before_the_names_are_known() -> None:
    for name in ("a-b", "a b", "", "x" * 65, "ü", "a=1"):
        with pytest.raises(InvalidValue):
            check_amounts({name: 1})


def test_no_amount_and_too_many_are_refused() -> None:
    with pytest.raises(InvalidValue, match="requests=1"):
        check_amounts({}, KNOWN)
    with pytest.raises(InvalidValue, match="at most 16"):
        check_amounts({f"n{i}": 1 for i in range(17)})
    with pytest.raises(InvalidValue, match="800"):
        check_amounts({"x" * 60 + str(i): MAX_AMOUNT for i in range(12)})


def test_amounts_are_written_as_the_script_takes_them() -> None:
    assert amounts_text({"requests": 1, "tokens": 4000}) == "requests=1,tokens=4000"
    assert amounts_text({}) == "-"


@pytest.mark.parametrize("key", ["tenant-7", "*", "a b", "ü@example.com", "{}[]#>\\", "x" * 255, "\n", "a=b;c"])
def test_a_key_is_any_text_and_comes_back(key: str) -> None:
    encoded = encode_key(key)
    assert unquote(encoded) == key
    assert encoded.isascii()
    assert not set(encoded) & set("*;= {}\n")
    assert len(encoded) <= 800


def test_no_key_has_a_sign_that_no_key_can_have() -> None:
    assert encode_key(None) == "*"
    assert encode_key("*") != "*"


@pytest.mark.parametrize("key", ["", "ü" * 128, "\ud800", 7, b"x"])
def test_what_is_no_key_is_refused(key: object) -> None:
    with pytest.raises(InvalidName, match="key"):
        encode_key(key)  # type: ignore[arg-type]


def test_amounts_that_are_asked_for_often_are_checked_once_and_no_others_for_them() -> None:
    reader = AmountChecker(KNOWN)
    first = reader.read({"tokens": 1, "requests": 0})
    assert first == ({"tokens": 1, "requests": 0}, "tokens=1")
    assert reader.read({"tokens": 1, "requests": 0}) is first
    assert reader.read({"tokens": "1", "requests": 0}) == first
    assert reader.read({"requests": 0, "tokens": 2}).text == "tokens=2"
    for other in (True, 1.0):  # equal to 1
        with pytest.raises(InvalidValue, match="tokens"):
            reader.read({"tokens": other, "requests": 0})  # type: ignore[dict-item]
    with pytest.raises(InvalidValue, match="all are 0"):
        reader.read({"tokens": 0})
    with pytest.raises(InvalidValue, match="no such limit"):
        reader.read({"token": 1})


def test_of_amounts_that_are_never_the_same_only_some_are_remembered() -> None:
    reader = AmountChecker(KNOWN)
    for tokens in range(1, 3 * MOST_ALIKE):
        reader.read({"tokens": tokens})
    assert len(reader._asked) <= MOST_ALIKE
