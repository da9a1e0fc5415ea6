"""An oracle of a queue with slices and a rate of sends: what is stored in each window of time."""

from typing import Final, NamedTuple

from tests.simulation.judge.oracle import Oracle
from tests.simulation.loop import VirtualLoop
from tests.simulation.server import Call


class Rate(NamedTuple):
    """So many messages a second, and at once."""

    rate: float
    burst: int


RATE: Final = Rate(2.0, 3)
IN_A_CROWD: Final = Rate(30.0, 3)
"""Enough messages to see who sends which part of them."""


class Rates(Oracle):
    """What must hold of a queue of which all slices together take messages by one rate."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self._rate = RATE
        self._ahead: list[float] = []
        """When clocks were set ahead."""
        self._published: list[float] = []
        """When each message was stored, at whichever slice."""

    def hurries(self) -> None:
        """Note that messages are taken by another rate from now on."""
        self._rate, self._published = IN_A_CROWD, []

    def clock_set(self, ahead: float) -> None:
        super().clock_set(ahead)
        if ahead > 0:
            self._ahead.append(self.loop.now)

    def saw(self, call: Call) -> None:
        """Judge one script, and each window that ends with what it stores; what is lost since counts, too."""
        before = len(self.stored)
        super().saw(call)
        more = len(self.stored) - before
        if more <= 0 or call.script != "publish":
            return
        self._published += [self.loop.now] * more
        for number, begin in enumerate(self._published):
            bursts = 1 + sum(at >= begin for at in self._ahead)
            count, seconds = len(self._published) - number, self.loop.now - begin
            if count > self._rate.rate * seconds + self._rate.burst * bursts + 1e-6:
                self.breaks("P8", f"{count} messages were stored in {seconds:.3f} s")
