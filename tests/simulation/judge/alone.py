"""An oracle of a queue with slices at which a message above the limit goes alone."""

from typing import Final

from tests.simulation.judge.lease import TTL
from tests.simulation.judge.oracle import Oracle, whole
from tests.simulation.judge.sight import Sight, size_of
from tests.simulation.loop import VirtualLoop
from tests.simulation.server import AGAIN, Call

LARGE: Final = (160, 240)
"""Bytes of messages that are above each limit that the queue ever has."""
TURN: Final = 2.0
"""Seconds in which one that is first in line goes, once nothing is stored at any slice, and nothing fails or learns."""
FORGOTTEN: Final = 3.0
"""Seconds after which one is in line no more that a late copy of a call put there."""


class Alone(Oracle):
    """What must hold there: while there is such a message, or credit for one, nothing else is, over all slices.

    What a lost state brought back may be beside it, as it may be above the limit. One that waits has its turn.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self._free: dict[str, float] = {}
        """Slice -> since when one above the limit could go that is first in line there."""

    def may_be_above(self, name: str) -> bool:
        sizes: list[int] = []
        for one, sight in self.last.items():
            if whole(one) == whole(name):
                own = sight.beyond(self._back.get(one, Sight()))
                sizes += [*filter(None, own.leased.values()), *(size_of([at]) for at in own.stored)]
        return len(sizes) == 1 and sizes[0] >= min(LARGE)

    def _line(self, name: str, call: Call, before: Sight, sight: Sight) -> None:
        super()._line(name, call, before, sight)
        if call.caller.endswith(AGAIN):
            self.hindered = max(self.hindered, self.loop.now + FORGOTTEN)
        if sight.sliced:
            self._turn(name)

    def _turn(self, name: str) -> None:
        """Judge that one above the limit goes that is first in line at a slice of this destination."""
        parts = {one: at for one, at in self.last.items() if whole(one) == whole(name)}
        free = not any(part.stored for part in parts.values())
        claimed = max(part.learns_until for part in parts.values())
        gone = [self.died[sid] for part in parts.values() for sid in part.leased if sid in self.died]
        fails_until = max(self.disturbed, self.hindered, claimed, *(died + TTL + 1 for died in gone))
        for one, at in parts.items():
            head = at.line[0] if at.line else ""
            if free and head and at.needs[head] > at.limit:
                since = max(self._free.setdefault(one, self.loop.now), fails_until)
                if self.loop.now > since + TURN:
                    self.breaks("P6", f"{head} is above the limit at {one}, and could go for {TURN} s")
            else:
                self._free.pop(one, None)
