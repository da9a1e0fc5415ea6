"""What the rate of a link has allowed and was not used yet. No I/O and no clock."""

from typing import Final

from headgate.core.link_calls import Pace

KEPT: Final = 1.0
"""Seconds after which it is worth nothing: it would come on top of what the rate allows then."""


class Allowance:
    """Of one worker of a link.

    Args:
        quantum: messages and bytes to ask the rate for at a time; None where there is no rate.
    """

    def __init__(self, quantum: tuple[int, int] | None) -> None:
        self.quantum = quantum
        self._messages = self._bytes = 0
        self._since = 0.0

    def covers(self, messages: int, size: int) -> bool:
        """Whether so many more may go now."""
        return self.quantum is None or (messages <= self._messages and size <= self._bytes)

    def ask(self, sizes: list[int], now: float) -> Pace | None:
        """Return what to ask for so that messages of these sizes may go, a little at a time; None for nothing."""
        if self.quantum is None or not sizes:
            return None
        if now - self._since > KEPT:
            self._messages = self._bytes = 0
        if self.covers(1, sizes[0]):
            return None
        most, most_bytes = self.quantum
        messages = size = 0
        for one in sizes:
            if messages and (messages == most or size + one > most_bytes):
                break
            messages, size = messages + 1, size + one
        return Pace(messages, size)

    def add(self, allowed: Pace, now: float) -> None:
        """Note what the rate allowed."""
        self._messages, self._bytes, self._since = self._messages + allowed.messages, self._bytes + allowed.size, now

    def use(self, size: int) -> None:
        """Note that a message went."""
        self._messages, self._bytes = max(0, self._messages - 1), max(0, self._bytes - size)
