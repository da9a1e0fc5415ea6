"""The machine of limiters: whatever happens to a call, no limit is exceeded, nobody waits for ever, nothing leaks."""

import pytest

from headgate.core.limiting.calls import Create, Decide, Decision, Refusal, State
from headgate.core.limiting.machine import MOST, STEP, Limiter
from tests.sdk.core.limiters import Asker, World


def calm(slots: int = 1, sessions: int = 2) -> World:
    return World(0, slots=slots, sessions=sessions, faults=0.0)


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_to_calls_no_more_is_held_than_may_be_and_nobody_waits_for_ever(seed: int) -> None:
    world = World(seed, faults=0.6)
    world.run(300)
    for asker in world.askers:
        world.end(asker)
    world.settle_down()
    assert world.script.records == {}
    assert all(len(machine) == 0 for machine in world.machines.values())


@pytest.mark.parametrize("seed", range(40))
def test_the_same_where_state_is_lost_meanwhile(seed: int) -> None:
    world = World(seed, faults=0.4)
    world.run(300, losses=0.02)
    for asker in world.askers:
        world.end(asker)
    world.settle_down()
    assert world.script.records == {}


def test_an_admission_that_finds_room_takes_one_call() -> None:
    world = calm()
    asker = world.ask("s0", 5)
    assert world.step("s0")
    assert asker.outcome == "held"
    assert not world.step("s0")


def test_many_go_in_one_call_and_no_more_than_a_call_may_have() -> None:
    world = calm(slots=1000)
    askers = [world.ask("s0", 5) for _ in range(MOST + 1)]
    world.step("s0")
    assert [asker.outcome for asker in askers] == ["held"] * MOST + [""]
    world.step("s0")
    assert askers[-1].outcome == "held"


def test_those_who_ask_for_the_first_time_are_not_kept_by_many_who_ask_again() -> None:
    """Mutant: whoever asks again goes first."""
    world = calm(sessions=1)
    for _ in range(3 * MOST):
        world.ask("s0", 60)
    while world.step("s0"):
        pass
    world.advance(2)  # all in line are to ask again
    new = world.ask("s0", 60)
    world.step("s0")
    assert new.one
    assert new.one.state is State.IN_LINE


def test_a_release_lets_the_next_in_by_a_hint() -> None:
    world = calm()
    first, second = world.ask("s0", 5), world.ask("s1", 5)
    world.step("s0")
    world.step("s1")
    assert (first.outcome, second.outcome) == ("held", "")
    world.end(first)
    world.step("s0")
    assert second.outcome == "held"


def test_a_lost_hint_costs_a_poll() -> None:
    world = calm()
    first, second = world.ask("s0", 5), world.ask("s1", 5)
    world.step("s0")
    world.step("s1")
    world.end(first)
    call = world.machines["s0"].call(world.now)
    assert isinstance(call, Decide)
    world.machines["s0"].hear(call, world.script.call("s0", call), world.now)
    world.script.hints.clear()
    assert second.outcome == ""
    assert world.machines["s1"].wake_at(world.now) == world.now + 1.0
    world.advance(1.0)
    world.step("s1")
    assert second.outcome == "held"


def test_a_wait_that_is_given_up_leaves_the_line_with_the_next_call() -> None:
    world = calm()
    world.ask("s0", 5)
    world.step("s0")
    second = world.ask("s1", 5)
    world.step("s1")
    assert second.one
    world.machines["s1"].release(second.one)
    assert world.machines["s1"].wake_at(world.now) == world.now
    world.step("s1")
    assert list(world.script.records) == ["s0.1"]


def test_one_that_is_given_up_before_it_was_asked_for_makes_no_call() -> None:
    world = calm()
    asker = world.ask("s0", 5)
    assert asker.one
    world.machines["s0"].release(asker.one)
    assert not world.step("s0")


def test_a_timeout_names_what_binds_and_when_to_try_again() -> None:
    world = calm()
    world.ask("s0", 5)
    second = world.ask("s1", 0.5)
    world.step("s0")
    world.step("s1")
    assert world.machines["s1"].wake_at(world.now) == world.now + 0.5
    world.advance(0.5)
    world.machines["s1"].attend(world.now)
    assert second.outcome == Refusal("timeout", "slots", "all", second.one.binding.retry_at)  # type: ignore[union-attr]
    world.step("s1")
    assert list(world.script.records) == ["s0.1"]


def test_one_without_patience_is_refused_by_the_answer() -> None:
    world = calm()
    world.ask("s0", 5)
    second, third = world.ask("s1", 0), world.ask("s1", 5, waits=False)
    world.step("s0")
    world.step("s1")
    for asker in (second, third):
        assert asker.outcome == Refusal("late", "slots", "all", world.now + 1.0)


