"""Grants against a naive oracle, and identities that follow them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.errors import PolicyError
from headgate_coordinator.security.grants import REMEMBERED, Action, Grant, Identity

WORDS = st.sampled_from(["a", "b", "c"])
NAMES = st.lists(WORDS, min_size=1, max_size=4).map(".".join)
PATTERNS = st.tuples(
    st.lists(st.one_of(WORDS, st.just("*")), min_size=0, max_size=3), st.sampled_from([(), ("#",), (">",)])
).map(lambda parts: ".".join((*parts[0], *parts[1])) or "#")
GRANTS = st.lists(st.builds(Grant, st.frozensets(st.sampled_from(Action), min_size=1), PATTERNS), max_size=5)


def naive(pattern: str, name: str) -> bool:
    text = ".".join({"*": "[abc]"}.get(word, word) for word in pattern.split("."))
    text = re.escape(text).replace(re.escape("[abc]"), "[abc]")
    text = re.sub(r"^(\\#)$", r".+", text)
    text = re.sub(r"\\\.\\#$", r"(\\..+)?", text)
    text = re.sub(r"(^|\\\.)>$", r"\1.+", text)
    return re.fullmatch(text, name) is not None


@given(GRANTS, st.sampled_from(Action), NAMES)
def test_a_name_is_permitted_as_the_oracle_says(grants: list[Grant], action: Action, name: str) -> None:
    identity = Identity("ann", grants)
    expected = any(action in grant.actions and naive(grant.match, name) for grant in grants)
    assert identity.may(action, name) is expected
    assert identity.may(action, name) is expected, "remembered"
    assert (identity.why(action, name) is not None) is expected


@given(GRANTS, st.sampled_from(Action), PATTERNS, NAMES)
def test_a_pattern_is_permitted_only_with_all_that_it_matches(
    grants: list[Grant], action: Action, pattern: str, name: str
) -> None:
    identity = Identity("ann", grants)
    if identity.may(action, pattern) and naive(pattern, name):
        assert identity.may(action, name)


def test_no_action_implies_another() -> None:
    for action in Action:
        identity = Identity("ann", [Grant(frozenset([action]), "#")])
        assert [other for other in Action if identity.may(other, "orders")] == [action]


def test_a_grant_on_words_is_none_on_patterns_or_the_namespace() -> None:
    identity = Identity("ann", [Grant(frozenset([Action.CONSUME, Action.MANAGE]), "orders.*")])
    assert identity.may(Action.CONSUME, "orders.eu")
    assert identity.may(Action.CONSUME, "orders.*")
    assert not identity.may(Action.CONSUME, "orders.#")
    assert not identity.may(Action.CONSUME, "orders.>")
    assert not identity.may(Action.MANAGE, "#")
    assert not identity.may(Action.CONSUME, "orders.#.x"), "no pattern"


def test_it_acts_by_its_newest_grants_and_by_none_once_revoked() -> None:
    identity = Identity("ann", [Grant(frozenset([Action.PRODUCE]), "orders")], 3)
    assert identity.may(Action.PRODUCE, "orders")
    identity.follow([Grant(frozenset([Action.CONSUME]), "orders")], None)
    assert not identity.may(Action.PRODUCE, "orders")
    assert identity.may(Action.CONSUME, "orders")
    identity.revoke()
    assert not identity.may(Action.CONSUME, "orders")
    assert not identity.valid
    assert repr(identity) == "Identity('ann', not valid)"


def test_what_is_remembered_is_bounded() -> None:
    identity = Identity("ann", [Grant(frozenset([Action.PRODUCE]), "orders.#")])
    for number in range(2 * REMEMBERED + 10):
        assert identity.may(Action.PRODUCE, f"orders.{number}")
    assert len(identity._known) <= REMEMBERED


def test_a_grant_says_what_it_is_and_refuses_what_is_no_pattern() -> None:
    assert str(Grant(frozenset([Action.CONSUME, Action.PRODUCE]), "a.#")) == "produce,consume:a.#"
    with pytest.raises(PolicyError, match="empty word"):
        Grant(frozenset([Action.PRODUCE]), "a..b")
