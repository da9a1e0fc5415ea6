"""A node's credit at one destination is shared by all clients that send there through it.

Their messages of one turn of the loop go to Redis in one script. A link's credit counts messages, ours counts bytes:
how large the messages here are is learnt as they come, and what was misjudged waits for its credit like any other, not
accepted, so that no limit is passed.
"""

import asyncio
from typing import Final, Protocol

from headgate.amqp.link import Link
from headgate.producing.inflow import Inflow
from headgate_coordinator.node.credit.link_pace import LinkPace

FIRST_SIZE: Final = 1024.0
SEEK_EVERY: Final = 0.2
"""Seconds between calls that look for room where nobody hears of it: nothing waits in line for it."""
LEARN: Final = 1 / 64
"""How much one message changes what is known of their sizes."""


class SendingLink(Protocol):
    """A sending link is the end of a link that sends, as far as its credit needs it.

    Attributes:
        link: the link.
        pace: its rate.
    """

    link: Link
    pace: LinkPace

    @property
    def unconfirmed(self) -> int:
        """How many of its messages wait to be confirmed."""

    def look(self) -> None:
        """Take what waited for credit."""


class DestinationCredit:
    """A destination's credit is shared out among all links through which clients of this node send there."""

    def __init__(self, inflow: Inflow, credit: int, low_credit: int) -> None:
        self.inflow = inflow
        self.size = FIRST_SIZE
        """Bytes of a message, as far as they were seen."""
        self.senders: set[SendingLink] = set()
        self.guests = 0
        """Links that send here among other destinations, and have their credit from elsewhere."""
        self._most, self._low = credit, low_credit
        self._full = False
        self._looking = False
        self._due: dict[SendingLink, None] = {}
        self._loop = asyncio.get_running_loop()
        self._again: asyncio.TimerHandle | None = None

    def join(self, sender: SendingLink) -> None:
        """Count a link in, and give it credit."""
        self.senders.add(sender)
        self._weigh()
        self.look_soon(sender)

    def part(self, sender: SendingLink) -> None:
        """Count a link out."""
        self.senders.discard(sender)
        self._due.pop(sender, None)
        self._weigh()
        self.look_soon()

    def _weigh(self) -> None:
        if self.senders:
            self.inflow.weigh(min(1000, len(self.senders)))

    def saw(self, messages: int, size: int) -> None:
        """Learn of that many messages of that many bytes together."""
        self.size += (size / messages - self.size) * min(1.0, messages * LEARN)

    def give(self, sender: SendingLink, room: float | None) -> None:
        """Give a link the credit that is due to it, or take it back where there is no more room."""
        has = sender.link.credit
        if room is None:
            if has > 0:
                sender.link.set_credit(0)
            return
        if self.inflow.rates != sender.pace.rates:
            sender.pace.set(self.inflow.rates)
        if has > self._low and not sender.pace.binds:
            return  # it has enough, as nearly always
        share = room / max(1, len(self.senders))
        credit, again = min(self._most, max(1, int(share))), 0.0
        if self.inflow.account.is_confirming:  # who does not wait for one message before the next is held up too
            credit = min(credit, self._most - sender.unconfirmed)
        if sender.pace.binds:
            credit, again = sender.pace.credit(self._loop.time(), credit)
        if has <= self._low and credit > has:
            sender.link.set_credit(credit)
        elif again and not sender.pace.is_waiting:
            sender.pace.is_waiting = True
            self._loop.call_later(again, self._paid_off, sender)

    def look_soon(self, sender: SendingLink | None = None) -> None:
        """See, at the end of this turn of the loop, what credit is due: to a link, or to all if that has changed."""
        if sender is not None:
            self._due[sender] = None
        if not self._looking:
            self._looking = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        self._looking = False
        room = self.inflow.room(self.size)
        full = room is None
        if full and self.senders:
            self.inflow.steps[self.look_soon] = None  # those who wait may be paid, or gone
            if self._again is None and not self.inflow.is_blocked:  # all went beyond the limit
                self.inflow.seek()
                self._again = self._loop.call_later(SEEK_EVERY, self._look_again)
        else:
            self.inflow.steps.pop(self.look_soon, None)
        due, self._due = self._due, {}
        if full != self._full:
            self._full = full
            due |= dict.fromkeys(self.senders)
        for sender in due:
            if sender.link.alive:
                self.give(sender, room)
                sender.look()

    def _paid_off(self, sender: SendingLink) -> None:
        sender.pace.is_waiting = False
        if sender in self.senders:
            self.look_soon(sender)

    def _look_again(self) -> None:
        self._again = None
        self.look_soon()

    @property
    def idle(self) -> bool:
        """Whether nobody sends here any more, and nothing is under way."""
        return not self.senders and not self.guests and not self.inflow.queued
