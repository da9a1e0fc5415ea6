"""Slices have their turns by what lies there, so it makes no difference at which a message does.

A consumer counts how far it came in the turns of each slice, and fetches where that is least: start-time fair queueing,
in which slices are what keys are within one. An answer is worth a part of a turn, and the slice says how much. Where
keys take turns, that is one of all of these: the more they are, the smaller the part. Else it is one of all that nobody
has there, so that a message waits as long at one slice as at another, and many that send to one get as much each.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

FIRST: Final = 8
"""Most messages to fetch from a slice whose number of keys is not known yet."""


class Turn(NamedTuple):
    """A turn is what a fetch brought, as a part of all that there is at a slice: keys in turn, or what nobody has."""

    part: float
    of_keys: bool = True


class SliceTurn:
    """A slice's turn is how far one consumer came there.

    Attributes:
        reached: turns that it was given.
        pace: messages in a turn, as the last answer showed.
        is_known: whether one showed that since there is something.
        fetching: messages that are being fetched.
        rests: whether nothing was left there; what comes then begins where the others are.
        is_late: whether it does not answer soon.
        is_away: whether it does not answer at all.
    """

    __slots__ = ("fetching", "is_away", "is_known", "is_late", "pace", "reached", "rests")

    def __init__(self, reached: float) -> None:
        self.reached, self.pace = reached, 1.0
        self.fetching = 0
        self.is_known = self.rests = self.is_late = self.is_away = False

    @property
    def due(self) -> float:
        """How far it will have come once it has what is being fetched."""
        return self.reached + self.fetching / self.pace

    def is_out(self, *, idle: bool) -> bool:
        """Return whether the others go on without it: where the consumer has nothing else, as soon as it is late."""
        return self.is_away or (idle and self.is_late)

    def took(self, messages: int, turn: float) -> None:
        """Count what an answer brought; ``turn`` is what it says of that, 0 where it repeats an earlier one."""
        if turn and messages:
            self.pace, self.is_known = max(1.0, messages / turn), True
        self.reached += turn or messages / self.pace

    def catch_up(self, others: float) -> None:
        """Begin where the others are, if it is behind them: after it had nothing, or was away."""
        self.reached = max(self.reached, others)
        self.is_known = self.rests = False

    def answers(self, others: float) -> None:
        """Note that it answers; after a short time it makes up for what the others got meanwhile."""
        self.is_late = False
        if self.is_away:
            self.is_away = False
            self.catch_up(others)


def part_of(own: SliceTurn, all_in_turn: Iterable[SliceTurn], room: int) -> int:
    """Return how many of ``room`` messages to fetch from a slice, so that all slices come equally far.

    The one that came least far gets one at least.

    >>> few, many = SliceTurn(0.0), SliceTurn(0.0)
    >>> many.pace, few.is_known, many.is_known = 9.0, True, True
    >>> [part_of(one, (few, many), 100) for one in (few, many)]
    [10, 90]
    """
    places = sorted((one.due, one.pace) for one in {own, *all_in_turn})
    level, pace = places[0]
    left = float(room)
    for due, its_pace in places[1:]:
        if left < (due - level) * pace:
            break
        left -= (due - level) * pace
        level, pace = due, pace + its_pace
    level += left / pace
    least = 1 if own.due <= places[0][0] else 0
    return min(room if own.is_known else FIRST, room, max(least, round((level - own.due) * own.pace)))
