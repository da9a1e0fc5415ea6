"""The keys of a limiter with slices are pinned: each lies in one of them, and a change of their number moves some.

A change has a number of its own. First every slice hears of it with an odd version, and admits nothing more for keys
that are to move; then what is kept of these is brought to where they belong; then every slice hears the even version
that follows. Each step may be repeated by anybody, and broken off.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from headgate.core.limiting.amounts import NO_KEY

_PRIME: Final = 4294967291
_STEP: Final = 65599
_PART: Final = "%."
"""Before the key of another slice that has a part of what all keys have together; no encoded key begins so."""
_PARTS: Final = 1 << 62
"""Above the numbers of holds: those of the parts that belong to them."""
_OF_SLICE: Final = 1 << 56
"""Numbers of holds of one slice: those of the next follow, so that no two slices give the same id to a session."""


@lru_cache(maxsize=1 << 14)
def slice_of_key(key: str, slices: int) -> int:
    """Return the slice that an encoded key lies in, as lua/lib/pinned.lua has it; what has no key is at the first.

    >>> [slice_of_key(f"tenant-{number}", 4) for number in range(8)], slice_of_key("*", 4)
    ([2, 3, 0, 1, 2, 3, 0, 1], 0)
    """
    found = 0
    for byte in b"" if key == NO_KEY or is_part(key) else key.encode():
        found = (found * _STEP + byte) % _PRIME
    return found % slices


def name_of_part(key: str) -> str:
    """Return the name under which an encoded key has its part at the first slice.

    >>> name_of_part("tenant-7"), slice_of_key(name_of_part("tenant-7"), 4)
    ('%.tenant-7', 0)
    """
    return _PART + key


def is_part(name: str) -> bool:
    """Return whether an encoded key is the name under which one has its part at the first slice."""
    return name.startswith(_PART)


def key_of_part(name: str) -> str:
    """Return the encoded key of which this is the part, or which it is itself.

    >>> key_of_part("%.tenant-7"), key_of_part("tenant-7")
    ('tenant-7', 'tenant-7')
    """
    return name.removeprefix(_PART)


def part_of_hold(hold: str) -> str:
    """Return the id of the hold at the first slice that is the part of one at another slice.

    >>> part_of_hold("ann~1.17")
    'ann~1.4611686018427387921'
    """
    word, _, number = hold.rpartition(".")
    return f"{word}.{int(number) + _PARTS}"


def hold_of_part(hold: str) -> str:
    """Return the id of the hold that one belongs to as its part; that of any other is its own.

    >>> hold_of_part(part_of_hold("ann~1.17")), hold_of_part("ann~1.17")
    ('ann~1.17', 'ann~1.17')
    """
    word, _, number = hold.rpartition(".")
    return f"{word}.{int(number) - _PARTS}" if int(number) > _PARTS else hold


def numbered(slice_: int, number: int) -> int:
    """Return the number of a hold of a slice, from its number among the holds there."""
    return _OF_SLICE * slice_ + number % _OF_SLICE


def slice_of_hold(hold: str) -> int:
    """Return the slice that the id of a hold names; of a hold that is older than its limiter's slices that is wrong.

    >>> slice_of_hold(f"ann~1.{numbered(3, 17)}"), slice_of_hold("ann~1.17")
    (3, 0)
    """
    return int(hold.rpartition(".")[2]) // _OF_SLICE


class Pins(NamedTuple):
    """Pins say over how many slices keys are spread.

    Attributes:
        version: of the pins; odd while keys are on their way.
        slices: over which they are spread.
        before: over which they were before that.
    """

    version: int = 0
    slices: int = 1
    before: int = 1

    @classmethod
    def read(cls, text: str) -> "tuple[Pins, int]":
        """Return the pins of a text of the state, and the epoch in which their slice had all its keys.

        >>> Pins.read("2 4 1 1790000000000"), Pins.read("")
        ((Pins(version=2, slices=4, before=1), 1790000000000), (Pins(version=0, slices=1, before=1), 0))
        """
        if not text:
            return cls(), 0
        version, slices, before, epoch = map(int, text.split())
        return cls(version, slices, before), epoch

    @property
    def is_moving(self) -> bool:
        """Whether keys are on their way."""
        return self.version % 2 == 1


class PinnedSlice(NamedTuple):
    """One slice of a limiter knows pins.

    Attributes:
        epoch: of the slice.
        pins: as it knows them.
        sure: the epoch in which it knew all that came to it; 0 for none.
    """

    epoch: int
    pins: Pins
    sure: int

    @property
    def is_sure(self) -> bool:
        """Whether it surely has all that came to it. The first slice has all there is before there are others."""
        return self.sure == self.epoch


class Change(NamedTuple):
    """A change is what has to be done until all keys are where they belong.

    Attributes:
        moving: the pins while keys are on their way.
        settled: the pins once they are there.
        doubted: slices that lost something, or never had anything; each gets all that others have of its keys.
    """

    moving: Pins
    settled: Pins
    doubted: frozenset[int]

    @property
    def moves_all(self) -> bool:
        """Whether keys of every slice may have to move: their number changes."""
        return self.moving.is_moving


def due_change(found: Sequence[PinnedSlice], slices: int) -> Change | None:
    """Return what has to be done, by what all slices know; None where nothing has.

    Args:
        found: what each slice knows, the first one's first.
        slices: over which keys are to be spread.
    """
    known = max(one.pins for one in found)
    if not known.version and slices == 1:
        return None  # it never had others, which admit nothing before they hear of pins
    doubted = frozenset(number for number, one in enumerate(found) if not one.is_sure and (number or one.pins.version))
    if known.is_moving:
        return Change(known, known._replace(version=known.version + 1), doubted)
    if known.slices != slices:
        moving = Pins(known.version + 1, slices, known.slices)
        return Change(moving, moving._replace(version=moving.version + 1), doubted)
    late = {number for number, one in enumerate(found) if one.pins.version < known.version}
    return Change(known, known, doubted | late) if doubted or late else None
