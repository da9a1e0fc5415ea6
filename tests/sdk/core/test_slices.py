"""Slices in hand: taken where many come and nobody waits, handed out without a call, and given back to the unit."""

import contextlib

import pytest

from headgate.core.limiting.calls import Decide, State
from headgate.core.limiting.machine import Limiter
from headgate.core.limiting.slices import BACK_OFF, IDLE, LIFE, MANY, LimiterSlices, Slice
from headgate.core.limits import Limit
from tests.sdk.core.limiters import FakeScript

LIMITS = {"slots": Limit("slots", "at_once", 400), "tokens": Limit("tokens", "rate", 100_000, 100_000.0)}
ONE = {"slots": 1, "tokens": 10}


class Place:
    """A session with slices, at a limiter that answers at once."""

    def __init__(self, slots: int = 400) -> None:
        self.now = 100.0
        self.script = FakeScript(slots, now=self.now)
        self.machine = Limiter("s")
        self.hand = LimiterSlices(self.machine, 4000, lambda: self.now, contextlib.nullcontext())
        self.hand.adopt(LIMITS, {}, 0.1)
        self.calls = 0

    def run(self) -> None:
        while (call := self.machine.call(self.now)) is not None:
            assert isinstance(call, Decide)
            self.calls += 1
            self.machine.hear(call, self.script.call("s", call), self.now)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        self.script.now = self.now
        if self.now >= self.hand.look_at:
            self.hand.look(self.now)
        self.run()

    def come(self, times: int = MANY) -> Slice | None:
        """Have admissions come that find nothing in hand; returns the slice that is there then."""
        for _ in range(times):
            self.hand.missed(None, ONE, self.now)
        self.run()
        return self.hand.open.get(None)


def test_one_that_comes_now_and_then_takes_nothing_ahead() -> None:
    place = Place()
    for _ in range(5 * MANY):
        assert place.come(1) is None
        place.advance(IDLE)
    assert place.calls == 0


def test_many_at_a_time_take_a_slice_and_are_admitted_from_it_without_a_call() -> None:
    place = Place()
    slice_ = place.come()
    assert slice_ is not None
    assert place.calls == 1
    taken = 0
    while slice_.take(ONE, place.now):
        taken += 1
    assert taken == slice_.total["slots"] == slice_.total["tokens"] / 10 == place.script.used > MANY
    place.run()
    assert place.calls == 1


def test_what_is_held_at_once_is_handed_out_again_and_what_is_used_is_not() -> None:
    place = Place()
    slice_ = place.come()
    assert slice_ is not None
    for _ in range(1000):
        if not slice_.take(ONE, place.now):
            break
        slice_.put_back(ONE)
    assert slice_.left == {"slots": slice_.total["slots"], "tokens": 0}


def test_all_or_nothing_is_taken_and_only_whole_numbers() -> None:
    place = Place()
    slice_ = place.come()
    assert slice_ is not None
    before = dict(slice_.left)
    for amounts in ({"slots": 1, "tokens": 10**6}, {"slots": -1}, {"slots": 1.0}, {"slots": True}, {"other": 0}):
        assert not slice_.take(amounts, place.now)  # type: ignore[arg-type]
    assert slice_.left == before


def test_a_slice_that_nobody_uses_goes_back_whole() -> None:
    place = Place()
    slice_ = place.come()
    assert slice_ is not None
    assert slice_.take(ONE, place.now)
    slice_.put_back(ONE)
    place.advance(IDLE)
    assert place.hand.open  # it was used since
    place.advance(IDLE)
    assert not place.hand.open
    assert place.script.records == {}
    assert place.script.tokens == 10


def test_when_others_wait_all_goes_back_but_what_is_in_use() -> None:
    place = Place()
    slice_ = place.come()
    assert slice_ is not None
    assert slice_.take(ONE, place.now)
    assert slice_.take(ONE, place.now)
    place.hand.recall()
    assert not slice_.take(ONE, place.now)
    place.run()
    assert [record.amounts["slots"] for record in place.script.records.values()] == [2]
    slice_.settle(ONE, {"tokens": 3})
    assert slice_.put_back({**ONE, "tokens": 3})
    place.hand.changed(slice_)
    place.run()
    assert [record.amounts["slots"] for record in place.script.records.values()] == [1]
    assert slice_.put_back(ONE)
    place.hand.changed(slice_)
    place.run()
    assert place.script.records == {}
    assert place.script.tokens == 13


