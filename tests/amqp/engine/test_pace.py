from hypothesis import given
from hypothesis import strategies as st

from headgate_coordinator.node.credit.link_pace import AHEAD, LinkPace


def test_without_a_rate_there_is_all_the_credit() -> None:
    pace = LinkPace()
    pace.book(1.0, 1000, 1 << 30)
    assert pace.credit(1.0, 100) == (100, 0.0)


@given(rate=st.floats(1, 10_000), burst=st.integers(1, 200))
def test_a_client_that_uses_all_its_credit_keeps_to_its_rate(rate: float, burst: int) -> None:
    """Mutant: `book` takes nothing."""
    pace, now, sent = LinkPace(), 5.0, 0
    pace.set((rate, None))
    for _ in range(50):
        credit, again = pace.credit(now, burst)
        assert (credit == 0) == (again > 0)
        pace.book(now, credit, 10 * credit)
        sent += credit
        now += again
    assert sent <= rate * (now - 5.0) + max(1, rate * AHEAD) + 1


def test_bytes_have_a_rate_of_their_own() -> None:
    pace = LinkPace()
    pace.set((None, 1000.0))
    assert pace.credit(1.0, 100) == (1, 0.0)
    pace.book(1.0, 1, 5000)
    credit, again = pace.credit(1.0, 100)
    assert credit == 0
    assert again == 5.0
    assert pace.credit(6.0, 100)[0] == 1


def test_another_rate_holds_at_once() -> None:
    pace = LinkPace()
    pace.set((1.0, None))
    pace.book(1.0, 100, 100)
    assert pace.credit(1.0, 100)[0] == 0
    pace.set((None, None))
    assert pace.credit(1.0, 100)[0] == 100
