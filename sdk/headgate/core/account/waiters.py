"""A waiter stands in line at one account for credit, a rate or Redis: who is paid, who fails, and when to look again.

No clock and no I/O here. Errors and their words are made elsewhere; the listener is a future or anything like it.
"""

import math
from collections.abc import Iterator
from typing import Final

from headgate.core.account.ports import Spooling, WaitFailures, WhenFullSettings
from headgate.core.credit import CreditLine
from headgate.core.outbox import Outbox, Outgoing
from headgate.core.when_full import WhenFull

SLOW: Final = 0.02
"""Seconds that an answer may take: no caller's time is over sooner than that, for the answer may come just now."""
SILENT: Final = 0.5
"""Seconds that a call with a message in it may take, however short its caller's timeout is:
that time is for room, and it has that. One who gave up sooner would not know whether the message was stored."""
EXPLAIN_AFTER: Final = 0.1
"""Seconds after which a wait is worth one call that finds out why."""
EXPLAIN_EVERY: Final = 1.0
"""Seconds for which what is known of a wait is new enough."""
LONG_PAUSE: Final = 2.5
"""Seconds after which those ask again who are not first in line, and for whom another of their client looks. A session
that is silent for 0.6 of its lease loses the place; not before 3 s, but after 6 s even where the lease is longer."""
RATE_POLL: Final = 1.0
"""Seconds after which a wait for a rate asks again at the latest: the hint that it was raised may be lost."""


