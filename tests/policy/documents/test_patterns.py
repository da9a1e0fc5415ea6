"""Address patterns against a naive reference: regular expressions, and every name of a small world."""

import itertools
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.addresses.pattern import Pattern
from headgate.errors import PolicyError

WORDS = ["a", "b", "c"]
NAMES = [".".join(words) for size in range(1, 5) for words in itertools.product(WORDS, repeat=size)]
patterns = st.builds(
    lambda words, tail: ".".join([*words, *tail]),
    st.lists(st.sampled_from(["a", "b", "*"]), max_size=3),
    st.sampled_from([[], ["#"], [">"]]),
).filter(bool)


def reference(text: str) -> re.Pattern[str]:
    """Return an expression for the name with a '.' in front of each word."""
    steps = {"*": r"\.[^.]*", "#": r"(\.[^.]*)*", ">": r"(\.[^.]*)+"}
    return re.compile("".join(steps.get(word, r"\." + re.escape(word)) for word in text.split(".")))


def matched(text: str) -> set[str]:
    return {name for name in NAMES if reference(text).fullmatch("." + name)}


@given(patterns)
def test_matches_as_the_reference_does(text: str) -> None:
    pattern = Pattern.parse(text)
    assert {name for name in NAMES if pattern.matches(name)} == matched(text)


@given(patterns, st.text(alphabet="ab.é ", max_size=9))
def test_any_name_is_words_between_dots(text: str, name: str) -> None:
    assert Pattern.parse(text).matches(name) == bool(reference(text).fullmatch("." + name))


@given(patterns, patterns)
def test_covers_and_overlaps_as_sets_of_names_do(one: str, other: str) -> None:
    mine, theirs = matched(one), matched(other)
    a, b = Pattern.parse(one), Pattern.parse(other)
    assert a.covers(b) == (mine >= theirs)
    assert a.overlaps(b) == b.overlaps(a) == bool(mine & theirs)


@given(patterns, patterns)
def test_a_pattern_inside_another_is_more_specific(one: str, other: str) -> None:
    a, b = Pattern.parse(one), Pattern.parse(other)
    if a.covers(b) and not b.covers(a):
        assert b.order > a.order


@given(st.lists(patterns, min_size=2, max_size=6), st.sampled_from(NAMES))
def test_two_that_match_a_name_with_equal_order_are_the_same(texts: list[str], name: str) -> None:
    found = [pattern for pattern in map(Pattern.parse, texts) if pattern.matches(name)]
    for a, b in itertools.combinations(found, 2):
        assert (a.order == b.order) == (a.text == b.text)


def test_the_order_of_all_patterns_that_match_one_name() -> None:
    texts = ["#", ">", "*.#", "*.>", "*.*", "*.b", "a.#", "a.>", "a.*.#", "a.*", "a.b.#", "a.b"]
    assert sorted({*texts}, key=lambda text: Pattern.parse(text).order) == texts
    assert all(Pattern.parse(text).matches("a.b") for text in texts)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not empty"),
        ("a..b", "empty word"),
        (".a", "empty word"),
        ("a.", "empty word"),
        ("a.#.b", "only be the last word"),
        (">.b", "only be the last word"),
        ("a.b*", "a wildcard is a whole word"),
        ("a.**", "a wildcard is a whole word"),
        ("a.#b", "a wildcard is a whole word"),
        (7, "is text"),
    ],
)
def test_patterns_that_mean_nothing_are_refused(text: str, words: str) -> None:
    with pytest.raises(PolicyError, match=words):
        Pattern.parse(text)
