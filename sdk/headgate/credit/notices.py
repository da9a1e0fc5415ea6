"""Events and log lines about waits: a producer that is held up says so by itself."""

import logging
import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal

from headgate._util.callbacks import Callbacks
from headgate.explain.model import Explanation

NOTIFY_AFTER: Final = 0.2
"""Seconds of waiting after which a session's listeners hear of it."""
NOTIFY_EVERY: Final = 1.0
"""Seconds between two such events of one session at one destination."""
WARN_AFTER: Final = 1.0
"""Seconds of waiting after which it is logged."""
log: Final = logging.getLogger("headgate")


@dataclass(frozen=True, slots=True)
class Blocked:
    """Sends to a destination, or admissions at a gate, are waiting.

    Attributes:
        destination: its name.
        session: id of the session that waits.
        since: when it began, in seconds as :func:`time.time` counts.
        reason: why, in one sentence; empty when that is not known yet.
        explanation: the same in full, as :meth:`Client.explain` says it; None when that is not known yet.
    """

    destination: str
    session: str
    since: float
    reason: str
    explanation: Explanation | None

    def __str__(self) -> str:
        return f"{self.session} waits at {self.destination}: {self.reason or 'why is not known yet'}"


@dataclass(frozen=True, slots=True)
class Unblocked:
    """A wait has ended that :class:`Blocked` reported; ``waited`` are its seconds."""

    destination: str
    session: str
    waited: float

    def __str__(self) -> str:
        return f"{self.session} waits at {self.destination} no more, after {self.waited:.1f} s"


Event = Blocked | Unblocked
Callback = Callable[[Event], Awaitable[None] | None]


class Listeners:
    """Listeners to the waits of one session."""

    __slots__ = ("_guarded", "callbacks", "stirs")

    def __init__(self) -> None:
        self.callbacks: dict[Callback, float] = {}
        self.stirs: list[Callable[[], None]] = []
        """Called when there is one more listener: for it waits that last are news."""
        self._guarded = Callbacks("on_blocked")

    def add(self, callback: Callback, notify_after: float) -> Callable[[], None]:
        """Tell ``callback`` of waits that last that many seconds; returns what ends that."""
        self.callbacks[callback] = notify_after
        for stir in self.stirs:
            stir()

        def end() -> None:
            self.callbacks.pop(callback, None)

        return end

    def tell(self, callback: Callback, event: Event) -> None:
        """Call it, now or in a task of its own; what it raises is logged and goes no further."""
        self._guarded.call(callback, event)

    async def close(self) -> None:
        """Give callbacks that still run a moment, and end them."""
        await self._guarded.close()


@dataclass(slots=True)
class WaitReporter:
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


class Notices:
    """The waits of one session at one destination, reported to its listeners and to the log."""

    __slots__ = ("_destination", "_listeners", "_log", "_session", "_waits", "muted")

    def __init__(self, destination: str, session: str, listeners: Listeners) -> None:
        self.muted = False
        """Whether nothing is reported: somebody else reports the same waits."""
        self._destination = destination
        self._session = session
        self._listeners = listeners
        self._waits: dict[Callback, WaitReporter] = {}
        self._log = WaitReporter(WARN_AFTER)

    @property
    def announced(self) -> bool:
        """Whether a wait was reported whose end was not yet."""
        return self._log.begun is not None or any(wait.begun is not None for wait in self._waits.values())

    def due(self, since: float) -> float:
        """Return when there is something to tell of a wait that began at ``since``, if it lasts."""
        if self.muted:
            return math.inf
        new = (since + after for callback, after in self._listeners.callbacks.items() if callback not in self._waits)
        old = (wait.due(since) for callback, wait in self._waits.items() if callback in self._listeners.callbacks)
        return min((self._log.due(since), *old, *new))

    def look(self, now: float, since: float | None, why: Callable[[], Explanation | None]) -> None:
        """Report what there is to report.

        Args:
            now: on the loop's clock.
            since: when the first of those in line began to wait; None when nobody does.
            why: finds the reason out; called only when it is reported.
        """
        if self.muted:
            return
        for callback, after in tuple(self._listeners.callbacks.items()):
            wait = self._waits.setdefault(callback, WaitReporter(after, NOTIFY_EVERY))
            change = wait.look(now, since)
            if change == "begun":
                explanation = why()
                reason = explanation.reason if explanation else ""
                begun = time.time() - (now - (wait.begun or now))
                blocked = Blocked(self._destination, self._session, begun, reason, explanation)
                self._listeners.tell(callback, blocked)
            elif change == "ended":
                self._listeners.tell(callback, Unblocked(self._destination, self._session, wait.end(now)))
        change = self._log.look(now, since)
        if change == "begun":
            explanation = why()
            text = explanation.line if explanation else f"{self._destination} does not answer why"
            log.warning("%s has waited %.1f s to send: %s", self._session, now - (since or now), text)
        elif change == "ended":
            log.info("%s waited %.1f s to send to %s", self._session, self._log.end(now), self._destination)
