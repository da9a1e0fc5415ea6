"""An oracle of a queue with slices that, once it was full, resumes at a level."""

from typing import Final

from tests.simulation.judge.oracle import IN_FORCE, Oracle, whole
from tests.simulation.judge.sight import Sight, size_of
from tests.simulation.loop import VirtualLoop
from tests.simulation.server import Call

LEVEL: Final = 0.5
"""The part of the limit at which it resumes."""


class Levels(Oracle):
    """What must hold there: while its pool is full nobody is granted anything, and it resumes at that level.

    Credit in hand that was sent since it was full may be beside it. Then there is room for who is first.
    """

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self._full = 0
        """The number of the pool's state: odd while it is full."""
        self._full_since = 0.0
        self._sent = 0
        """Bytes that were stored since."""
        self._changed = 0.0

    def applies(self, place: str, limit: float | None) -> None:
        super().applies(place, limit)
        self._changed = self.loop.now + IN_FORCE  # another limit opens it

    def saw(self, call: Call) -> None:
        super().saw(call)
        if call.script == "pool" and not call.superseded and isinstance(call.reply, list) and call.reply[0] == b"OK":
            self._turns(int(call.reply[-1]), call.words[1].decode())

    def _turns(self, full: int, pool: str) -> None:
        """Judge at which level a pool of slices resumes."""
        parts = self._parts(whole(pool.partition("%")[0]))
        if full > self._full and self._full % 2 and not self.lost_writes and self._full_since > self._changed:
            pending, level = sum(part.pending for part in parts), LEVEL * max(part.limit for part in parts)
            if pending > level + self._sent:
                self.breaks("level", f"{pool} resumed at {pending} bytes pending, {self._sent} sent since it was full")
        if full > self._full and full % 2:
            self._full_since, self._sent = self.loop.now, 0
        self._full = full

    def _read(self, name: str, call: Call) -> Sight:
        sight, flat = super()._read(name, call), call.seen[0]
        sight.full = int(flat[flat.index(b"bytes_full") + 1]) if b"bytes_full" in flat[::2] else 0
        return sight

    def _stored(self, name: str, before: Sight | None, sight: Sight) -> None:
        super()._stored(name, before, sight)
        self._sent += size_of(sight.stored.keys() - (before.stored if before else {}).keys())

    def _line(self, name: str, call: Call, before: Sight, sight: Sight) -> None:
        if sight.sliced and sum(part.pending for part in self._parts(name)) > LEVEL * sight.limit:
            self._idle.pop(name, None)
        super()._line(name, call, before, sight)
        shut = before.full % 2 and sight.full == before.full
        shut = shut and sight.learns_until <= self.loop.now  # else each claims what it had, and this slice forgot
        for sid, granted in sight.granted.items() if shut else ():
            if before.granted.get(sid, 0) < granted and before.incarnations[sid] == sight.incarnations[sid]:
                self.breaks(
                    "level", f"{call.script} granted {sid} something at {name}, which had heard that it is full"
                )
