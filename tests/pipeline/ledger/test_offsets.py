"""How far is read: shares, pieces, and ledgers that went back."""

import json

from hypothesis import given
from hypothesis import strategies as st

from headgate_pipeline.ledger.offsets import Bounds, Range, pack, position, share, went_back

backlogs = st.dictionaries(st.text("abc", min_size=1, max_size=3), st.integers(1, 10_000), max_size=8)


@given(backlogs, st.integers(1, 20_000))
def test_shares_are_in_proportion_and_never_more_than_allowed(backlog: dict[str, int], most: int) -> None:
    """Mutant: the same share for each, which would let one ledger's event time run ahead of another's."""
    taken = share(backlog, most)
    total = sum(backlog.values())
    assert sum(taken.values()) == min(most, total)
    for name, count in backlog.items():
        assert 0 <= taken[name] <= count
        assert abs(taken[name] - count * min(1, most / max(total, 1))) <= 1


def test_without_a_limit_all_is_taken() -> None:
    assert share({"a": 5, "b": 1}, None) == {"a": 5, "b": 1}


@given(st.lists(st.integers(0, 50), max_size=8), st.integers(1, 40))
def test_pieces_hold_every_number_once(sizes: list[int], rows: int) -> None:
    """Mutant: a range that is cut goes on one number too late."""
    ranges = [Range(f"d{index}", 11, 10 + size, back=99) for index, size in enumerate(sizes)]
    pieces = pack(ranges, rows)
    parts = [part for piece in pieces for part in piece]
    numbers = [(part.destination, seq) for part in parts for seq in range(part.first, part.last + 1)]
    assert numbers == [(whole.destination, seq) for whole in ranges for seq in range(whole.first, whole.last + 1)]
    for piece in pieces[:-1]:
        assert sum(part.last - part.first + 1 for part in piece) == rows
    backs = [part.destination for part in parts if part.back == 99]
    assert backs == [whole.destination for whole in ranges if whole.last >= whole.first]


def test_what_tells_a_ledger_that_went_back() -> None:
    """Mutant: the epoch of the entry that was read last is not compared."""
    start = position(500, 7)
    assert went_back(Bounds(1, 600, epoch=7, at=7), start) is False
    assert went_back(Bounds(1, 600, epoch=9, at=7), start) is False  # a new epoch follows what was read
    assert went_back(Bounds(550, 600, epoch=9, at=None), start) is False  # trimmed
    assert went_back(Bounds(1, 600, epoch=9, at=9), start) is True  # its end was lost, and written anew
    assert went_back(Bounds(1, 20, epoch=9, at=None), start) is True
    assert went_back(Bounds(1, 480, epoch=7, at=None), start) is None  # its end was lost, and nothing is new yet
    assert went_back(Bounds(1, 20, epoch=9, at=None), position(0, 0)) is False
    assert went_back(Bounds(1, 20, epoch=9, at=None), position(30, 0)) is True
    assert went_back(Bounds(31, 40, epoch=9, at=None), position(30, 0)) is False


def test_a_position_is_written_in_a_fixed_order() -> None:
    assert json.dumps(position(3, None)) == '{"epoch": 0, "seq": 3}'
