"""An account as a machine: whatever happens to its calls, each message ends once, in order, and nothing leaks."""

import random
from dataclasses import replace
from functools import partial

import pytest

from headgate.core.account.calls import Acquire, Credit, Explain, Leave, Publish, Reap
from headgate.core.when_full import FAIL
from tests.sdk.core.accounts import FAULTS, LIMIT, TTL, Session, World, check, story

LONG = 60.0
"""Simulated seconds in which everything has ended: leases, epochs and idling included."""


def play(world: World, dice: random.Random | None = None) -> World:
    story(world, dice)
    world.run(world.now + LONG)
    check(world)
    return world


CALLS = play(World()).calls
"""That the story takes without faults."""


def test_without_faults_every_message_is_stored_that_may_be() -> None:
    world = play(World())
    fates = [item.done.value for session in world.sessions for item in session.items]
    assert sorted(str(fate) for fate in fates if not isinstance(fate, int)) == ["None", "timeout", "too large"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_at_any_call_harms_nothing(fault: str) -> None:
    for number in range(CALLS + 5):
        play(World({number: fault}))


@pytest.mark.parametrize("seed", range(8))
def test_faults_at_many_calls_harm_nothing(seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(40):
        faults = {number: dice.choice(FAULTS) for number in range(CALLS) if dice.random() < 0.2}
        play(World(faults), dice)


def test_one_who_gives_up_leaves_the_line_of_the_destination_at_once() -> None:
    world = World()
    ann, bob = world.session("ann", 1000), world.session("bob", 100)
    world.at(0.0, lambda: ann.send(1000))
    waits = []
    world.at(0.1, lambda: waits.append(bob.send(500)))
    world.run(world.now + 0.2)
    assert world.model.line == ["bob"]
    bob.give_up(waits[0])
    assert not bob.account.outbox.waiting
    call = bob.account.call(world.now)
    assert isinstance(call, Acquire)
    assert call.totals.size == 0, "in no line"


@pytest.mark.parametrize("recalled", [False, True])
def test_what_a_gate_was_lent_for_one_call_that_gave_up_goes_back(recalled: bool) -> None:
    """Mutants: several go by it; so they do where others wait."""
    ann = Session("ann", World(), 1000, holds_messages=False)
    line, state = ann.account.credit, ann.account
    line.most = 1000
    line.raise_to(3000, 10)
    assert line.take(3000)
    assert not state.admit(0.0)
    assert line.in_hand == line.returned == 0, "it is in use"
    state.recalled = recalled
    line.put_back(3000)
    state.freed(0.0)
    assert (line.held, line.in_hand) == (0, 0)
    line.raise_to(4000, 10)
    state.admit(0.0)
    assert line.in_hand == 1000, "within the limit it is kept"


@pytest.mark.parametrize("first", [900, 2000])
def test_what_a_gate_was_lent_for_one_call_is_for_none_of_those_who_wait(first: int) -> None:
    """Mutants: all that it covers go by it together; so do those behind another above the limit."""
    ann = Session("ann", World(), 1000, holds_messages=False)
    line, state = ann.account.credit, ann.account
    line.most = 1000
    gives_up, *others = [ann.send(size) for size in (3000, first, 900)]
    ann.give_up(gives_up)
    line.frozen = False  # its lease is not over
    line.raise_to(3000, 10)
    assert state.admit(0.0) == (first > line.most)
    assert [other.done.done() for other in others] == [first > line.most, False]
    assert (line.in_hand, line.returned) == (0, 3000 - line.held)


def test_what_a_gate_was_lent_for_one_who_is_gone_goes_back_at_once() -> None:
    """Mutants: it stays in hand where nobody waits as it comes; whoever comes meanwhile may take it."""
    ann = Session("ann", World(), 1000, holds_messages=False)
    line, state = ann.account.credit, ann.account
    line.most = 1000
    item = ann.send(3000)
    call = state.call(0.0)
    assert isinstance(call, Acquire)
    ann.give_up(item)
    line.frozen = False  # its lease is not over
    assert line.raise_to(2000, 10)
    assert line.lent
    state.hear(call, Credit("OK", granted=3000, granted_m=10), 0.1)
    assert (line.in_hand, line.lent) == (0, False)


def test_what_pools_were_asked_for_one_that_is_gone_is_no_word_for_the_next() -> None:
    """Mutant: whoever is first by then goes by that answer."""
    world = World()
    ann, bob = world.session("ann", 1000), world.session("bob", 100)
    bob.pooled, bob.when_full = True, FAIL
    ann.send(1000)
    world.run(world.now + 0.1)
    gone = bob.send(500)
    world.run(world.now + 0.1)
    assert bob.asks_pools_for is gone
    bob.account.pools_asked(gone, world.now)
    world.run(world.now + 0.1)
    assert gone.done.value == "full"
    next_one = bob.send(500)
    world.run(world.now + 0.1)
    assert bob.asks_pools_for is next_one
    bob.account.pools_asked(gone, world.now)
    world.run(world.now + 0.1)
    assert not next_one.done.done()
    bob.account.pools_asked(next_one, world.now)
    world.run(world.now + 0.1)
    assert next_one.done.value == "full"


def test_a_wait_without_a_deadline_sets_no_clock_once_it_is_explained() -> None:
    """It is the calls that keep its place and its lease that are due, and nothing else."""
    world = World()
    ann, bob = world.session("ann", 1000), world.session("bob", 100)
    world.at(0.0, lambda: ann.send(1000))
    world.at(0.1, lambda: bob.send(500, timeout=float("inf")))
    world.run(world.now + 0.5)
    waiters = bob.account.waiters
    assert waiters.attend_at == waiters.explain_at == float("inf")
    before = world.calls
    world.run(world.now + 10.0)
    assert world.calls - before < 80, "both sessions: sweeps, places in line and leases"


def test_one_for_whom_another_looks_sweeps_nothing_and_asks_less_often() -> None:
    world = World()
    ann, *others = [world.session(name, 1000) for name in ("ann", "bob", "cid")]
    world.at(0.0, lambda: ann.send(1000))
    for number, session in enumerate(others):
        lease = session.account.lease
        lease.ttl, lease.ttl_ms, session.relies = 20.0, 20_000, session.name == "cid"
        world.at(1.0 + number, partial(session.send, 500))
    world.run(world.now + 4.0)
    assert world.model.line == ["bob", "cid"]
    world.made.clear()
    world.run(world.now + 30.0)
    assert world.made["bob", Reap] > world.made["cid", Reap] == 0
    asked = [world.made[name, Acquire] for name in ("bob", "cid")]
    assert asked[0] > 2 * asked[1] > 20, "often enough to keep its place"
    world.at(0.1, world.consume)
    world.run(world.now + 1.0)
    assert [item.done.value for session in others for item in session.items] == [2, 3], "hints bring what they wait for"


def test_one_whose_lease_is_shorter_than_its_pause_sweeps_too() -> None:
    """Mutant: it asks as it renews its lease, so it never waits for its whole pause."""
    world = World()
    ann, bob = world.session("ann", 1000), world.session("bob", 100)
    bob.account.lease.ttl, bob.account.lease.ttl_ms = 3.0, 3000
    world.at(0.0, lambda: ann.send(1000))
    world.at(0.1, lambda: bob.send(500, timeout=float("inf")))
    world.run(world.now + 5.0)
    assert 4 <= world.made["bob", Reap] <= 8


def test_a_wait_is_explained_again_shortly_before_its_time_is_over() -> None:
    world = World()
    ann, bob = world.session("ann", 1000), world.session("bob", 100)
    world.at(0.0, lambda: ann.send(1000))
    world.at(0.1, lambda: bob.send(500, timeout=5.0))
    world.run(world.now + 1.0)
    assert bob.account.waiters.explain_at == pytest.approx(world.now - 1.0 + 0.1 + 5.0 - 0.1)


def paid(world: World, *sizes: int) -> Session:
    """Return a session that has its window, and messages that are paid and not published."""
    ann = world.session("ann", 500)
    world.run(world.now + 0.1)
    for size in sizes:
        ann.send(size)
    return ann


def test_a_batch_of_unknown_fate_goes_again_before_all_else() -> None:
    """A recall, a removal and a new window must all wait: its number may be used by then."""
    ann = paid(world := World(), 10, 20)
    account = ann.account
    first = account.call(world.now)
    assert isinstance(first, Publish)
    account.missed(world.now, gives_up=False)
    account.hear_recall(0, 0)
    account.hear_removed()
    account.resize(100, 1)
    again = account.call(world.now)
    assert isinstance(again, Publish)
    assert again.batch is first.batch
    assert not ann.forgotten


def test_the_lease_is_that_of_the_call_which_redis_carried_out_and_not_of_its_repetition() -> None:
    world = World()
    ann = world.session("ann", 1000)
    world.at(0.0, lambda: ann.send(100))
    world.run(world.now + 0.1)
    ann.send(100)
    call = ann.account.call(world.now)
    assert isinstance(call, Publish)
    world.serve(ann, call)
    answer = world.serve(ann, call)
    assert answer is not None
    assert answer.code == "DUPLICATE"
    until = ann.account.lease.use_until
    ann.account.hear(call, answer, world.now + 2)
    assert ann.account.lease.use_until == until


@pytest.mark.parametrize(
    "how", ["a permit is put back", "a hint comes", "an answer is late", "Redis answers", "it calls"]
)
def test_a_gate_whose_lease_may_be_over_admits_nobody_before_redis_is_heard_from(how: str) -> None:
    """Mutants: a process that was frozen admits whoever waits with what others have by now, as that happens."""
    ann = Session("ann", World(), 100, holds_messages=False)
    state, line = ann.account, ann.account.credit
    waits = ann.send(100)
    call = state.call(0.0)
    assert isinstance(call, Acquire)
    late = 0.9 * TTL
    if how == "an answer is late":
        state.hear(call, Credit("OK", granted=100, granted_m=10), late)
    else:
        state.hear(call, Credit("OK", place=1, blocked=1), 0.1)
        if how == "a hint comes":
            state.hear_grant(line.epoch, line.inc, 100, 10, late)
        else:
            line.raise_to(100, 10)
        if how == "a permit is put back":
            state.freed(late)
        elif how == "Redis answers":
            state.answered(late)
    assert not waits.done.done()
    renews = state.call(late)
    assert isinstance(renews, Acquire)
    assert not waits.done.done()
    state.hear(renews, Credit("OK", granted=100, granted_m=10), late + 0.1)
    assert waits.done.done(), "it is there still"


def test_a_recall_gives_back_what_was_not_used_and_all_above_the_share() -> None:
    ann = paid(world := World())
    ann.account.hear_recall(100, 10)
    call = ann.account.call(world.now)
    assert isinstance(call, Acquire)
    assert (call.totals.granted, call.totals.returned) == (500, 500), "nothing was used since the one before"


@pytest.mark.parametrize("fault", ["", "lost", "unsent"])
def test_one_that_consumes_weighs_nothing_once_it_sends_nothing(fault: str) -> None:
    """Mutants: only if it has something to give back then; whether or not that call was answered; once alone."""
    world = World()
    one = world.session("one", 100)
    one.account.consumers = 1
    one.send(10)
    world.run(world.now + 1)
    world.session("other", 100).send(LIMIT)
    world.run(world.now + 0.3)
    one.account.hear_recall(0, 0)
    world.run(world.now + 0.3)
    assert world.model.accounts["one"].weight == 1
    assert one.account.credit.in_hand == 0
    world.at(0.35, lambda: world.fault_at.update(dict.fromkeys(range(world.calls, world.calls + 4), fault)))
    world.run(world.now + 0.9)
    assert world.model.accounts["one"].weight == 0
    there = world.model.accounts["one"]
    there.weight = 1  # by a late copy of what it asked before, which has the same totals
    there.renew(there.seen, 60_000)  # as its consumers do
    made = world.made["one", Acquire]
    world.run(world.now + 5)
    assert world.model.accounts["one"].weight == 0
    world.run(world.now + 60)
    assert world.made["one", Acquire] == made + 1, "and then its consumers keep the lease"


def test_who_waits_alone_gives_back_what_others_wait_for_at_another_destination() -> None:
    """Else two that each hold a part of a pool and wait for the rest would wait for ever."""
    ann, bob = paid(world := World()), world.session("bob", 100)
    world.at(0.0, lambda: bob.send(500))
    world.run(world.now + 0.1)
    ann.send(900)
    asks = []
    while isinstance(call := ann.account.call(world.now), Acquire):
        asks.append(call.totals)
        answer = world.serve(ann, call)
        assert answer is not None
        ann.account.hear(call, replace(answer, place=1, blocked=1), world.now)
    assert asks[-1].need > asks[-1].granted
    ann.account.hear_recall(100, 10)
    assert ann.account.call(world.now) is None, "nobody else waits here: it is its own echo"
    ann.account.hear_recall(100, 10, owed=True)
    call = ann.account.call(world.now)
    assert isinstance(call, Acquire)
    assert call.totals.returned == call.totals.granted > 0


def test_who_waits_beside_others_gives_back_what_is_too_little_without_being_asked() -> None:
    """Else two that each hold what the other lacks wait until somebody looks, for recalls are few."""
    ann = paid(world := World())
    ann.send(900)
    ask = ann.account.call(world.now)
    assert isinstance(ask, Acquire)
    ann.account.hear(ask, Credit("OK", ann.account.credit.epoch, 500, 500, place=2, blocked=2), world.now)
    back = ann.account.call(world.now)
    assert isinstance(back, Acquire)
    assert (back.totals.returned, back.totals.need - back.totals.granted) == (500, 900)


@pytest.mark.parametrize(
    ("place", "blocked", "holds_messages"), [(2, 2, False), (1, 1, False), (0, 2, False), (2, 2, True)]
)
def test_who_waits_for_permits_beside_others_hands_on_what_comes_back(
    place: int, blocked: int, holds_messages: bool
) -> None:
    """Permits that are taken up again call nobody who would ask for them: others would wait for seconds."""
    ann = Session("ann", World(), 1000, holds_messages=holds_messages)
    line, state = ann.account.credit, ann.account
    line.most = 1000

    def answered(*, place: int, blocked: int) -> None:
        state.want()
        call = state.call(1000.0)
        assert isinstance(call, Acquire)
        state.hear(call, Credit("OK", 1, 800, 8, place=place, blocked=blocked), 1000.0)

    answered(place=0, blocked=0)
    assert line.take(800)
    state.hear_recall(500, 5)
    answered(place=0, blocked=0)
    assert not state.recalled, "nobody waits any more"
    ann.send(100)
    answered(place=place, blocked=blocked)
    assert state.owes == (place == blocked == 2 and not holds_messages)


def test_a_recall_outlives_an_answer_from_before_it() -> None:
    """Whoever it is of was not in line yet. Else permits are taken up again, and others wait until the next."""
    ann = Session("ann", World(), 1000, holds_messages=False)
    state = ann.account

    def ask() -> Acquire:
        state.want()
        call = state.call(1000.0)
        assert isinstance(call, Acquire)
        return call

    state.hear(ask(), Credit("OK", 1, 800, 8), 1000.0)
    assert state.credit.take(800)
    call = ask()
    state.hear_recall(500, 5)
    state.hear(call, Credit("OK", 1, 800, 8), 1000.0)
    assert state.owes
    state.hear(ask(), Credit("OK", 1, 800, 8), 1000.0)
    assert not state.owes, "nobody waits any more"


def test_what_goes_back_in_a_new_epoch_is_claimed_first() -> None:
    """Else nobody could tell it from what was given back, and granted to others, at a server that is gone."""
    ann = paid(world := World())
    epoch = ann.account.credit.epoch
    ann.account.hear_recall(100, 10, epoch + 1)
    claim = ann.account.call(world.now)
    assert isinstance(claim, Acquire)
    assert (claim.totals.epoch, claim.totals.granted, claim.totals.returned) == (epoch, 500, 0)
    ann.account.hear(claim, Credit("OK", epoch + 1, 500, 500, blocked=1), world.now)
    back = ann.account.call(world.now)
    assert isinstance(back, Acquire)
    assert (back.totals.epoch, back.totals.returned) == (epoch + 1, 500)
    assert ann.account.recalled


def test_a_removal_on_purpose_takes_the_credit_and_is_not_mended() -> None:
    ann = paid(world := World())
    ann.account.hear_removed()
    assert ann.account.call(world.now) is None
    assert ann.forgotten == 1
    assert not ann.account.open
    assert ann.account.credit.in_hand == 0


@pytest.mark.parametrize("code", ["STOPPED", "ABOVE"])
def test_a_batch_that_may_not_go_is_back_in_line_and_its_credit_goes_back(code: str) -> None:
    ann = paid(world := World(), 10, 20)
    call = ann.account.call(world.now)
    assert isinstance(call, Publish)
    ann.account.hear(call, Credit(code), world.now)
    assert [item.size for item in ann.account.outbox.waiting] == [10, 20]
    back = ann.account.call(world.now)
    assert isinstance(back, Acquire)
    assert (back.totals.returned, back.totals.size) == (500, 10)


def test_one_more_joins_a_batch_that_was_refused_and_takes_no_number_from_it() -> None:
    """A late copy of the first call stores what the second begins with: the account need not be another one."""
    ann = paid(world := World(), 10, 20)
    first = ann.account.call(world.now)
    assert isinstance(first, Publish)
    ann.account.hear(first, replace(ann.account.last, again_ms=0, stored=0), world.now)
    ann.send(30)
    again = ann.account.call(world.now)
    assert isinstance(again, Publish)
    assert (again.batch.seq, len(again.batch.items), again.totals.inc) == (1, 3, first.totals.inc)


@pytest.mark.parametrize("code", ["OK", "STOPPED", "ABOVE", "OVERUSE"])
def test_no_other_batch_has_the_number_of_one_whose_call_may_come_late(code: str) -> None:
    """Another account has it, for which no copy of the old call is good: else the copy would be taken for it."""
    ann = paid(world := World(), 10, 20)
    first = ann.account.call(world.now)
    assert isinstance(first, Publish)
    ann.account.hear(first, replace(ann.account.last, code=code, again_ms=0, stored=0), world.now)
    ann.give_up(ann.items[0])
    opened = False
    while not isinstance(call := ann.account.call(world.now), Publish):
        assert call is not None
        if isinstance(call, Acquire) and call.totals.inc > first.totals.inc:
            assert call.resume
            opened = True
        ann.account.hear(call, world.serve(ann, call), world.now)
    assert opened
    assert [item.size for item in call.batch.items] == [20]
    assert (call.batch.seq, call.totals.inc) == (1, first.totals.inc + 1)


def test_nothing_can_be_taken_while_an_account_leaves() -> None:
    ann = paid(World())
    call = ann.account.leave()
    assert isinstance(call, Leave)
    assert call.totals.returned == 500
    assert not ann.account.credit.take(1)


def test_one_that_comes_during_a_call_is_asked_for_at_once() -> None:
    world = World()
    world.session("bob", 1000)
    world.run(world.now + 0.1)
    ann = world.session("ann", 0)
    account = ann.account
    call = account.begin(world.now)
    assert isinstance(call, Acquire)
    ann.send(100)
    account.hear(call, Credit("OK", 1, 0, 0, 0, 0), world.now)
    asked = account.call(world.now)
    assert isinstance(asked, Acquire)
    assert asked.totals.size == 100


def test_one_who_comes_after_those_that_a_hint_served_is_asked_for_at_once() -> None:
    world = World()
    world.session("bob", 1000).send(1000)
    ann = world.session("ann", 0)
    world.at(0.1, lambda: ann.send(100))
    world.at(0.2, world.consume)
    world.run(world.now + 0.21)
    assert isinstance(ann.items[0].done.value, int)
    ann.send(1000)
    assert isinstance(ann.account.call(world.now), Acquire)


def test_one_that_asks_before_its_pause_is_over_does_so_without_a_sweep() -> None:
    """Mutant: it sweeps, as one does that stood in line for its whole pause."""
    world = World()
    ann, bob = world.session("ann", 1000), world.session("bob", 100)
    world.at(0.0, lambda: ann.send(1000))
    world.at(0.1, lambda: bob.send(600))
    world.run(world.now + 0.2)
    asked = world.made["bob", Acquire]
    bob.account.ask()
    world.run(world.now + 0.1)
    assert world.made["bob", Acquire] == asked + 1
    assert world.made["bob", Reap] == 0


def test_waits_of_one_second_are_explained_once() -> None:
    """Mutant: each is, that lasts a tenth of it."""
    world = World()
    ann, bob = world.session("ann", 1000), world.session("bob", 100)
    world.at(0.0, lambda: ann.send(1000))
    for number in range(3):
        world.at(0.1 + number * 0.3, lambda: bob.send(1000))
        world.at(0.3 + number * 0.3, world.consume)
    world.run(world.now + 1.05)
    assert len(bob.items) == 3
    assert world.made["bob", Explain] == 1
