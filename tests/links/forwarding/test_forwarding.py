"""The worker of a link as a pure state machine: nothing lost, nothing doubled, in order, whatever call fails."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core.links.calls import (
    Call,
    Commit,
    Committed,
    Copy,
    Entry,
    Fetch,
    Open,
    Opened,
    Put,
    RateTaken,
    Read,
    Regression,
    Secure,
    Skip,
    TakeRate,
)
from headgate.core.links.trouble import NO_ROOM
from headgate_coordinator.links.allowance import LinkAllowance
from headgate_coordinator.links.forwarder import Forwarder
from headgate_coordinator.links.rules import Forwarding, Phase, Refusal
from tests.links.world import FAULTS, Links, sent
from tests.model.link import ModelTarget
from tests.support.extent import examples

BODIES = [bytes([65 + number]) * (8 + number) for number in range(7)]


def test_a_link_forwards_all_in_order() -> None:
    links = sent(Links(), BODIES)
    links.run({})
    assert links.target.log == BODIES
    assert links.source.released == 7


def phase_of(worker: Forwarder) -> Phase:
    return worker.phase


def test_a_message_passes_through_its_phases() -> None:
    worker = Forwarder(Forwarding("here", "there", replicas=1))
    assert worker.calls(0) == [Open()]
    assert worker.calls(0) == [], "one call of a kind at a time"
    worker.hear(Open(), Opened("OK", 5, 0), 0)
    (ask,) = worker.calls(0)
    worker.hear(ask, Committed("OK", 0), 0)
    (fetch,) = worker.calls(0)
    assert isinstance(fetch, Fetch)
    worker.hear(fetch, Read("OK", 0, (Entry(1, b"abc"),)), 0)
    assert phase_of(worker) == Phase.LOADED
    reserve = next(call for call in worker.calls(0) if isinstance(call, Commit))
    assert (reserve.entries, reserve.need) == ((), 3)
    worker.hear(reserve, Committed("OK", 0, held=1000, held_m=9), 0)
    commit = next(call for call in worker.calls(0) if isinstance(call, Commit))
    assert commit.entries == (Put(1, b"abc", None, ("here",)),)
    worker.hear(commit, Committed("OK", 1, held=997, held_m=9), 0)
    assert phase_of(worker) == Phase.COMMITTED
    secure = next(call for call in worker.calls(0) if isinstance(call, Secure))
    worker.hear(secure, Committed("OK", 1), 0, replicas=0)
    assert phase_of(worker) == Phase.COMMITTED, "no replica has it yet"
    secure = next(call for call in worker.calls(0) if isinstance(call, Secure))
    worker.hear(secure, Committed("OK", 1, held=997, held_m=9), 0, replicas=1)
    assert phase_of(worker) == Phase.DURABLE
    worker.hear(fetch, Read("OK", 0), 0)
    release = next(call for call in worker.calls(0) if isinstance(call, Fetch))
    assert release.mark == 1
    worker.hear(release, Read("OK", 1), 0)
    assert phase_of(worker) == Phase.RESERVED
    worker.left()
    assert phase_of(worker) == Phase.IDLE


def exactly_once(faults: dict[int, str], links: Links) -> None:
    links.run(faults)
    assert links.target.log == BODIES, faults
    assert links.source.released >= 7


def points() -> int:
    return sent(Links(), BODIES).run({})


@pytest.mark.parametrize("fault", FAULTS)
def test_any_fault_at_any_call_loses_and_doubles_nothing(fault: str) -> None:
    for number in range(1, points() + 1):
        exactly_once({number: fault}, sent(Links(), BODIES))


@pytest.mark.parametrize("first", FAULTS)
def test_any_two_faults_at_any_two_calls_lose_and_double_nothing(first: str) -> None:
    reach = points() + 6
    for one, other in itertools.combinations(range(1, reach), 2):
        for second in FAULTS:
            exactly_once({one: first, other: second}, sent(Links(), BODIES))


@given(st.dictionaries(st.integers(1, 120), st.sampled_from(FAULTS), max_size=12), st.integers(20, 200))
@settings(max_examples=examples(150))
def test_many_faults_lose_and_double_nothing(faults: dict[int, str], limit: int) -> None:
    exactly_once(faults, sent(Links(target=ModelTarget(limit=limit)), BODIES))


@given(st.data())
@settings(max_examples=examples(150))
def test_two_workers_with_one_fence_lose_and_double_nothing(data: st.DataObject) -> None:
    """Both believe that the link is theirs; answers come in any order, or not at all."""
    links = sent(Links(), BODIES)
    workers = [Forwarder(links.how), Forwarder(links.how)]
    under_way: list[tuple[Forwarder, Call, Opened | Read | Committed | RateTaken]] = []
    coin: st.SearchStrategy[bool] = st.booleans()
    dice = st.integers(0, 5)
    now = 0.0
    for _ in range(60):
        now += 1.0
        worker = data.draw(st.sampled_from(workers))
        worker.woken(source=True, target=True)
        under_way += [(worker, call, links.answer(call)) for call in worker.calls(now)]
        arrives = data.draw(coin)
        if under_way and arrives:
            to, call, answer = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            if data.draw(dice):
                to.hear(call, answer, now)
            else:
                to.missed(call, now)
        links.target.consume()
    for to, call, _ in under_way:
        to.missed(call, now)
    links.run({})
    assert links.target.log == BODIES


def test_a_source_that_was_made_anew_is_forwarded_from_its_beginning() -> None:
    links = sent(Links(), BODIES[:2])
    links.run({})
    links.source.make_anew()
    sent(links, BODIES[2:]).run({})
    assert links.target.log == BODIES


def test_a_target_that_lost_everything_is_told_of_and_the_link_goes_on() -> None:
    links = sent(Links(), BODIES[:3])
    links.run({})
    links.target.lose()
    sent(links, BODIES[3:])
    worker = Forwarder(links.how)
    for _ in range(40):
        for call in worker.calls(0):
            worker.hear(call, links.answer(call), 0)
        worker.woken(source=True, target=True)
    assert worker.regressions == [Regression(0, 3)]
    assert links.target.log == BODIES[3:]
    assert links.target.mark >= 6


def test_a_target_that_lost_what_no_replica_had_gets_it_again() -> None:
    links = sent(Links(how=Forwarding("here", "there", replicas=1)), BODIES[:2])
    worker = Forwarder(links.how)
    for turn in range(30):
        if turn == 10:
            assert links.target.log == BODIES[:2]
            assert len(links.source.held) == 2, "not released"
            links.target.lose()
        for call in worker.calls(turn):
            worker.hear(call, links.answer(call), turn, replicas=int(turn > 10))
        worker.woken(source=True, target=True)
    assert links.target.log == BODIES[:2]
    assert (links.source.released, worker.regressions) == (2, [])


@pytest.mark.parametrize("fault", FAULTS)
def test_a_head_that_never_fits_goes_to_the_dead_letters_once_and_the_rest_passes(fault: str) -> None:
    bodies = [b"a" * 10, b"b" * 300, b"c" * 12]
    for number in range(1, 30):
        links = sent(Links(), bodies)
        links.run({number: fault})
        assert links.target.log == [bodies[0], bodies[2]]
        assert links.dead.log == [bodies[1]]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("NOCREDIT", "has no room"),
        ("TOO_LARGE", "never has room for 300 bytes: raise its limit"),
        ("KIND", "answers KIND"),
    ],
)
def test_a_dead_letter_destination_that_takes_nothing_is_named_in_words(code: str, says: str) -> None:
    links = sent(Links(), [b"b" * 300])
    worker = Forwarder(links.how)
    for _ in range(20):
        for call in worker.calls(0):
            worker.hear(call, Committed(code) if isinstance(call, Copy) else links.answer(call), 0)
    assert worker.trouble == ("dead-letters", f"the dead-letter destination {says}")


def test_without_dead_letters_it_stops_there_and_says_so() -> None:
    links = sent(Links(how=Forwarding("here", "there", has_dead_letters=False)), [b"b" * 300])
    with pytest.raises(AssertionError, match="message 1 cannot be delivered"):
        links.run({})
    assert links.source.stored


def test_what_has_been_at_the_target_is_not_forwarded_to_it_again() -> None:
    how = Forwarding("b", "a", max_hops=3)
    assert how.refusal(Entry(1, b"", path=("a",))) == Refusal("loop")
    assert how.refusal(Entry(1, b"", path=("c",))) is None
    assert how.refusal(Entry(1, b"", path=("c", "d", "e"))) == Refusal("hops", dead_letter=True)
    assert Forwarding("a", "a").refusal(Entry(1, b"")) == Refusal("loop")


def test_what_is_not_for_the_target_is_skipped_in_order_and_costs_no_credit() -> None:
    def odd(entry: Entry) -> Refusal | None:
        return Refusal("other") if entry.seq % 2 == 0 else None

    links = sent(Links(how=Forwarding("here", "there", judge=odd)), BODIES)
    links.run({})
    assert links.target.log == BODIES[::2]
    assert links.source.released == 7
    worker = Forwarder(Forwarding("here", "there", judge=odd))
    worker.hear(Open(), Opened("OK", 1), 0)
    for call in worker.calls(0):
        worker.hear(call, Committed("OK", 0), 0)
    for call in worker.calls(0):
        worker.hear(call, Read("OK", 0, (Entry(2, b"x"), Entry(4, b"y"))), 0)
    commit = next(call for call in worker.calls(0) if isinstance(call, Commit))
    assert commit.entries == (Skip(2), Skip(4))
    worker.hear(commit, Committed("OK", 4), 0)
    assert worker.refused == {"other": 2}


def test_a_worker_that_is_fenced_makes_no_call_any_more() -> None:
    worker = Forwarder(Forwarding("here", "there"))
    worker.hear(Open(), Opened("FENCED", fence=9), 0)
    assert (worker.calls(99), worker.fence, worker.phase) == ([], 9, Phase.FENCED)


def test_a_target_without_room_is_asked_again_when_it_says_and_at_a_hint() -> None:
    links = sent(Links(target=ModelTarget(limit=10)), [b"x" * 10, b"y" * 10])
    worker = Forwarder(links.how)
    for _ in range(12):
        for call in worker.calls(0):
            worker.hear(call, links.answer(call), 0)
    assert (worker.calls(0.5), worker.trouble, worker.wake_at) == ([], NO_ROOM, 1.0)
    worker.woken(target=True)
    assert len(worker.calls(0.5)) == 1


def test_a_hint_that_comes_before_the_answer_of_a_call_is_not_lost_with_it() -> None:
    """They come over different connections. Mutants: `_read`, or `_answered`, does not look whether one came."""
    worker = Forwarder(Forwarding("here", "there"))
    worker.hear(Open(), Opened("OK", 1), 5)
    (ask,) = worker.calls(5)
    worker.hear(ask, Committed("OK", 0), 5)
    (fetch,) = worker.calls(5)
    worker.woken(source=True)  # what it is about came after that call read, and before its answer is heard
    worker.hear(fetch, Read("OK", 0), 5)
    (fetch,) = worker.calls(5)
    worker.hear(fetch, Read("OK", 0, (Entry(1, b"abc"),)), 5)
    commit = next(call for call in worker.calls(5) if isinstance(call, Commit))
    worker.woken(target=True)
    worker.hear(commit, Committed("NOCREDIT", 0, held=0, again_ms=1000), 5)
    again = [call for call in worker.calls(5) if isinstance(call, Commit)]
    assert len(again) == 1
    worker.hear(again[0], Committed("NOCREDIT", 0, held=0, again_ms=1000), 5)
    assert not [call for call in worker.calls(5) if isinstance(call, Commit)], "once a hint"


def test_a_call_that_only_releases_says_nothing_of_what_there_is_to_read() -> None:
    """Mutant: `_read` does not look whether the call asked for messages."""
    worker = Forwarder(Forwarding("here", "there", messages=1))
    worker.hear(Open(), Opened("OK", 1), 5)
    (ask,) = worker.calls(5)
    worker.hear(ask, Committed("OK", 0, held=100, held_m=9), 5)
    for number in (1, 2):
        fetch = next(call for call in worker.calls(5) if isinstance(call, Fetch))
        worker.hear(fetch, Read("OK", 0, (Entry(number, b"a"),)), 5)
        if number == 1:
            commit = next(call for call in worker.calls(5) if isinstance(call, Commit))
            worker.hear(commit, Committed("OK", 1, held=99, held_m=9), 5)
    calls = worker.calls(5)
    release = next(call for call in calls if isinstance(call, Fetch))
    assert (release.mark, release.messages) == (1, 0), "the window is full"
    worker.hear(release, Read("OK", 1), 5)
    commit = next(call for call in calls if isinstance(call, Commit))
    worker.hear(commit, Committed("OK", 2, held=98, held_m=9), 5)
    assert [call.messages for call in worker.calls(5) if isinstance(call, Fetch)] == [1]


def test_a_link_with_a_rate_commits_what_it_was_allowed_and_no_more() -> None:
    """A mutant whose batches pass over the allowance commits all at once."""
    links = sent(Links(how=Forwarding("here", "there", window=1000, pace=(2, 100))), [b"abc"] * 7)
    worker, now, asked, committed = Forwarder(links.how), 0.0, 0, 0
    while links.source.stored:
        for call in worker.calls(now):
            if isinstance(call, TakeRate):
                asked += call.messages
                assert 1 <= call.messages <= min(2, 7 - committed)
                assert call.size == 3 * call.messages
            elif isinstance(call, Commit):
                committed += len(call.entries)
                assert committed <= asked
            worker.hear(call, links.answer(call), now)
    assert (asked, committed) == (7, 7)


def test_what_was_allowed_and_not_used_is_worth_nothing_a_second_later() -> None:
    allowance = LinkAllowance((10, 1000))
    pace = allowance.ask([5] * 20, 0.0)
    assert pace == TakeRate(10, 50)
    allowance.add(pace, 0.0)
    assert allowance.covers(10, 50, 0.0)
    assert allowance.ask([5], 0.9) is None
    assert allowance.ask([5], 1.1) == TakeRate(1, 5)


def test_a_message_larger_than_the_rate_allows_at_once_is_asked_for_alone() -> None:
    assert LinkAllowance((10, 100)).ask([500, 1], 0.0) == TakeRate(1, 500)
    assert LinkAllowance((10, 100)).ask([60, 50], 0.0) == TakeRate(1, 60)


@pytest.mark.parametrize(("path", "reason"), [
    (("x:a/b",), None), (("x:a/b@mesh",), "zone"), (("x:a/b@other",), None),
    (("there",), "loop"), (("there@z",), "loop"),
])  # fmt: skip
def test_what_came_over_a_zone_of_one_hop_goes_over_no_other_route_of_it(
    path: tuple[str, ...], reason: str | None
) -> None:
    refusal = Forwarding("here", "there", zone="mesh").refusal(Entry(1, b"", None, path))
    assert (refusal and refusal.reason) == reason
    assert Forwarding("here", "there", zone="mesh").stamp == "here@mesh"


def begun(how: Forwarding) -> Forwarder:
    """Return a worker that has opened the link, and asked for the mark."""
    worker = Forwarder(how)
    worker.hear(Open(), Opened("OK", 1), 0)
    for call in worker.calls(0):
        worker.hear(call, Committed("OK", 0, held=100, held_m=9), 0)
    return worker


def call_of(kind: type[Call], worker: Forwarder, now: float) -> Call:
    return next(call for call in worker.calls(now) if isinstance(call, kind))


def test_a_call_that_only_releases_puts_no_reading_off() -> None:
    """Mutant: the answer to a call that asked for nothing taken as "there is nothing" (`asked and` away)."""
    worker = begun(Forwarding("here", "there", window=3))
    fetch, full = call_of(Fetch, worker, 0), Read("OK", 0, (Entry(1, b"abc"), Entry(2, b"def")))
    worker.hear(fetch, full, 0)
    worker.hear(call_of(Commit, worker, 0), Committed("OK", 1, held=97, held_m=9), 0)
    commit, release = worker.calls(0)
    assert isinstance(release, Fetch)
    assert (release.mark, release.messages) == (1, 0), "the window is full"
    worker.hear(commit, Committed("OK", 2, held=94, held_m=9), 0)
    worker.hear(release, Read("OK", 1), 0)
    again = call_of(Fetch, worker, 0)
    assert isinstance(again, Fetch)
    assert again.messages > 0


def test_a_hint_that_overtakes_an_answer_is_newer_than_it() -> None:
    """Mutants: `_rest_source`, or `_rest_target`, without a look at hints."""
    worker = begun(Forwarding("here", "there"))
    fetch = call_of(Fetch, worker, 0)
    worker.woken(source=True)
    worker.hear(fetch, Read("OK", 0), 0)
    fetch = call_of(Fetch, worker, 0)
    worker.hear(fetch, Read("OK", 0, (Entry(1, b"x" * 200),)), 0)
    commit = call_of(Commit, worker, 0)
    worker.woken(target=True)
    worker.hear(commit, Committed("NOCREDIT", 0, held=100, place=1), 0)
    commit = call_of(Commit, worker, 0)
    worker.hear(commit, Committed("NOCREDIT", 0, held=100, place=1), 0)
    assert worker.calls(0.5) == [], "one hint, one look"


def test_an_end_that_is_not_there_is_named_until_it_answers() -> None:
    worker = begun(Forwarding("here", "there"))
    worker.hear(call_of(Fetch, worker, 0), Read("OK", 0, (Entry(1, b"x"),)), 0)
    commit, fetch = worker.calls(0)
    worker.hear(commit, Committed("UNKNOWN"), 0)
    worker.hear(fetch, Read("UNKNOWN"), 0)
    assert worker.missing == {"source", "target"}
    worker.hear(call_of(Open, worker, 2), Opened("OK", 2), 2)
    assert worker.missing == {"target"}
    worker.hear(call_of(Commit, worker, 2), Committed("OK", 0), 2)
    assert worker.missing == set()