def test_more_than_the_limit_is_refused_at_once() -> None:
    world = calm(slots=3)
    asker = world.ask("s0", 5, slots=4)
    world.step("s0")
    assert asker.outcome == Refusal("never", "slots", "all", most=3)


def test_redis_that_is_away_is_named_after_the_timeout() -> None:
    world = calm()
    asker = world.ask("s0", 1)
    machine = world.machines["s0"]
    assert machine.call(world.now)
    machine.missed(world.now)
    behind = world.ask("s0", 2)
    assert machine.attend_at == world.now + 1.0
    world.advance(1.0)
    machine.attend(world.now)
    assert (asker.outcome, machine.attend_at) == ("", world.now + 0.25)
    world.advance(0.25)
    machine.attend(world.now)
    assert isinstance(asker.outcome, Refusal)
    assert asker.outcome.why == "unanswered"
    assert (behind.outcome, machine.attend_at) == ("", world.now + 0.75)
    world.advance(1.0)
    machine.attend(world.now)
    assert isinstance(behind.outcome, Refusal), "one that no call could carry yet"


def test_what_redis_gave_to_one_who_gave_up_meanwhile_goes_back() -> None:
    world = calm()
    asker = world.ask("s0", 1)
    machine = world.machines["s0"]
    call = machine.call(world.now)
    assert isinstance(call, Decide)
    world.script.call("s0", call)
    machine.missed(world.now)
    world.advance(1.3)
    machine.attend(world.now)
    assert isinstance(asker.outcome, Refusal)
    assert list(world.script.records) == ["s0.1"]
    world.settle_down()
    assert world.script.records == {}


def test_holds_are_renewed_every_quarter_of_their_lease_in_one_call() -> None:
    world = calm(slots=10)
    askers = [world.ask("s0", 5) for _ in range(5)]
    world.step("s0")
    for _ in range(40):
        world.advance(world.machines["s0"].wake_at(world.now) - world.now)
        call = world.machines["s0"].call(world.now)
        assert isinstance(call, Decide)
        assert [operation.verb for operation in call.operations] == ["renew"] * 5
        world.machines["s0"].hear(call, world.script.call("s0", call), world.now)
    assert world.now == pytest.approx(140.0)
    assert {asker.outcome for asker in askers} == {"held"}


def test_a_hold_with_a_long_lease_is_heard_of_soon_and_trusted_for_long_once_it_was_renewed() -> None:
    world = calm()
    asker = world.ask("s0", 5, ttl=3600)
    began = world.now
    world.step("s0")
    assert asker.one is not None
    assert asker.one.use_until == pytest.approx(began + 48)
    assert world.machines["s0"].wake_at(world.now) == pytest.approx(began + 2.5)
    world.advance(2.5)
    world.step("s0")
    assert asker.one.use_until == pytest.approx(world.now + 2880)


def test_a_hold_whose_lease_ran_out_is_lost_and_its_holder_hears_of_it() -> None:
    world = calm()
    asker = world.ask("s0", 5)
    world.step("s0")
    world.advance(10)
    world.step("s0")
    assert asker.outcome == "lost"


def test_holds_are_claimed_where_state_was_lost() -> None:
    world = calm(slots=2)
    asker, other = world.ask("s0", 5), world.ask("s1", 5)
    world.step("s0")
    world.step("s1")
    world.script.lose()
    late = world.ask("s1", 30)
    world.step("s1")  # it meets the new epoch
    world.step("s1")  # and claims
    world.advance(1.0)
    world.step("s0")
    world.step("s0")
    assert (asker.outcome, other.outcome, late.outcome) == ("held", "held", "")
    assert world.script.used == 2


def test_a_claim_names_the_epoch_in_which_it_was_held() -> None:
    world = calm()
    world.ask("s0", 5)
    world.step("s0")
    before = world.script.epoch
    world.script.lose()
    world.advance(1.0)
    world.step("s0")
    call = world.machines["s0"].call(world.now)
    assert isinstance(call, Decide)
    assert [(call.epoch, operation.verb) for operation in call.operations] == [(before, "claim")]


def test_a_limiter_that_vanished_is_made_again_as_one_that_was_there() -> None:
    world = calm()
    asker = world.ask("s0", 5)
    world.step("s0")
    world.script.vanish()
    world.advance(1.0)
    world.step("s0")
    assert world.machines["s0"].call(world.now) == Create(recover=True)
    world.settle_down()
    assert asker.outcome == "held"
    assert world.script.used == 1


