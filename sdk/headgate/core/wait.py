"""When a wait is worth telling: once it has lasted, not too often, and always with its end."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(slots=True)
class Wait:
    """A reporter of waits that last ``after`` seconds, at most once in ``every`` seconds, and of their ends.

    Attributes:
        begun: when the reported wait began; None when none is reported.
    """

    after: float
    every: float = 0.0
    begun: float | None = None
    _announced_at: float = -math.inf

    def look(self, now: float, since: float | None) -> Literal["begun", "ended", ""]:
        """Return whether a wait, or its end, is to be reported now.

        Args:
            now: on any clock.
            since: when the first of those who wait began to; None when nobody waits.
        """
        waits = since is not None and now - since >= self.after
        if self.begun is not None:
            return "" if waits else "ended"
        if not waits or now - self._announced_at < self.every:
            return ""
        self.begun, self._announced_at = since, now
        return "begun"

    def due(self, since: float) -> float:
        """Return when a wait that began at ``since``, and lasts, has to be reported; infinite once it was."""
        return math.inf if self.begun is not None else max(since + self.after, self._announced_at + self.every)

    def end(self, now: float) -> float:
        """Note that the end was reported; returns the seconds that the wait took."""
        waited = now - self.begun if self.begun is not None else 0.0
        self.begun = None
        return waited
