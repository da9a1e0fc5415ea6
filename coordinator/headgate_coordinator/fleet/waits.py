"""A histogram counts the waits of a node's clients: how long, for what, at which destination, and how they ended."""

from bisect import bisect_left
from typing import Final

from headgate.waits import Wait
from headgate_coordinator.fleet.reports import Series

BOUNDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Seconds up to which each bucket counts; one more counts all."""
OTHERS: Final = "*"
"""In place of the names of destinations beyond the bound; no destination can be called that."""

Labels = tuple[str, str, str]
"""Destination, kind, outcome."""


class WaitTimes:
    """Counts waits since the process started.

    Args:
        most: destinations that are counted apart, the first that somebody waited at; others are counted together.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._names: set[str] = set()
        self._counts: dict[Labels, list[int]] = {}
        self._sums: dict[Labels, float] = {}

    def hear(self, wait: Wait) -> None:
        """Count a wait."""
        name = wait.destination
        if name not in self._names:
            if len(self._names) < self._most:
                self._names.add(name)
            else:
                name = OTHERS
        labels = name, wait.kind, wait.outcome
        counts = self._counts.get(labels)
        if counts is None:
            counts = self._counts[labels] = [0] * (len(BOUNDS) + 1)
        counts[bisect_left(BOUNDS, wait.seconds)] += 1
        self._sums[labels] = self._sums.get(labels, 0.0) + wait.seconds

    def counts(self) -> Series:
        """Return for each destination, kind and outcome the waits of each bucket, and last the seconds of all."""
        return {("waits", *labels): [*counts, self._sums[labels]] for labels, counts in self._counts.items()}