def test_one_that_was_never_there_is_made_without_learning() -> None:
    world = calm()
    world.script.exists = False
    world.ask("s0", 5)
    world.step("s0")
    assert world.machines["s0"].call(world.now) == Create(recover=False)


def test_holds_of_a_limiter_that_was_removed_on_purpose_are_lost() -> None:
    world = calm()
    asker = world.ask("s0", 5)
    world.step("s0")
    world.machines["s0"].hear_hint(["removed"], world.now)
    assert asker.outcome == "lost"


def test_a_number_that_another_process_used_is_left_far_behind() -> None:
    machine = Limiter("s0")
    world = calm()
    asker = Asker(world, "s0", 200.0)
    asker.one = machine.admit("*", "slots=1", 4000, world.now, 200.0, asker)
    call = machine.call(world.now)
    assert isinstance(call, Decide)
    machine.hear(call, Decision("STALE"), world.now)
    again = machine.call(world.now)
    assert isinstance(again, Decide)
    assert (again.seq, again.words) == (1 + STEP, call.words)


def test_what_is_no_limiter_refuses_all() -> None:
    world = calm()
    askers = [world.ask("s0", 5) for _ in range(200)]
    machine = world.machines["s0"]
    call = machine.call(world.now)
    assert isinstance(call, Decide)
    machine.hear(call, Decision("KIND"), world.now)
    assert {asker.outcome for asker in askers} == {Refusal("kind")}
    assert machine.call(world.now) is None


def test_a_call_that_is_refused_as_a_whole_refuses_those_who_wait_and_loses_no_hold() -> None:
    world = calm()
    held, waits = world.ask("s0", 5), world.ask("s0", 5)
    world.step("s0")
    machine = world.machines["s0"]
    refusal = Refusal("failed")
    assert machine.refuse(refusal)
    assert (held.outcome, waits.outcome) == ("held", refusal)
    world.settle_down()
    assert list(world.script.records) == ["s0.1"]
    world.advance(1.0)
    assert world.step("s0")
    assert held.outcome == "held"
    world.end(held)
    world.settle_down()
    late = world.ask("s0", 5)
    assert machine.call(world.now)
    assert not machine.refuse(refusal)
    assert late.outcome == refusal
    assert machine.call(world.now) is None


def test_an_admission_that_is_heard_of_too_late_is_asked_about_before_it_is_used() -> None:
    world = calm(slots=1)
    asker = world.ask("s0", 60)
    machine = world.machines["s0"]
    call = machine.call(world.now)
    assert isinstance(call, Decide)
    answer = world.script.call("s0", call)
    world.advance(5.0)  # its lease of 4 s is over
    other = world.ask("s1", 60)
    world.step("s1")
    assert other.outcome == "held"
    machine.hear(call, answer, world.now)
    assert asker.outcome == ""
    world.step("s0")
    assert asker.outcome == ""
    world.end(other)
    world.settle_down()
    world.advance(1.0)
    world.settle_down()
    assert asker.outcome == "held"


def test_a_hold_can_be_taken_up_by_its_id_and_released_there() -> None:
    world = calm()
    asker = world.ask("s0", 5)
    world.step("s0")
    assert asker.one
    world.machines["s0"].leave(asker.one)
    heir = Asker(world, "s1", world.now + 5)
    heir.one = world.machines["s1"].adopt("s0.1", 4000, world.now, heir.deadline, heir)
    world.step("s1")
    assert heir.outcome == "held"
    world.advance(1.0)
    assert world.step("s1")
    assert not world.step("s0")
    world.machines["s1"].release(heir.one)
    world.settle_down()
    assert world.script.records == {}


def test_a_settlement_counts_once_whatever_is_repeated() -> None:
    world = calm()
    asker = world.ask("s0", 5)
    world.step("s0")
    assert asker.one
    machine = world.machines["s0"]
    machine.settle(asker.one, "tokens=3")
    machine.release(asker.one)
    call = machine.call(world.now)
    assert isinstance(call, Decide)
    world.script.call("s0", call)
    machine.missed(world.now)
    assert machine.call(world.now) is call
    machine.hear(call, world.script.call("s0", call), world.now)
    assert world.script.tokens == 3
    assert asker.one.state is State.OVER


def test_timers_of_what_came_and_went_do_not_pile_up() -> None:
    world = calm(slots=10)
    machine = world.machines["s0"]
    for _ in range(1500):
        asker = world.ask("s0", 30)
        world.step("s0")
        world.end(asker)
        world.step("s0")
    assert len(machine._waits._heap) + len(machine._renewals._heap) < 1000
