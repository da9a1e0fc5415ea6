"""A sum of what ledgers of several sites say is held of a pool, as `headgate pipeline audit-pool` has it, in Python."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.pipeline.story import Row

SEQ, MS, DETAIL, EPOCH = 0, 1, 7, 12
"""Where these are in a row."""


@dataclass(frozen=True, order=True)
class Change:
    """One change of what a destination is known to hold; of a moment, falls come before rises."""

    at: int
    size: int
    place: tuple[int, str]
    seq: int
    granted: bool = False
    anew: bool = False


def changes(place: tuple[int, str], ledger: Sequence[Row], skew_ms: int, pool: str) -> Iterator[Change]:
    """Yield what one ledger says; a gap and a later epoch end what is known, as the ledger's end does."""
    slice_of = re.compile(rf"(?:^|;)slice:{re.escape(pool)}:(\d+):(\d+):\d+")
    rows = sorted(ledger, key=lambda row: (row[EPOCH], row[SEQ]))
    held, knows = 0, False
    for before, row in pairwise([None, *rows]):
        assert row is not None
        follows = before is not None and (before[EPOCH], before[SEQ] + 1) == (row[EPOCH], row[SEQ])
        anew = before is not None and before[EPOCH] < row[EPOCH]
        if not follows:
            if before is not None:
                yield Change(before[MS] - skew_ms, -held, place, before[SEQ])
            held, knows = 0, row[SEQ] == 1
        found = slice_of.search(row[DETAIL])
        size = int(found[1]) - int(found[2]) if found else held
        at = row[MS] + (skew_ms if size > held else -skew_ms)
        yield Change(at, size - held, place, row[SEQ], granted=knows and size > held, anew=anew)
        held, knows = size, knows or found is not None
    if rows:
        yield Change(rows[-1][MS] - skew_ms, -held, place, rows[-1][SEQ])


def above(
    ledgers: Mapping[tuple[int, str], Sequence[Row]], limit: int, *, skew_ms: int, pool: str = "orders"
) -> tuple[list[tuple[str, int, str]], int]:
    """Return each grant by which all held more than the limit, with its verdict, and the most that was held."""
    found, total, most, lost = list[tuple[str, int, str]](), 0, 0, False
    for change in sorted(one for place, rows in ledgers.items() for one in changes(place, rows, skew_ms, pool)):
        total, lost = total + change.size, lost or change.anew
        most = max(most, total)
        if change.granted and total > limit:
            found.append((change.place[1], change.seq, "unproven" if lost else "violated"))
    return found, most
