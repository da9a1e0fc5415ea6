"""Who waits for whom, from notes of waits alone, and what is told of a deadlock."""

from hypothesis import given
from hypothesis import strategies as st

from headgate.core import deadlock
from headgate.core.deadlock import Deadlock, Graph, Party, Wait, deadlocks
from headgate.explain.wait_edges import suspects, waiter
from headgate.namespace.deadlocks import FoundDeadlock
from headgate.redis.keys import link_id
from headgate.redis.stores.notes import Tie

NAMES = st.sampled_from("abcde")
TIES = st.lists(
    st.builds(lambda source, number, at: Tie(source, f"s~{number:08x}.1", at, "1.0"), NAMES, st.integers(0, 5), NAMES),
    max_size=12,
    unique_by=lambda tie: (tie.destination, tie.consumer),
)


def with_all_full(ties: list[Tie], known: list[Tie]) -> Graph:
    """Return who waits for whom if every queue is full, nobody consumes but who is tied, and these ties are known."""
    graph: dict[Party, Wait] = {}
    for tie in known:
        graph[waiter(tie)] = deadlock.session([Party("queue", tie.at)])
        there = [waiter(one) if one in known else Party("session", one.session) for one in ties
                 if one.destination == tie.destination]  # fmt: skip
        graph[Party("queue", tie.destination)] = deadlock.queue(there)
    return graph


@given(TIES)
def test_nothing_of_a_ring_is_left_out_of_the_suspects(ties: list[Tie]) -> None:
    """Mutant: one pass is enough."""
    found = suspects(ties)
    assert set(deadlocks(with_all_full(ties, found))) == set(deadlocks(with_all_full(ties, ties)))
    assert {tie.at for tie in found} == {tie.destination for tie in found}


def test_a_line_of_slow_programs_is_nobodys_suspect() -> None:
    line = [Tie(f"q{number}", f"s~{number:08x}.1", f"q{number + 1}", "1.0") for number in range(50)]
    assert suspects(line) == []
    assert len(suspects([*line, Tie("q50", "s~99999999.1", "q48", "1.0")])) == 3, "but for those that close a ring"


def test_a_session_that_sends_to_two_places_is_two_that_wait() -> None:
    """Each by another task: that one can go on does not mean that the other can."""
    to_y, to_z = Tie("x", "s~00000000.1", "y", "1.0"), Tie("x", "s~00000000.2", "z", "1.0")
    assert waiter(to_y) != waiter(to_z)
    assert str(waiter(to_y)) == str(waiter(to_z)) == "session s~00000000"


def test_a_link_is_named_by_its_ends() -> None:
    tie = Tie("orders/eu", f"{link_id('orders%2Feu>billing')}.1", "billing", "1.0")
    assert str(waiter(tie)) == "link orders%2Feu>billing"


def test_what_is_told_is_read_as_it_was() -> None:
    ties = [Tie("x", "a~00000000.1", "y", "1.0"), Tie("y", "b~00000000.1", "x", "1.0")]
    (found,) = deadlocks(with_all_full(ties, ties))
    assert Deadlock.from_dict(found.as_dict()) == found
    told = FoundDeadlock(found, "fail", "a send was made to fail", 1.5)
    read = FoundDeadlock.read(told.note, 500)
    assert (read.deadlock, read.action, read.done, read.lasted, read.unseen) == (
        found, "fail", "a send was made to fail", 1.5, 0.5,
    )  # fmt: skip
    assert (read.id, read.is_current, read.destinations) == (told.id, True, ("x", "y"))
    assert not FoundDeadlock.read(told.note, 5000).is_current
