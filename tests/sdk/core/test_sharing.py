"""One window over several destinations: never exceeded whatever they do, nobody passed over, nothing out of turn."""

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate import Window
from headgate.core.sharing import RoundRobin, Share, SharedWindow
from tests.support.extent import examples

SIZE = 10


class Takers:
    """Those who take whatever there is."""

    asked = 0

    def room(self, most: int) -> int:
        return most


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
