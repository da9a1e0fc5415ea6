"""An oracle of a queue with slices whose messages make others, which may go above the limit with a ticket."""

from tests.simulation.judge.oracle import Oracle, whole
from tests.simulation.judge.sight import Sight
from tests.simulation.loop import VirtualLoop
from tests.simulation.server import Call


class Tickets(Oracle):
    """What must hold there: over all slices one message is above the limit at the most."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self._largest = 0
        """Bytes that any session ever waited for."""

    def may_be_above(self, name: str) -> bool:
        most = self._highest[whole(name)] + self._brought_back(name, self.last[name])
        return self._total(name) <= most + self._largest

    def _read(self, name: str, call: Call) -> Sight:
        sight = super()._read(name, call)
        self._largest = max(self._largest, *sight.needs.values(), 0)
        return sight

    def _line(self, name: str, call: Call, before: Sight, sight: Sight) -> None:
        if call.script != "resolve":  # which goes past those before it in line
            super()._line(name, call, before, sight)
