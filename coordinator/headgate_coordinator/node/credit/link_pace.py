"""Each sending client keeps to a rate: the settings of a destination bound each producer, and each link is one.

A message is known only afterwards, so it is booked then: the link has no credit until that is paid off. At most
:data:`AHEAD` seconds' worth of the rate come at once.
"""

from typing import Final

from headgate.core.rate import Rate
from headgate_coordinator.node.credit.allowance import Allowance, Sender

AHEAD: Final = 0.05
"""Seconds' worth of its rate for which a link may have credit."""


class LinkPace:
    """A link's pace holds its rates, in messages and in bytes a second; None is no bound.

    Attributes:
        is_waiting: whether somebody will look again once what came is paid off.
        rates: in messages and in bytes a second.
        binds: whether there is any.
        allowance: what the link's user may send, by a quota over all nodes; None without one.
    """

    __slots__ = ("_bytes", "_messages", "_until", "allowance", "binds", "is_waiting", "rates")

    def __init__(self) -> None:
        self.is_waiting = self.binds = False
        self.rates: tuple[float | None, float | None] = (None, None)
        self._messages: Rate | None = None
        self._bytes: Rate | None = None
        self._until = 0.0
        self.allowance: Allowance | None = None

    def allow(self, allowance: Allowance | None, link: Sender) -> None:
        """Go by what the link's user may send."""
        if self.allowance is not None:
            self.allowance.links.discard(link)
        if allowance is not None:
            allowance.links.add(link)
        self.allowance = allowance
        self.binds = bool(self._messages or self._bytes or allowance)

    def set(self, rates: tuple[float | None, float | None]) -> None:
        """Change the rates; what is owed under the old ones is forgotten."""
        self.rates = rates
        self._messages = Rate(rates[0]) if rates[0] else None
        self._bytes = Rate(rates[1]) if rates[1] else None
        self._until = 0.0
        self.binds = bool(self._messages or self._bytes or self.allowance)

    def book(self, now: float, messages: int, size: int) -> None:
        """Note what came."""
        if self.allowance is not None:
            self.allowance.spend(messages, size)
        for rate, amount in ((self._messages, messages), (self._bytes, size)):
            if rate is not None:
                rate.delay(now, amount)
                self._until = max(self._until, now + rate.owed(now))

    def credit(self, now: float, most: int) -> tuple[int, float]:
        """Return how many messages may have credit, up to ``most``, and the seconds until more may."""
        if now < self._until:
            return 0, self._until - now
        if self.allowance is not None and not (most := self.allowance.credit(most)):
            return 0, 0.0  # it looks again once there is more
        if self._messages is not None:
            most = min(most, max(1, int(self._messages.rate * AHEAD)))
        elif self._bytes is not None:
            most = 1  # how large the next is, nobody knows
        return most, 0.0
