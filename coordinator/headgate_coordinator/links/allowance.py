"""A link's rate is kept as tokens that were taken ahead and not used yet. No I/O and no clock."""

from collections import deque
from typing import Final

from headgate.core.links.calls import TakeRate

KEPT: Final = 1.0
"""Seconds for which a link between destinations may use what its rate allowed."""


class Allowance:
    """An allowance holds tokens of one rate, used oldest first.

    One that is not used in time is lost: it would come on top of what the rate gives then.
    """

    def __init__(self) -> None:
        self._grants: deque[tuple[float, int]] = deque()
        self._left = 0

    def add(self, tokens: int, until: float) -> None:
        """Note tokens that may be used until that time."""
        self._grants.append((until, tokens))
        self._left += tokens

    def left(self, now: float) -> int:
        """Return how many tokens may be used now."""
        while self._grants and self._grants[0][0] < now:
            self._left -= self._grants.popleft()[1]
        return self._left

    def use(self, tokens: int) -> None:
        """Note that these were used, or all if there are fewer."""
        while tokens > 0 and self._grants:
            until, left = self._grants.popleft()
            self._left -= min(left, tokens)
            if left > tokens:
                self._grants.appendleft((until, left - tokens))
            tokens -= left


class LinkAllowance:
    """A link allowance counts the messages and bytes that one worker of a link may forward.

    ``quantum`` is how many to ask a rate for at a time.
    """

    def __init__(self, quantum: tuple[int, int] | None) -> None:
        self.quantum = quantum
        self._messages, self._bytes = Allowance(), Allowance()

    def ahead(self, messages: int, size: int) -> tuple[int, int]:
        """Return how many of that many messages and bytes are worth having in hand: those to ask for now, and then."""
        if self.quantum is None:
            return messages, size
        return min(messages, 2 * self.quantum[0]), min(size, 2 * self.quantum[1])

    def covers(self, messages: int, size: int, now: float) -> bool:
        """Return whether this many more messages of together ``size`` bytes may go now."""
        return self.quantum is None or (messages <= self._messages.left(now) and size <= self._bytes.left(now))

    def ask(self, sizes: list[int], now: float) -> TakeRate | None:
        """Return what to ask for so that messages of these sizes may go, a little at a time; None for nothing."""
        if self.quantum is None or not sizes or self.covers(1, sizes[0], now):
            return None
        most, most_bytes = self.quantum
        messages = size = 0
        for one in sizes:
            if messages and (messages == most or size + one > most_bytes):
                break
            messages, size = messages + 1, size + one
        return TakeRate(messages, size)

    def add(self, allowed: TakeRate, now: float) -> None:
        """Note what the rate allowed."""
        self._messages.add(allowed.messages, now + KEPT)
        self._bytes.add(allowed.size, now + KEPT)

    def use(self, size: int) -> None:
        """Note that a message of ``size`` bytes went."""
        if self.quantum is not None:
            self._messages.use(1)
            self._bytes.use(size)
