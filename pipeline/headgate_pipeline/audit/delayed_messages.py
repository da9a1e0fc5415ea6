"""A ledger shows messages that wait for their time: none goes before it, and no more than waited. Pure."""

from collections import Counter
from collections.abc import Callable
from typing import Final

Violated = Callable[[str, str, object, object], None]
EVENTS: Final = ("waits", "due", "gone")


class Delayed:
    """Counts what waits at one destination: how many are due at which moment, in ms of Redis' clock."""

    def __init__(self, violated: Violated) -> None:
        self._violated = violated
        self._waits: Counter[int] = Counter()
        self._whole = False
        self.ms = 0

    def forget(self, *, whole: bool) -> None:
        """Begin without knowing what waits; ``whole``: nothing does."""
        self._waits.clear()
        self._whole = whole

    def step(self, event: list[str]) -> None:
        """Follow an event of an entry of that moment.

        Raises:
            ValueError, IndexError: it cannot be read.
        """
        what, count, due = event[1], int(event[2]), int(event[3])
        if what not in EVENTS:
            raise ValueError(what)
        if what == "waits":
            self._waits[due] += count
            return
        if what == "due" and due > self.ms:
            self._violated("P8", "delivered before its time", f"at {due}", f"at {self.ms}")
        if self._whole and count > self._waits[due]:
            self._violated("P2", "more were due than waited", self._waits[due], count)
        self._waits[due] = max(0, self._waits[due] - count)
        if not self._waits[due]:
            del self._waits[due]
