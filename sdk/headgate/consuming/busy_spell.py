"""A machine, without I/O and clock, knows for how long a consumer has had something in hand at any slice."""

from typing import Final

BLINK: Final = 0.02
"""Seconds for which hands may be empty between two fetches, where there is more to be fetched: the last message was
settled at one slice, and the next one comes from another."""


class BusySpell:
    """A busy spell begins as a consumer gets a message, and ends when it has nothing to do any more."""

    __slots__ = ("_empty_since", "_since")

    def __init__(self) -> None:
        self._since: float | None = None
        self._empty_since: float | None = None

    def saw(self, now: float, held: int, *, more: bool) -> None:
        """Take note of what is held, all slices together.

        Args:
            now: seconds.
            held: messages.
            more: whether some slice may have more for it, as far as is known.
        """
        if held:
            if self._since is None or (self._empty_since is not None and now - self._empty_since > BLINK):
                self._since = now
            self._empty_since = None
        elif not more:
            self._since = self._empty_since = None
        elif self._empty_since is None:
            self._empty_since = now

    def lasted(self, now: float) -> float:
        """Return for how many seconds it lasts; 0 where it had nothing to do just now."""
        return 0.0 if self._since is None else now - self._since
