"""Counts how far ledgers were read, how much more is taken, and in which pieces. Pure.

The position in a ledger is ``{"epoch": ..., "seq": ...}``: the number of the last entry that was read, and the epoch
that it reported. A failover that lost the end of a ledger, and a destination that was removed and made again, number
their entries anew; the epoch is higher then, which distinguishes what was read from what was not, see :func:`resume`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Position = dict[str, int]
"""``epoch`` (0: not known) and ``seq`` (0: before the first)."""
Offset = dict[str, Position]
"""Destination -> position, sorted by name: Spark compares offsets as text."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """`Bounds` says how far one ledger goes.

    Attributes:
        first: number of its oldest entry.
        last: number of its newest.
        epoch: that the newest says; 0 when that is not known.
        at: epoch of the entry that was read last; None when it is not there, or not readable.
    """

    first: int
    last: int
    epoch: int = 0
    at: int | None = None


@dataclass(frozen=True, slots=True)
class Range:
    """A range has the numbers of one ledger to read, the last one included.

    Attributes:
        back: the number that the ledger had before it went back; None when it did not.
    """

    destination: str
    first: int
    last: int
    back: int | None = None


def position(seq: int, epoch: int | None) -> Position:
    """Return a position."""
    return {"epoch": epoch or 0, "seq": seq}


def went_back(found: Bounds, start: Position) -> bool | None:
    """Return whether the ledger's numbers after ``start`` are not those that follow what was read.

    None: it went back, but nothing that was not read is there yet.
    """
    if start["seq"] == 0 or found.at == start["epoch"]:
        return False
    if start["epoch"] == 0:
        return start["seq"] > found.last
    if found.at is None and start["seq"] <= found.last:  # trimmed since, as far as can be known
        return False
    return True if found.epoch > start["epoch"] else None


def share(backlog: Mapping[str, int], most: int | None) -> dict[str, int]:
    """Return how much is taken of each: in proportion, so that event time advances alike everywhere; all if it fits.

    Args:
        backlog: destination -> entries that are there.
        most: entries in all; None for no limit. At least one is taken of what there is.
    """
    total = sum(backlog.values())
    if most is None or total <= most:
        return dict(backlog)
    most = max(most, 1)
    taken = {name: count * most // total for name, count in backlog.items()}
    rest = most - sum(taken.values())
    for name in sorted(backlog, key=lambda name: (taken[name] - backlog[name] * most / total, name))[:rest]:
        taken[name] += 1  # who lost most by rounding; there are more of these than the rest is
    return taken


def pack(ranges: Sequence[Range], rows: int) -> list[list[Range]]:
    """Return the ranges in pieces of about ``rows`` entries: long ones are cut, short ones put together."""
    pieces: list[list[Range]] = []
    room = 0
    for whole in ranges:
        first, back = whole.first, whole.back
        while first <= whole.last:
            if room == 0:
                pieces.append([])
                room = rows
            last = min(whole.last, first + room - 1)
            pieces[-1].append(Range(whole.destination, first, last, back))
            room -= last - first + 1
            first, back = last + 1, None
    return pieces
