"""Single faults in a ledger: an entry lost, doubled, altered in a number by one, or changed with its neighbour."""

from collections.abc import Iterator, Sequence
from typing import Final

from headgate_pipeline.audit.findings import ROW
from tests.pipeline.story import Row

NUMERIC: Final = (
    "seq", "bytes", "messages", "first", "pending_bytes", "pending_messages", "leased_bytes", "leased_messages",
    "epoch", "version",
)  # fmt: skip

UNTOLD: Final = frozenset(
    {
        ("settle", "first"),  # how many were rejected: nothing else in a ledger tells
        ("drop", "bytes"),  # likewise what was dropped
        ("drop", "messages"),
        ("take", "messages"),  # and what was refused
        ("take", "first"),  # a microsecond, where entries tell milliseconds
    }
)
"""What no other column of any entry depends on, so that a difference of one cannot be seen."""

Fault = tuple[str, list[Row]]


def faults(ledger: Sequence[Row]) -> Iterator[Fault]:
    """Every faulty copy, with its name."""
    for at, row in enumerate(ledger):
        before, after = list(ledger[:at]), list(ledger[at + 1 :])
        if after:  # that the last is missing is not seen in what is there
            yield f"{row[0]} lost", before + after
        yield f"{row[0]} doubled", [*before, row, row, *after]
        for column in NUMERIC:
            for step in (1, -1):
                if (row[2], column) not in UNTOLD:
                    yield f"{row[0]} {row[2]} {column} {step:+}", [*before, altered(row, column, step), *after]
        if after and not alike(row, after[0]):
            yield f"{row[0]} swapped", [*before, (row[0], *after[0][1:]), (after[0][0], *row[1:]), *after[1:]]


def altered(row: Row, column: str, step: int) -> Row:
    at = ROW.index(column)
    return (*row[:at], row[at] + step, *row[at + 1 :])


def alike(one: Row, other: Row) -> bool:
    """Whether two entries of the same moment leave the counters as they are: which came first does not matter."""
    return one[1] == other[1] and one[8:] == other[8:]