class Waiters:
    """One account keeps its callers in this line while they wait.

    Args:
        credit: that they are paid with.
        manners: of the destination.
        ends: tells them.
        holds_messages: False for a gate, whose credit in use is a permit and not a message.

    Attributes:
        outbox: the messages.
        writer: writes to a spool store; None where none is reached.
        stopped: whether nobody is let in, by hand.
        beyond_memory: bytes of a message that memory never has room for, where there is a store for it.
        rate_at: when the destination's rate lets the next go that are paid; 0 while it holds nothing up.
        goes_on: whether memory was seen full in this very turn, and a store takes what comes: nobody asks again.
        ahead_in_turn: was counted in since. Another that comes in this very turn, waits as long and has no `when_full`
            of its own changes nothing: :meth:`join` need not hear of it. None: nothing was, or somebody waits for less.
        announced: whether the wait was announced, so that its end is to be announced too.
        attend_at: when to call :meth:`see_to`; infinite while nobody's time will be over.
        look_at: when to see how the destination is; infinite while nothing new is to be seen.
        explain_at: when to find out all of why they wait, as somebody is to hear of it; infinite while nobody is.
    """

    __slots__ = (
        "_ends", "_explained_at", "_holds_messages", "_hurried", "_looked_at", "_manners", "ahead_in_turn", "announced",
        "attend_at", "beyond_memory", "explain_at", "goes_on", "look_at", "outbox", "rate_at", "stopped", "writer",
    )  # fmt: skip

    def __init__(
        self, credit: CreditLine, manners: WhenFullSettings, ends: WaitFailures, *, holds_messages: bool
    ) -> None:
        self.outbox = Outbox(credit, holds_messages=holds_messages)
        self.writer: Spooling | None = None
        self.stopped = self.goes_on = False
        self.ahead_in_turn: Outgoing | None = None
        self.beyond_memory = math.inf
        self.rate_at = 0.0
        self.announced = False
        self.attend_at = math.inf
        self.look_at = self.explain_at = math.inf
        self._looked_at = self._explained_at = -math.inf
        self._hurried = False
        self._manners = manners
        self._ends = ends
        self._holds_messages = holds_messages

    # Coming and going.

    def join(self, item: Outgoing, now: float, heard_at: float = math.inf) -> float | None:
        """Count in a message that was just put in line and is not paid; returns its patience.

        Listeners hear of the wait at ``heard_at``.
        """
        item.since = now
        if item.when_full is not None:
            self._hurried = True
        patience = self.how(item).patience
        over = min(item.deadline, now + patience) if patience else item.deadline
        if over < self.attend_at:
            self.attend_by(max(over, now + SLOW))
        if len(self.outbox.waiting) == 1:
            self.look_at = max(now + EXPLAIN_AFTER, self._looked_at + EXPLAIN_EVERY)
            self.explain_at = max(now + EXPLAIN_AFTER, over - EXPLAIN_AFTER)
            self.announce_at(heard_at)
        elif over - EXPLAIN_AFTER < self.explain_at:
            self._explain_before(over)
        if self.goes_on and not self.hurried:
            self.ahead_in_turn = item
        return patience

    def turn_over(self) -> None:
        """Note that the turn is over in which memory was seen full."""
        self.goes_on, self.ahead_in_turn = False, None

    def left(self) -> None:
        """Note that one of them gave up."""
        self.outbox.left()
        self.stir()

    def attend_by(self, when: float) -> None:
        """See to them at that time, if not before."""
        self.attend_at = min(self.attend_at, when)

    def stir(self) -> None:
        """See to them at once: something changed that may be the end of a wait, or of the patience with it."""
        self.attend_at = 0.0

    # Time.

    def see_to(self, now: float, *, stuck: bool, silent: bool) -> Outgoing | None:
        """Fail those whose time is over; returns the first that still waits, if any does.

        Args:
            now: on the clock of the deadlines.
            stuck: whether Redis is slow to answer, or away; only then can anything that is paid be late.
            silent: whether it has not answered for longer than :data:`SILENT`, or is away.
        """
        outbox = self.outbox
        throttled = now < self.rate_at
        for item, unknown in outbox.overdue(now, stuck=stuck or throttled, silent=silent):
            # What has its credit was promised to go out: only Redis, or the rate, can be why it did not.
            posted = item.credited is not None and item.credited.done() and (stuck or not throttled)
            if posted or unknown:
                self._ends.lost(item, unknown=unknown)
            else:
                self._ends.timeout(item, now)
        over = self._lose_patience(now) if self.hurried else math.inf
        over = min(over, outbox.deadlines.soonest())
        paid = outbox.soonest_paid()
        head = outbox.head()  # lets go of those who have their answer
        self._hurried = self._hurried and head is not None
        self._explain_before(over)
        self.attend_at = min(over, paid if paid > now else now + SLOW)  # paid and late: its answer may come just now
        return (outbox.held_back() if self.rate_at else None) or head

    def _lose_patience(self, now: float) -> float:
        """Give up for those that waited as long as they are to; returns when the next of them will have."""
        soonest = math.inf
        for item in tuple(self.outbox.waiting):  # whoever learns why is let go of
            item.since = item.since or now
            if (patience := self.how(item).patience) and not item.done.done():
                if now >= item.since + patience:
                    self.give_up(item, now)
                else:
                    soonest = min(soonest, item.since + patience)
        return soonest

    def hold_back(self, now: float, ms: int) -> bool:
        """Let nothing that is paid go for so long; 0: the rate let all of it go. Returns whether a wait begins."""
        begins = ms > 0 and not self.rate_at
        if begins:
            self.look_at = max(self._looked_at + EXPLAIN_EVERY, now + EXPLAIN_AFTER)
            self.attend_by(now + SLOW)
            for item in self.outbox.ready:
                item.since = item.since or now
        elif not ms and self.rate_at:
            self.stir()
        self.rate_at = now + min(ms / 1000, RATE_POLL) if ms else 0.0
        return begins

    def lent(self, again_ms: int, now: float) -> None:
        """Note when the rate lets the next go: it was fetched from where slices share it."""
        if self.rate_at:
            self.rate_at = now + min(again_ms / 1000, RATE_POLL)

    # Reasons.

    def looked(self, now: float, *, fully: bool) -> None:
        """Note that it is known why they wait; it is looked at again shortly before somebody hears of it, or asks."""
        self._looked_at = now
        self.look_at = now + EXPLAIN_EVERY if self._manners.consumers else math.inf
        if fully:
            self._explained_at = now
            self.explain_at = math.inf
            self._explain_before(self.attend_at)

    def watch(self, now: float) -> None:
        """Look each second from now on: what only looks can find may be there since a moment ago."""
        self.look_by(max(now, self._looked_at + EXPLAIN_EVERY))

    def look_by(self, when: float) -> None:
        """See how the destination is at that time at the latest."""
        self.look_at = min(self.look_at, when)

    def asked_why(self, now: float) -> bool:
        """Note that somebody asks why they wait; returns whether it is to be looked at, for what is known is old."""
        old = now - self._explained_at >= EXPLAIN_EVERY and bool(self.outbox.waiting or self.rate_at)
        if old:
            self.explain_at = min(self.explain_at, now)
        return old

    def announce_at(self, when: float) -> None:
        """Note that somebody hears of the wait at that time, if it lasts."""
        self.attend_by(when)
        self._explain_before(when)

    def _explain_before(self, when: float) -> None:
        """Find out why they wait shortly before somebody hears of it, unless that is known well enough by then."""
        if when - self._explained_at > EXPLAIN_EVERY:
            self.explain_at = min(self.explain_at, when - EXPLAIN_AFTER)

    # Manners.

    def how(self, item: Outgoing) -> WhenFull:
        """Return what is to be done with a message that finds no room."""
        how = item.when_full or self._manners.when_full
        return self.writer.how(item) if how.spools and self.writer is not None else how

    @property
    def spools(self) -> bool:
        """Whether what finds no room in memory may go to a store now."""
        return self.writer is not None and bool(self.writer.store) and self.writer.ready and not self.stopped

    @property
    def ahead(self) -> int:
        """Bytes that may wait here because a store takes them; 0 where there is none, or it does not."""
        return self.writer.ahead if self.spools and self.writer is not None and not self.writer.waits else 0

    def may_exceed(self, item: Outgoing) -> bool:
        """Return whether a message goes beyond the limit rather than to wait."""
        credit = self.outbox.credit
        return item.beyond and self._manners.hard and credit.in_hand_m > 0 and not credit.frozen

    def impatient(self) -> Iterator[Outgoing]:
        """Yield those in line that do not wait."""
        if self.hurried:
            for item in tuple(self.outbox.waiting):  # whoever learns why is let go of
                if self.how(item).patience == 0 and not item.done.done() and not self.may_exceed(item):
                    yield item

    @property
    def hasty(self) -> bool:
        """Whether somebody fails at once where there is no room, and wants to know why."""
        return self.hurried and any(not self.how(item).drops for item in self.impatient())

    def refuse(self, asked_at: float, now: float) -> None:
        """Give up for those that do not wait: Redis was asked at ``asked_at``, and there was no room."""
        if self.spools and self.writer and not self.writer.waits:
            return  # there may be room at the store
        for item in self.impatient():
            if item.since <= asked_at:
                self.give_up(item, now)

    @property
    def hurried(self) -> bool:
        """Whether messages may be in line that do not wait for ever."""
        if self._hurried or self._manners.when_full.patience is not None:
            return True
        return self.writer is not None and bool(self.writer.store) and self.writer.hurries

    def give_up(self, item: Outgoing, now: float) -> None:
        """Drop a message, or fail it, as it is to be treated."""
        if self.how(item).drops and self._holds_messages:  # a gate has nothing to drop: its caller gets the error
            self._ends.dropped(item)
        else:
            self._ends.full(item, now)
