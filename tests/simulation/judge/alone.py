"""An oracle of a queue with slices at which a message above the limit goes alone."""

from typing import Final

from tests.simulation.judge.oracle import Oracle, whole
from tests.simulation.judge.sight import Sight, size_of

LARGE: Final = (160, 240)
"""Bytes of messages that are above each limit that the queue ever has."""


class Alone(Oracle):
    """What must hold there: while there is such a message, or credit for one, nothing else is, over all slices.

    What a lost state brought back may be beside it, as it may be above the limit.
    """

    def may_be_above(self, name: str) -> bool:
        sizes: list[int] = []
        for one, sight in self.last.items():
            if whole(one) == whole(name):
                own = sight.beyond(self._back.get(one, Sight()))
                sizes += [*filter(None, own.leased.values()), *(size_of([at]) for at in own.stored)]
        return len(sizes) == 1 and sizes[0] >= min(LARGE)