def test_nothing_is_taken_ahead_for_a_while_after_others_waited() -> None:
    place = Place()
    place.come()
    place.hand.recall()
    place.run()
    calls = place.calls
    assert place.come() is None
    assert place.calls == calls
    place.advance(BACK_OFF)
    assert place.come() is not None


def test_one_that_uses_more_than_it_reserved_owes_it() -> None:
    place = Place()
    slice_ = place.come()
    assert slice_ is not None
    assert slice_.take(ONE, place.now)
    slice_.settle(ONE, {"tokens": 10_000})
    assert not slice_.take(ONE, place.now)
    slice_.put_back(ONE)
    place.advance(LIFE)
    assert place.script.records == {}
    assert place.script.tokens == 10_000


def test_a_slice_that_is_used_is_followed_by_one_that_fits_before_it_ends() -> None:
    place = Place()
    place.come()
    for _ in range(20):
        for _ in range(50):
            slice_ = place.hand.open.get(None)
            if slice_ is not None and slice_.take(ONE, place.now):
                slice_.put_back(ONE)
            else:
                place.hand.missed(None, ONE, place.now)
                place.run()
        place.advance(IDLE / 2)
    assert place.hand.open
    assert place.calls < 40
    for _ in range(3):
        place.advance(IDLE)
    assert place.script.records == {}


def test_no_more_than_a_share_of_any_limit_is_taken_ahead() -> None:
    place = Place(slots=40)
    place.hand.adopt({**LIMITS, "slots": Limit("slots", "at_once", 40)}, {}, 0.01)
    for _ in range(10):
        slice_ = place.come()
        assert slice_ is not None
        assert slice_.total["slots"] <= 10
        assert slice_.total["tokens"] <= 1000
        while slice_.take(ONE, place.now):
            slice_.put_back(ONE)


def test_a_limit_without_room_for_two_ahead_takes_nothing_ahead() -> None:
    place = Place()
    place.hand.adopt({"tokens": Limit("tokens", "rate", 500, 8.3)}, {}, 0.1)
    for _ in range(5 * MANY):
        place.hand.missed(None, {"tokens": 1}, place.now)
    place.run()
    assert place.calls == 0


def test_one_who_does_not_wait_gets_one_ahead_even_so_and_learns_of_a_refusal() -> None:
    place = Place(slots=2)
    place.hand.adopt({"slots": Limit("slots", "at_once", 2)}, {}, 0.1)
    assert place.hand.missed(None, {"slots": 1}, place.now, hasty=True) is None
    place.run()
    slice_ = place.hand.open[None]
    assert slice_.total == {"slots": 1}
    assert slice_.take({"slots": 1}, place.now)
    place.script.slots = 1
    for _ in range(5):
        place.hand.missed(None, {"slots": 1}, place.now, hasty=True)
        place.run()
    refusal = place.hand.missed(None, {"slots": 1}, place.now, hasty=True)
    assert refusal is not None
    assert (refusal.why, refusal.limit, refusal.rule) == ("late", "slots", "all")
    assert place.hand.missed(None, {"slots": 0}, place.now, hasty=True) is None


def test_keys_have_slices_of_their_own() -> None:
    place = Place()
    for key in ("a", "b"):
        for _ in range(MANY):
            place.hand.missed(key, ONE, place.now)
    place.run()
    assert sorted(record.key for record in place.script.records.values()) == ["a", "b"]
    assert set(place.hand.open) == {"a", "b"}


def test_what_was_handed_out_of_a_slice_that_was_lost_is_lost() -> None:
    place = Place()
    slice_ = place.come()
    assert slice_ is not None
    assert slice_.take(ONE, place.now)
    assert slice_.reservation is not None
    place.advance(20.0)
    assert slice_.gone
    assert slice_.reservation.state is State.OVER
    assert not place.hand.open


@pytest.mark.parametrize("lost_at", range(8))
def test_nothing_leaks_whenever_others_begin_to_wait(lost_at: int) -> None:
    place = Place()
    out = 0
    for step in range(12):
        if step == lost_at:
            place.hand.recall()
        slice_ = place.hand.open.get(None)
        if slice_ is None or not slice_.take(ONE, place.now):
            place.come(4)
        else:
            out += 1
            if slice_.put_back(ONE):
                place.hand.changed(slice_)
        place.advance(IDLE / 3)
    for _ in range(5):
        place.advance(IDLE)
    assert place.script.records == {}
    assert place.script.tokens == 10 * out
