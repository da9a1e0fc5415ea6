"""Messages are known by their numbers, whoever they are delivered to, and how often.

Those of a queue with slices are numbered at each slice. Here a message has one whole number, in which that of its slice
is above its own; so one of a queue without slices, and of a first slice, has its own.
"""

from collections.abc import Collection
from typing import Final

from headgate.core.names import read_id

_AT_A_SLICE: Final = 1 << 54
"""Numbers at a slice are below that."""


def number_of(id_: str) -> int:
    """Return the number of a message from its id.

    >>> number_of("17-100"), at_slice(number_of("3:17-100"))
    (17, (3, 17))
    """
    slice_, own = read_id(id_) or (0, id_)
    return slice_ * _AT_A_SLICE + int(own.partition("-")[0])


def at_slice(number: int) -> tuple[int, int]:
    """Return the number of a message's slice, and its own there."""
    return divmod(number, _AT_A_SLICE)


def ranges(numbers: Collection[int]) -> str:
    """Return numbers as text.

    >>> ranges([3, 4, 5, 9, number_of("2:7-100"), number_of("2:8-100")])
    '3-5,9,2:7-8'
    """
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(_text(first, last) for first, last in spans)


def numbers_of(text: str) -> set[int]:
    """Return the result of :func:`ranges`."""
    found: set[int] = set()
    for span in filter(None, text.split(",")):
        slice_, _, own = span.rpartition(":")
        first, _, last = own.partition("-")
        base = int(slice_ or 0) * _AT_A_SLICE
        found.update(range(base + int(first), base + int(last or first) + 1))
    return found


def _text(first: int, last: int) -> str:
    slice_, own = at_slice(first)
    text = f"{own}" if first == last else f"{own}-{at_slice(last)[1]}"
    return f"{slice_}:{text}" if slice_ else text
