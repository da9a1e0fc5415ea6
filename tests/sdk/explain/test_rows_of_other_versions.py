"""Limiters are read as they are meant, also what nodes of other versions say: more, or less."""

from dataclasses import replace

import pytest

from headgate.core.limiting.calls import Refusal
from headgate.explain.levels import counts_of, read_limits
from headgate.explain.limiter_view import LimiterView, Wait
from headgate.redis.stores.limiter_levels import LimiterLevels

NOW_MS = 1_800_000_000_000
MORE = " and more"
WAIT = f"W gold-1 2 web~1.7 {NOW_MS - 1500} 3 2500000 - slots all slots:1~2"


def levels(more: str) -> LimiterLevels:
    """Return what a node says, with so much after each row."""
    return LimiterLevels(
        limits=(f"slots at_once 8 0 0 8 0{more}",), of_key=(), keys=1, waiting=2, records={"gold-1": "slots:8"},
        line=(WAIT + more,), holds={"web~1.6": f"H 5000 0 {NOW_MS - 9000} gold-1 0 slots:8 0{more}"},
        own={"web~1.7": WAIT + more}, learning_ms=0, reason="", now_ms=NOW_MS, clock_ms=NOW_MS,
        head=f"- slots all slots:1{more}", admitted=9, refused=1, all_holds=3, by_band=(f"2 2 0 0{more}",),
        shadowed=(f"slots:all:4:2{more.replace(' ', ':')}",),
    )  # fmt: skip


def test_what_follows_the_fields_that_are_known_is_left_aside() -> None:
    """Mutant: a row has exactly so many fields."""
    plain, more = (LimiterView.of(levels(text), None, "") for text in ("", MORE))
    assert more == plain
    assert [(wait.place, wait.turn_in, wait.band) for wait in more.line] == [(3, 2.5, 2)]
    assert list(read_limits(levels(MORE).limits).values()) == list(read_limits(levels("").limits).values())
    assert list(counts_of(levels(MORE).shadowed)) == [("slots", "all", 4, 2)]


def test_what_is_paid_within_the_millisecond_of_the_clock_is_owed_no_more() -> None:
    """Mutant: the clock is at the beginning of its millisecond, and a key that took 1 of a million a second owes 51."""
    paid, owes = NOW_MS * 1000 + 51, NOW_MS * 1000 + 3000
    both = replace(levels(""), records={"paid": f"tokens={paid}", "owes": f"tokens={owes}"})
    view = LimiterView.of(both, None, "tokens rate 1000000.0 1000000")
    assert {use.key: use.taken for use in view.top if use.key in ("paid", "owes")} == {
        "paid": {},
        "owes": {"tokens": 2000},
    }


def test_a_node_that_does_not_estimate_says_no_place() -> None:
    words = WAIT.split(" ")
    wait = Wait.read(" ".join([*words[:5], *words[7:]]), NOW_MS)
    assert (wait.key, wait.waiting, wait.limit, wait.needs) == ("gold-1", 2, "slots", {"slots": 1})
    assert (wait.place, wait.turn_in) == (None, None)


@pytest.mark.parametrize(
    "answer",
    ["wait - slots all", "late 2500000 slots key", "hopeless 9000000 slots all", "shed 6 500 slots all",
     "never 8 slots all", "limit slots"],
)  # fmt: skip
def test_a_refusal_that_says_more_is_the_same_refusal(answer: str) -> None:
    assert Refusal.read(f"{answer}{MORE}".split(), 10.0) == Refusal.read(answer.split(), 10.0)
