"""What a link has in hand for several slices: each lane in order, the source lets go of what is safe up to a gap."""

import random
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.core.limits.spread import Spread
from headgate.core.links.calls import Committed, Entry
from headgate.message import encode
from headgate_coordinator.links.lanes.splitter import Splitter
from headgate_coordinator.links.rules import Forwarding

SPREAD = Spread(1, 3, "header:customer")


def entries(values: Iterable[int], first: int = 1) -> list[Entry]:
    return [Entry(first + at, encode(b"x", {"customer": value})) for at, value in enumerate(values)]


def lane_of(value: int, spread: Spread = SPREAD) -> int:
    return spread.slice_of_stored(encode(b"x", {"customer": value}), "-")


def splitter(how: Forwarding | None = None, *, found: tuple[Committed, ...] = (Committed("OK"),)) -> Splitter:
    made = Splitter(SPREAD, "-", how or Forwarding("a", "b"))
    made.begin(1, 0, found)
    return made


ONE, TWO = (next(value for value in range(99) if lane_of(value) == lane) for lane in (0, 1))


def test_a_lane_that_waits_holds_up_what_leaves_the_source_and_no_other_lane() -> None:
    one = splitter()
    assert one.add(entries([ONE, TWO, ONE, TWO])) == {0, 1}
    assert [entry.seq for entry in one.of_lane(1, 0, 9, 999)] == [2, 4]
    assert one.heard(1, Committed("OK", beyond=(2, 4)), ()) == 4
    assert not one.make_safe(1, 4)
    assert one.done == 0
    assert one.heard(0, Committed("OK", beyond=(1,)), ()) == 2, "up to before what is not there"
    assert one.make_safe(0, 2)
    assert one.done == 2
    assert one.make_safe(0, 3)
    assert one.done == 4


def test_what_is_at_any_slice_already_is_given_to_no_lane() -> None:
    one = splitter(found=(Committed("OK", 1, beyond=(3,)), Committed("OK", 0, beyond=(1, 5))))
    assert (one.done, one.after) == (1, 1)
    one.add(entries([ONE, ONE, ONE, TWO, TWO]))
    assert [[entry.seq for entry in one.of_lane(lane, 0, 9, 999)] for lane in (0, 1)] == [[2], [4]]
    one.make_safe(1, 4)
    one.make_safe(0, 2)
    assert one.done == 5


def test_a_slice_that_lost_a_message_gets_it_again() -> None:
    one = splitter()
    one.add(entries([ONE, ONE]))
    assert one.heard(0, Committed("OK", beyond=(1, 2)), ()) == 2
    assert one.heard(0, Committed("OK"), ()) == 0


def test_what_is_skipped_stays_so() -> None:
    one = splitter()
    one.add(entries([ONE, ONE, ONE]))
    assert one.heard(0, Committed("OK", beyond=(3,)), {1}) == 1
    assert one.heard(0, Committed("OK", beyond=(3, 2)), ()) == 3


def test_no_more_is_read_than_there_is_credit_for_and_one_to_ask_for_more() -> None:
    one = splitter(Forwarding("a", "b", window=100, messages=10))
    assert one.room([(0, 0, 0), (1, 0, 0), (2, 0, 0)]) == (3, 3), "one for each lane that has none to ask with"
    one.add([Entry(1, encode(b"", {"customer": ONE}))])
    assert one.room([(0, 50, 5)])[0] == 4
    assert one.room([(0, 0, 0)]) == (0, 0)
    assert one.room([(0, 0, 0), (1, 0, 0)]) == (1, 1), "the next may be another's"
    one.add(Entry(number, b"\x91" + b"\xa1x") for number in range(2, 11))
    assert one.room([(0, 999, 999), (1, 999, 999), (2, 999, 999)]) == (0, 0), "the window is full"


@given(st.lists(st.integers(0, 8), max_size=40), st.integers(0, 2**32))
def test_whatever_comes_first_all_leaves_once_and_each_lane_is_in_order(values: list[int], seed: int) -> None:
    """Workers end at any moment, slices take some of what they are given, and values get other slices."""
    dice = random.Random(seed)
    sent = entries(values)
    slices: dict[int, list[int]] = {lane: [] for lane in range(5)}
    released = mark = 0
    for round_ in range(40):
        is_last = round_ == 39
        spread = SPREAD if round_ < 20 else Spread(2, 5, "header:customer")
        one = Splitter(spread, "-", Forwarding("a", "b"))
        one.begin(1, released, [Committed("OK", mark, beyond=tuple(has)) for has in slices.values()])
        one.add(entry for entry in sent if entry.seq > one.after)
        for _ in range(200 if is_last else dice.randrange(6)):
            lane = dice.randrange(spread.slices)
            waiting = one.of_lane(lane, one.lanes[lane].safe, 99, 1 << 20)
            has = slices[lane]
            fresh = [entry.seq for entry in waiting if entry.seq not in has]
            has += fresh[: 99 if is_last else dice.randrange(4)]
            mark = one.done
            one.make_safe(lane, one.heard(lane, Committed("OK", mark, beyond=tuple(has)), ()))
        released = one.done
    stored = [number for has in slices.values() for number in has]
    assert sorted(stored) == [entry.seq for entry in sent]
    assert released == len(sent)


@pytest.mark.parametrize("size", [10, 1000])
def test_a_message_larger_than_the_window_goes_alone(size: int) -> None:
    one = splitter(Forwarding("a", "b", window=20, messages=10))
    assert min(one.room([(0, 0, 0)])) > 0
    one.add([Entry(1, b"\x91" + b"x" * size)])
    lane = next(lane for lane in one.lanes if one.of_lane(lane, 0, 1, 1))
    assert [entry.seq for entry in one.of_lane(lane, 0, 9, 1)] == [1]
