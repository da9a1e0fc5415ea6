"""Which waits never end, as a pure question: known cases, and generated graphs against brute force."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.core import deadlock
from headgate.core.deadlock import ConfirmedDeadlocks, Graph, Party, Wait, deadlocks, stuck, unchanged
from tests.support.extent import examples

NODES = [Party("session", "a"), Party("session", "b"), Party("session", "c"), Party("link", "l"),
         Party("queue", "x"), Party("queue", "y"), Party("topic", "t")]  # fmt: skip
GROUPS = st.lists(st.sampled_from(NODES), max_size=3, unique=True).map(tuple)
WAITS = st.builds(Wait, st.lists(GROUPS, max_size=3).map(tuple), st.integers(0, 1))
GRAPHS = st.dictionaries(st.sampled_from(NODES), WAITS, max_size=7)


def a(name: str) -> Party:
    return Party("session", name)


def q(name: str) -> Party:
    return Party("queue", name)


def figure_14() -> dict[Party, Wait]:
    """Program a sends to x and consumes y, program b sends to y and consumes x."""
    return {
        a("a"): deadlock.session([q("x")]),
        a("b"): deadlock.session([q("y")]),
        q("x"): deadlock.queue([a("b")]),
        q("y"): deadlock.queue([a("a")]),
    }


def by_brute_force(graph: Graph) -> set[Party]:
    """All sets of which each member has a group that lies within the set, united: they wait for one another only."""
    found: set[Party] = set()
    for size in range(1, len(graph) + 1):
        for some in combinations(graph, size):
            inside = set(some)
            if all(any(group and inside.issuperset(group) for group in graph[party].needs) for party in some):
                found |= inside
    return found


@settings(max_examples=examples(1500), deadline=None)
@given(GRAPHS)
def test_what_is_stuck_is_what_brute_force_finds(graph: dict[Party, Wait]) -> None:
    assert stuck(graph) == by_brute_force(graph)


@settings(max_examples=examples(500), deadline=None)
@given(GRAPHS)
def test_every_cycle_is_one_and_every_stuck_party_leads_to_one(graph: dict[Party, Wait]) -> None:
    found = deadlocks(graph)
    left = stuck(graph)
    assert bool(found) == bool(left)
    for cycle in found:
        for step, after in zip(cycle.steps, (*cycle.steps[1:], cycle.steps[0]), strict=True):
            assert step.what == after.who
            assert (step.what, *step.others) in graph[step.who].needs
            assert left.issuperset((step.who, step.what, *step.others))


@settings(max_examples=examples(500), deadline=None)
@given(GRAPHS, GRAPHS)
def test_what_two_looks_find_each_of_them_finds(before: dict[Party, Wait], now: dict[Party, Wait]) -> None:
    both = stuck(unchanged(before, now))
    assert both <= stuck(before) & stuck(now)
    assert stuck(unchanged(now, now)) == stuck(now)


def test_two_programs_that_wait_for_each_other_are_named_in_order() -> None:
    (found,) = deadlocks(figure_14())
    assert str(found) == (
        "queue x waits for session b to consume; session b waits for room in queue y; "
        "queue y waits for session a to consume; session a waits for room in queue x"
    )


def test_one_more_consumer_that_waits_for_nobody_is_enough() -> None:
    graph = figure_14() | {q("x"): deadlock.queue([a("b"), a("free")])}
    assert not deadlocks(graph)


def test_one_more_consumer_that_is_stuck_too_is_not_and_is_named() -> None:
    graph = figure_14() | {q("x"): deadlock.queue([a("b"), a("c")]), a("c"): deadlock.session([q("x")])}
    (found,) = deadlocks(graph)
    assert "queue x waits for session b to consume, or session c" in str(found)


def test_a_topic_needs_every_subscription_and_of_each_any_consumer() -> None:
    news = Party("topic", "news")
    waits = {a("a"): deadlock.session([news])}
    for subscriptions, is_stuck in (
        ({"audit": [a("a")], "mail": [a("free")]}, True),
        ({"audit": [a("a"), a("free")], "mail": [a("free")]}, False),
        ({"audit": [], "mail": [a("free")]}, False),
    ):
        assert bool(deadlocks(waits | {news: deadlock.topic(subscriptions)})) == is_stuck
    (found,) = deadlocks(waits | {news: deadlock.topic({"audit": [a("a")], "mail": [a("free")]})})
    assert "topic news (subscription audit) waits for session a to consume" in str(found)


def test_a_queue_without_a_consumer_is_no_deadlock_for_one_may_come() -> None:
    assert not deadlocks({a("a"): deadlock.session([q("x")]), q("x"): deadlock.queue([])})


def test_a_session_whose_other_send_goes_on_is_not_stuck() -> None:
    graph = figure_14() | {a("a"): deadlock.session([q("x"), q("free")])}
    assert not deadlocks(graph)


def test_a_link_needs_room_in_all_its_targets() -> None:
    bridge = Party("link", "bridge")
    graph = {bridge: deadlock.link([q("full"), q("free")]), q("full"): deadlock.queue([a("a")]),
             a("a"): deadlock.session([q("source")]), q("source"): deadlock.queue([bridge])}  # fmt: skip
    (found,) = deadlocks(graph)
    assert bridge in found.parties
    assert not deadlocks(graph | {q("full"): deadlock.queue([a("a"), a("free")])})


def ring(brokers: int) -> dict[Party, Wait]:
    """Brokers in a ring, each with a full queue and a bridge to the next one, which is all that consumes it."""
    names = [chr(ord("a") + i) for i in range(brokers)]
    graph: dict[Party, Wait] = {}
    for here, there in zip(names, (*names[1:], names[0]), strict=True):
        bridge = Party("link", f"{here}-{there}")
        graph[q(f"{here}:orders")] = deadlock.queue([bridge])
        graph[bridge] = deadlock.link([q(f"{there}:orders")])
    return graph


def test_four_brokers_whose_bridges_wait_for_each_other_are_one_cycle() -> None:
    """AMQ-4138: each broker's bridge blocks on the next broker's full queue, and so reads nothing from its own."""
    graph = ring(4)
    producer = {a("producer"): deadlock.session([q("a:orders")])}
    (found,) = deadlocks(graph | producer)
    assert len(found.steps) == 8
    assert {party.name for party in found.parties if party.kind == "link"} == {"a-b", "b-c", "c-d", "d-a"}
    assert not deadlocks(graph | {q("c:orders"): deadlock.queue([Party("link", "c-d"), a("worker")])})


def test_only_what_did_not_change_between_two_looks_counts() -> None:
    passes = ConfirmedDeadlocks()
    first = figure_14()
    assert not passes.look(first)
    moved = first | {q("x"): deadlock.queue([a("b")], epoch=1)}
    assert not passes.look(moved), "something was settled in between"
    assert passes.look(moved)
    assert not passes.look({}), "it was resolved"
    assert not passes.look(moved), "and is there again: another one, for all that is known"
