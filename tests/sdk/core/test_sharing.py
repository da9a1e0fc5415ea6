"""One window over several destinations: never exceeded whatever they do, nobody passed over, nothing out of turn."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import Window
from headgate.consuming.round_robin import RoundRobin
from headgate.core.fetching import WindowUse
from headgate.core.limits.turns_over_slices import Turn
from headgate.core.sharing import FEW, PATIENCE, STAY, Share, SharedWindow
from tests.support.extent import examples

SIZE = 10


class Takers:
    """Those who take whatever there is, or so many more."""

    asked = 0
    credit = 1000

    def room(self, most: int) -> int:
        return min(most, self.credit)


class Resuming(Takers):
    """Those for whom one that rests goes on, or does not."""

    waits = 0

    def __init__(self, *, resumes: bool) -> None:
        self.resumes = resumes


class Topic:
    """A destination with as many messages as are asked for, seen through its share of a window."""

    def __init__(self, window: SharedWindow) -> None:
        self.woken = 0
        self.share = Share(window, self._wake)
        self.fetching = 0
        self.held = 0

    def _wake(self) -> None:
        self.woken += 1

    def fetch(self) -> bool:
        if not self.fetching:
            self.fetching = self.share.ask(0, 0)[0]
            if self.fetching:
                self.share.reserve(self.fetching)
        return self.fetching > 0

    def answer(self, messages: int) -> None:
        for _ in range(min(messages, self.fetching)):
            self.share.deliver(1, SIZE)
            self.held += 1
        if self.fetching:
            self.fetching = 0
            self.share.release(0)

    def settle(self) -> None:
        if self.held:
            self.held -= 1
            self.share.settle(1, SIZE)

    def clear(self) -> None:
        self.held = self.fetching = 0
        self.share.clear()


@settings(max_examples=examples(200))
@given(
    st.integers(1, 10),
    st.one_of(st.just("unlimited"), st.integers(1, 60)),
    st.lists(
        st.tuples(
            st.sampled_from(["fetch", "answer", "settle", "clear", "lower"]), st.integers(0, 2), st.integers(0, 9)
        )
    ),
)
def test_together_they_never_hold_more_than_the_window(
    most: int, size: int | str, steps: list[tuple[str, int, int]]
) -> None:
    shared = SharedWindow(Window(messages=most, bytes=size), Takers())
    topics = [Topic(shared) for _ in range(3)]
    for step, number, amount in steps:
        topic = topics[number]
        if step == "answer":
            # what is fetched fits in bytes but for the message that crosses
            fits = amount if size == "unlimited" else max(0, -(-(int(size) - shared.total.bytes) // SIZE))
            topic.answer(min(amount, fits))
        elif step == "lower":
            shared.configure(Window(messages=most, bytes=size))
        else:
            getattr(topic, step)()
        assert shared.total.messages == sum(topic.held for topic in topics) <= most
        assert shared.total.bytes == SIZE * shared.total.messages
        assert size == "unlimited" or shared.total.bytes < int(size) + SIZE
        assert shared.total.messages + sum(topic.fetching for topic in topics) <= most
    for topic in topics:
        topic.clear()
    assert (shared.total.messages, shared.total.bytes, shared.line, shared.under_way) == (0, 0, {}, {})
    assert topics[0].fetch(), "the whole window is free again"


def test_who_waits_is_served_before_whoever_has_just_fetched() -> None:
    shared = SharedWindow(Window(messages=4), Takers())
    one, two = Topic(shared), Topic(shared)
    assert one.fetch()
    one.answer(4)
    assert not two.fetch()
    one.settle()
    one.settle()
    assert two.woken
    assert not one.fetch()
    assert two.fetch()
    two.answer(2)
    two.settle()
    two.settle()
    assert one.fetch()


def test_a_slice_keeps_the_room_of_what_is_settled_there_for_a_moment_after_its_turn() -> None:
    """Mutants: it takes what is free beside; it keeps its turn for ever, or for any number.

    Topics, or slices whose keys take turns, do not.
    """
    shared = SharedWindow(Window(messages=4), Takers(), WindowUse(Window(messages=4)))
    one, two = Share(shared, lambda: None), Share(shared, lambda: None)
    two.ask(0, 0, now=1.0)
    two.reserve(1)
    assert one.ask(0, 0, now=1.0)[0] == 3
    one.reserve(1)
    one.deliver(1, SIZE)
    one.release(1)
    one.took(1, Turn(0.5, of_keys=False), rests=False)
    two.deliver(1, SIZE)
    two.release(1)
    two.took(1, Turn(0.1, of_keys=False), rests=False)
    assert two.ask(0, 0, now=1.01)[0] == 2
    assert one.ask(0, 0, now=1.01) == (0, 0)
    assert one.ask(1, SIZE, now=1.01 + STAY / 2)[0] == 1, "of three"
    assert one.ask(1, SIZE, due=False, now=1.01) == (0, 0)
    assert one.ask(1, SIZE, now=1.01 + STAY) == (0, 0)
    shared.of_keys = True
    assert one.ask(1, SIZE, now=1.01) == (0, 0)
    shared.of_keys = shared.in_turn = False
    assert one.ask(1, SIZE, now=1.01) == (0, 0)
    shared.in_turn = True
    for _ in range(FEW - 1):
        assert one.ask(1, SIZE, now=1.01)[0] == 1
        one.reserve(1)
        one.release(0)
    assert one.ask(1, SIZE, now=1.01) == (0, 0)


def test_who_was_woken_for_what_has_no_room_passes_it_on_once() -> None:
    """Mutants: nobody does; each does, where a fetch may leave some room; whoever fetched since does too."""
    window = SharedWindow(Window(messages=2, bytes="unlimited"), Takers())
    woken, other, third = Topic(window), Topic(window), Topic(window)
    assert other.fetch()
    woken.share.woken()
    third.share.woken()
    assert not woken.fetch()
    assert not woken.share.passes_on(rests=False), "something may be left"
    before = woken.woken, third.woken
    other.answer(2)
    assert woken.woken > before[0]
    assert third.woken > before[1], "not only the first in line"
    assert [woken.share.passes_on(rests=False) for _ in range(2)] == [True, False]
    other.settle()
    assert not third.share.passes_on(rests=False), "there is room"
    woken.share.woken()
    assert woken.fetch()
    woken.answer(1)
    assert not woken.share.passes_on(rests=False)
    assert third.share.passes_on(rests=False)
    other.settle()
    third.share.woken()
    assert third.share.passes_on(rests=True)


def test_who_rests_leaves_its_turn_to_others() -> None:
    """Mutant: it stays the first in line, and nobody fetches until somebody asks at it."""
    window = SharedWindow(Window(messages=2, bytes="unlimited"), Takers())
    resting, other, third = Topic(window), Topic(window), Topic(window)
    assert third.fetch()
    assert not resting.fetch()
    third.answer(2)
    third.settle()
    assert not other.fetch(), "it is the turn of the first"
    before = other.woken
    assert not resting.share.passes_on(rests=True)
    assert other.woken > before
    assert other.fetch()


def test_only_those_that_go_on_are_woken_of_those_that_rest() -> None:
    """Mutants: all of them, at each settlement, and there may be a thousand topics; none."""
    window = SharedWindow(Window(messages=2, bytes="unlimited"), Takers())
    other, *both = Topic(window), Topic(window), Topic(window)
    for resting, resumes in zip(both, (True, False), strict=True):
        resting.share.demand = Resuming(resumes=resumes)
        resting.share.passes_on(rests=True)
    assert other.fetch()
    other.answer(2)
    before = [resting.woken for resting in both]
    other.settle()
    assert [resting.woken for resting in both] == [before[0] + 1, before[1]]


def test_who_left_the_line_holds_nobody_up() -> None:
    shared = SharedWindow(Window(messages=2), Takers())
    one, two, three = Topic(shared), Topic(shared), Topic(shared)
    assert one.fetch()
    one.answer(2)
    assert not two.fetch()
    assert not three.fetch()
    one.clear()
    two.clear()
    assert three.woken
    assert three.fetch()


def test_a_rotation_serves_its_lanes_in_turn() -> None:
    rotation: RoundRobin[str] = RoundRobin()
    assert not rotation
    lanes = [rotation.lane() for _ in range(3)]
    for lane, items in zip(lanes, ("aaaa", "bb", "c"), strict=True):
        for item in items:
            lane.append(item)
    assert (len(rotation), list(rotation)) == (7, list("abcabaa"))
    assert [rotation.popleft() for _ in range(5)] == list("abcab")
    lanes[0].clear()
    assert not rotation
    lanes[1].append("b")
    assert [*rotation] == ["b"]
    rotation.clear()
    assert (len(rotation), bool(rotation)) == (0, False)
    lanes[2].append("c")
    lanes[1].append("b")
    assert sorted(rotation.popleft() for _ in range(2)) == ["b", "c"]


class Message:
    raw_id, size = b"", SIZE


class Slice:
    """A destination with messages without end, whose answers come when the test says so."""

    def __init__(self, window: SharedWindow) -> None:
        self.share = Share(window, lambda: None)
        self.settled: list[tuple[str, Message, None]] = []
        self.share.outcomes = self.settled
        self.in_hand = self.fits = 0

    def begin(self) -> int:
        """Begin a call, if none is under way; returns how many messages it is to fetch."""
        room = 0
        if not self.share.is_busy:
            room, size = self.share.ask(len(self.settled), SIZE * len(self.settled))
            self.fits = -(-size // SIZE)  # with the one that crosses
            self.share.calls(begins=bool(room or self.settled))
            if room:
                self.share.reserve(room)
        return room

    def settle(self) -> None:
        if self.in_hand:
            self.in_hand -= 1
            self.settled.append(("accepted", Message(), None))

    def answer(self, most: int) -> None:
        share = self.share
        if share.is_busy:
            share.answered(0.001)
            came = min(share.reserved, self.fits, most)
            share.settle(len(self.settled), SIZE * len(self.settled))
            self.settled.clear()
            share.deliver(came, SIZE * came)
            back = share.surplus([Message()] * came)
            self.settled.extend([("released", Message(), None)] * back)
            self.in_hand += came - back
            share.release(came)
            share.calls(begins=False)

    def late(self) -> None:
        if self.share.is_busy:
            self.share.overdue()


@settings(max_examples=examples(400))
@given(
    st.integers(1, 10),
    st.one_of(st.just("unlimited"), st.integers(1, 60)),
    st.lists(
        st.tuples(
            st.sampled_from(["begin", "begin", "answer", "answer", "settle", "late"]),
            st.integers(0, 2),
            st.integers(0, 9),
        ),
        max_size=60,
    ),
)
def test_those_that_answer_go_on_and_nobody_has_more_in_hand_than_the_window(
    most: int, size: int | str, steps: list[tuple[str, int, int]]
) -> None:
    """Mutants: what is settled, or fetched, where no answer comes counts; what comes late is kept."""
    shared = SharedWindow(Window(messages=most, bytes=size), Takers())
    slices = [Slice(shared) for _ in range(3)]
    for step, number, amount in steps:
        one = slices[number]
        getattr(one, step)(*([amount] if step == "answer" else []))
        in_hand = sum(one.in_hand for one in slices)
        assert in_hand <= most
        assert size == "unlimited" or SIZE * in_hand < int(size) + SIZE
    for one in (slices[2], *slices[:2] * 3):  # one may be in line until the other is late
        for _ in range(most):
            one.settle()
        one.begin()
        if one is not slices[2]:
            one.late()
            continue
        for _ in range(2):
            one.answer(0)
            one.begin()
        one.answer(0)
    assert not sum(one.in_hand for one in slices)
    assert slices[2].begin() >= most / 2, "two hang with all that they had and were asked for, and the third goes on"


def test_what_is_settled_where_no_answer_comes_wakes_whoever_is_first_in_line() -> None:
    """Mutant: the others hear nothing of it."""
    shared = SharedWindow(Window(messages=4), Takers())
    one, two = Topic(shared), Topic(shared)
    assert one.fetch()
    one.answer(4)
    assert not two.fetch()
    one.share.calls(begins=True)
    one.share.settles()
    assert not two.woken, "a call is under way, and not late"
    one.share.overdue()
    before = two.woken
    one.share.settles()
    assert two.woken > before


def test_a_call_is_late_after_a_multiple_of_what_is_usual_there() -> None:
    """Mutants: it is late after the same time everywhere; one call that hung makes it patient."""
    share = Topic(SharedWindow(Window(messages=4), Takers())).share
    assert share.patience == PATIENCE
    share.answered(60.0)
    assert share.patience <= 2 * PATIENCE
    for _ in range(20):
        share.answered(0.1)
    assert share.patience > 3 * 0.1


def test_what_comes_late_counts_for_turns_as_far_as_it_is_kept() -> None:
    """Mutant: what goes back counts, too."""
    shared = SharedWindow(Window(messages=4), Takers())
    one, two = Slice(shared), Slice(shared)
    assert one.begin() == 4
    one.late()
    assert two.begin() == 4
    one.answer(4)
    assert one.in_hand == 0
    one.share.took(4, Turn(2.0), rests=False)
    assert one.share.turn.reached == 0


def test_what_comes_late_has_the_room_of_what_is_settled_where_no_answer_comes() -> None:
    """Mutant: that counts."""
    shared = SharedWindow(Window(messages=4), Takers())
    one, two = Slice(shared), Slice(shared)
    assert one.begin() == 4
    one.answer(4)
    for _ in range(4):
        one.settle()
    one.begin()
    one.late()
    assert two.begin() == 4
    two.late()
    two.answer(4)
    assert two.in_hand == 4


def test_what_comes_late_and_is_too_large_beside_what_the_others_have_goes_back() -> None:
    """Mutants: only messages count; so does only what is here, and not what one that answers is about to bring."""
    shared = SharedWindow(Window(messages="unlimited", bytes=4 * SIZE), Takers())
    one, two = Slice(shared), Slice(shared)
    for has in (4, 0):
        assert one.begin()
        one.late()
        assert two.begin()
        if has:
            two.answer(has)
        one.answer(2)
        assert one.in_hand == 0
        two.answer(0)
        for each in (one, two):  # all is settled
            for _ in range(has):
                each.settle()
            each.begin()
            each.answer(0)


def test_what_comes_late_goes_back_where_those_who_take_it_have_no_room() -> None:
    """Mutant: only the window counts. An AMQP client has given credit for so many."""
    takers = Takers()
    shared = SharedWindow(Window(messages=10), takers)
    one, two = Slice(shared), Slice(shared)
    takers.credit = 4
    assert one.begin() == 4
    one.late()
    assert two.begin() == 4
    two.answer(4)
    takers.credit -= 8
    one.answer(4)
    assert (one.in_hand, two.in_hand) == (0, 4)


def test_a_late_one_asks_for_nothing_new_and_is_forgotten_once_it_is_cleared() -> None:
    """Mutants: it asks; it is late for ever."""
    shared = SharedWindow(Window(messages=4), Takers())
    one, two = Slice(shared), Slice(shared)
    assert one.begin() == 4
    one.late()
    assert one.share.ask(0, 0) == one.share.free(0) == (0, 0)
    assert one.share.ask(0, 0, again=True)[0] == 4
    one.share.clear()
    assert not shared.late
    assert two.begin() == 4


def test_whoever_has_nothing_but_what_is_settled_waits_for_no_turn_of_a_late_one() -> None:
    """Mutant: what is settled there is still to be worked on."""
    shared = SharedWindow(Window(messages=8), Takers())
    one, two = Slice(shared), Slice(shared)
    shared.in_turn = shared.of_keys = True
    for each in (one, two):
        each.share.turn.is_known = True
    assert one.begin() == 8
    one.answer(8)
    for _ in range(8):
        one.settle()
    one.begin()
    one.late()
    two.share.turn.reached = one.share.turn.due
    assert two.begin() == 8
