"""Those who wait for credit: who they are, until when, and what they are told in the end. No calls are made here."""

import asyncio
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from headgate.core.credit import CreditLine
from headgate.core.deadlock import Deadlock
from headgate.core.lease import Lease
from headgate.core.outbox import Outgoing
from headgate.credit.failures import Answers
from headgate.credit.observer import EXPLAIN_AFTER, EXPLAIN_EVERY, Outlook
from headgate.errors import (
    Closed,
    DeadlockDetected,
    HeadgateError,
    MessageTooLarge,
)
from headgate.explain.self_wait import CONFIRM_AFTER
from headgate.message import Receipt
from headgate.redis.keys import Address

SWEEP: Final = 0.02
"""Seconds between looks for callers whose time is over; only while somebody waits."""
RATE_POLL: Final = 1.0
"""Seconds after which who waits for a rate asks again at the latest: the hint that it was raised may be lost."""


class Callers(Answers):
    """The line of callers of one account, and the credit they are paid with.

    Args:
        address: the destination.
        session: the session's id.
        lease: until when credit may be used.
        credit: the line of credit.
        outlook: what is known of the destination.
        holds_messages: False for a gate, whose credit in use is a permit and not a message.
    """

    def __init__(
        self,
        address: Address,
        session: str,
        lease: Lease,
        credit: CreditLine,
        outlook: Outlook,
        *,
        holds_messages: bool,
    ) -> None:
        super().__init__(address, session, credit, outlook)
        self.lease = lease
        self.window = 0
        self.weight = 1
        self.recalled = False
        self.exceeded = False
        self.stopped = False
        self._beyond_memory = math.inf
        """Bytes of a message that memory never has room for, where there is a store for it."""
        self._hurried = False
        self._holds_messages = holds_messages
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._open = False
        self._ask_at = 0.0
        self._explain_at = 0.0
        self._call_since = 0.0
        self._rate_at = 0.0
        self._give_back = False
        self._wanted = False
        self._closing = False
        self.why_closed = "is closed"
        """What is said of it once nothing can be submitted any more."""

    def submit(self, item: Outgoing) -> bool:
        """Put a message in line; returns whether it is paid. Its ``done`` is told the rest."""
        if self._closing:
            raise Closed(f"the producer of {self.address.name!r} {self.why_closed}")
        if not self._holds_messages and self._loop.time() > self.lease.use_until:
            self.credit.frozen = True  # the lease may be over: first hear from Redis
        paid = self.outbox.add(item)
        if paid and not self._holds_messages:
            self.outbox.ready.pop()
            item.done.set_result(self.credit.inc)
            return True
        if not paid or self._rate_at:
            item.since = self._loop.time()
        if not paid:
            self._hurried = self._hurried or item.when_full is not None
            if len(self.outbox.waiting) == 1:
                self.outlook.forget()
                self._explain_at = item.since + EXPLAIN_AFTER
                self._ask_at = 0.0  # nothing waited at the last call, so the session is not in line yet
            elif self._how(item).patience == 0:
                self._ask_at = 0.0  # it goes by the next answer, not by the one that others wait for
            if self.lost_since is not None:
                self._refuse(item.since)
        self._wake.set()
        if self._timer is None:
            self._timer = self._loop.call_later(SWEEP, self._sweep)
        return paid

    def awaits(self, item: Outgoing, who: object) -> None:
        """Note that this task or thread does nothing else until a message that was put in line is paid."""
        item.who = who
        self.outlook.waits()

    def resize(self, window: int, weight: int) -> None:
        """Change the window and the weight, effective at once; what is in hand above the window goes back."""
        if (window, weight) == (self.window, self.weight):
            return
        self.window, self.weight = window, weight
        if self._open:
            self.credit.give_back(self.credit.in_hand - window, 0)
            self._wanted = True
            self._wake.set()

    def heed(self, settings: Mapping[str, str]) -> None:
        """Take in the destination's settings, as the state spells them; whoever waits asks again under them."""
        self.outlook.adopt(settings)
        self._beyond_memory = math.inf
        self.confirming.adopt(settings)
        if self.writer is not None:
            self.writer.adopt(self.outlook.store, self.outlook.most_copied if self.topic else math.inf)
        self._rate_at = min(self._rate_at, self._loop.time())
        self.stop(stopped="stopped" in settings)
        self._ask_at = 0.0
        self._wake.set()

    def stop(self, *, stopped: bool) -> None:
        """Admit nobody, whatever is in hand, until the destination is not stopped by hand any more."""
        if stopped == self.stopped:
            return
        self.stopped = self.credit.frozen = stopped
        if stopped:
            self._give_back = True
            self._wake.set()
        else:
            self._ask_at = 0.0
            self._admit()

    def freed(self) -> None:
        """Note that a permit was put back while somebody waits for it, here or elsewhere."""
        if self.stopped or (self.recalled and not self.alone_in_line):
            self._give_back = True
            self._wake.set()
        else:
            self._admit()

    @property
    def full(self) -> bool:
        """Whether a message would wait for others, or go beyond the limit."""
        if self.wants and not self.ahead:
            return True
        others = self.last.blocked - (self.last.place > 0)  # while they wait in line, nothing comes to who only looks
        return self.exceeded and self.credit.in_hand <= 0 and not others

    @property
    def ahead(self) -> int:
        """Bytes that may wait here because a store takes them; 0 where there is none, or it does not."""
        return self.writer.ahead if self._spools and self.writer is not None and not self.writer.waits else 0

    def seek(self) -> None:
        """See whether there is room again, for who has no message that waits for it."""
        self._wanted = True
        self._wake.set()

    def wanted(self, size: int) -> None:
        """Note that ``size`` bytes were asked for and not there, so that the window is fetched for the next time."""
        if not self._open or (self._loop.time() >= self._ask_at and self.credit.in_hand < size):
            self._wanted = True
            self._wake.set()

    @property
    def closed(self) -> bool:
        """Whether nothing can be submitted any more."""
        return self._closing

    @property
    def alone_in_line(self) -> bool:
        """Whether it waits and nobody else does, as far as the last answer tells: then a recall is its own echo."""
        return self.last.place > 0 and self.last.blocked == 1

    @property
    def wants(self) -> bool:
        """Whether somebody waits for credit here."""
        return bool(self.outbox.waiting)

    def _admit(self) -> bool:
        paid = self.outbox.admit()
        for item in paid:
            if not self._holds_messages:
                self.outbox.ready.pop()
                item.done.set_result(self.credit.inc)  # which paid; when its owner wakes up it may be over
            elif item.credited is not None and not item.credited.done():
                item.credited.set_result(None)
        self._wake.set()
        return bool(paid)

    def _sweep(self) -> None:
        self._timer = None
        now = self._loop.time()
        stuck = (
            self.lost_since is not None
            or now < self._rate_at
            or (self._call_since > 0 and now - self._call_since > SWEEP)
        )
        for item, unknown in self.outbox.overdue(now, stuck=stuck):
            posted = item.credited is not None and item.credited.done() and not self._throttled(now)
            self._tell(item, self._lost(unknown=unknown) if posted or unknown else self._timeout(item, now))
            self._wake.set()  # its place in line is for others now
        self._lose_patience(now)
        head = self.outbox.head()  # lets go of those who were told
        self._hurried = self._hurried and head is not None
        self._notice(now, (self.outbox.held_back() if self._rate_at else None) or head)
        if len(self.outbox):
            self._timer = self._loop.call_later(SWEEP, self._sweep)
            self._wake.set()

    def _hold_back(self, ms: int) -> None:
        """Let nothing that is paid go for so long, as the destination's rate says; 0: it let all of it go."""
        now = self._loop.time()
        if ms and not self._rate_at:
            self.outlook.forget()
            self._explain_at = max(self._explain_at, now + EXPLAIN_AFTER)
            for item in self.outbox.ready:
                item.since = item.since or now
        self._rate_at = now + min(ms / 1000, RATE_POLL) if ms else 0.0

    async def _look(self, now: float) -> bool:
        """See why there is a wait, if it is time to; returns whether it was."""
        if now < self._explain_at:
            return False
        self._explain_at = now + EXPLAIN_EVERY
        await self.outlook.look()
        self._break_deadlock(self._loop.time())
        return True

    def _break_deadlock(self, now: float) -> None:
        """See whether the line waits for itself, and fail the newest send of it where the settings say so."""
        doomed = self.outlook.find_deadlock(self.outbox.waiting)
        if doomed is not None:
            self._doom(doomed, self.outlook.self_wait.deadlock, now)
        if self.outlook.self_wait.suspects:
            self._explain_at = min(self._explain_at, now + CONFIRM_AFTER)

    def _doom(self, item: Outgoing, deadlock: Deadlock | None, now: float) -> None:
        """Fail a send whose wait would never end."""
        waited, why = max(0.0, now - (item.since or now)), self.why(item)
        why = replace(why, deadlock=deadlock) if why else None
        error = DeadlockDetected(self.address.name, self.session, item.size, waited, deadlock=deadlock, explanation=why)
        self._tell(item, error)
        self._ask_at = 0.0

    def _heed_deadlock(self, wait: str, cycle: str) -> None:
        """Fail a send of which somebody who looks at many sessions found that it is part of a deadlock."""
        item = self.outlook.doomed(wait)
        if item is not None:
            self._doom(item, Deadlock.from_dict(json.loads(unquote(cycle))), self._loop.time())

    def _throttled(self, now: float) -> bool:
        """Whether what is paid waits for the destination's rate."""
        return self.lost_since is None and now < self._rate_at

    def _notice(self, now: float, head: Outgoing | None) -> None:
        """Tell of a wait that has lasted, or has ended."""
        if head is not None:
            head.since = head.since or now
        self.outlook.notices.look(now, head.since if head else None, lambda: self.why(head) if head else None)

    @property
    def _spools(self) -> bool:
        """Whether what finds no room in memory may go to a store now."""
        return self.writer is not None and self.writer.ready and not self.stopped

    def _may_exceed(self, item: Outgoing) -> bool:
        """Whether a message goes beyond the limit rather than to wait."""
        return item.beyond and self.outlook.hard and self.credit.in_hand_m > 0 and not self.credit.frozen

    def _impatient(self) -> Iterator[Outgoing]:
        """Yield those in line that do not wait."""
        if self._hurried or self.outlook.when_full.patience == 0 or self._store_hurries:
            for item in self.outbox.waiting:
                if self._how(item).patience == 0 and not item.done.done() and not self._may_exceed(item):
                    yield item

    def _refuse(self, asked_at: float) -> None:
        """Give up for those that do not wait: Redis was asked at ``asked_at``, and there was no room."""
        if self._spools and self.writer and not self.writer.waits:
            return  # there may be room at the store
        for item in self._impatient():
            if item.since <= asked_at:
                self._give_up(item, self._loop.time())

    @property
    def _store_hurries(self) -> bool:
        return self.writer is not None and self.writer.waits and self.writer.when_full.patience is not None

    def _lose_patience(self, now: float) -> None:
        if self._hurried or self.outlook.when_full.patience is not None or self._store_hurries:
            for item in self.outbox.waiting:
                item.since = item.since or now
                if (patience := self._how(item).patience) and now - item.since >= patience and not item.done.done():
                    self._give_up(item, now)

    def _give_up(self, item: Outgoing, now: float, error: HeadgateError | None = None) -> None:
        if self._how(item).drops and self._holds_messages:  # a gate has nothing to drop: its caller is told
            self.outlook.drop(item.size)
            if item.credited is not None and not item.credited.done():
                item.credited.set_result(None)
            item.done.set_result(Receipt(0, item.size, dropped=True))
            self._wake.set()
        else:
            error = error or (self._lost(unknown=False) if self.lost_since is not None else self._full(item, now))
            self._tell(item, error)

    def beyond_pool(self, pool: str, limit: int) -> None:
        """Note that the destination can have at most ``limit`` bytes of a pool: more can never be sent at once."""
        head = self.outbox.head()
        if head and head.size > limit:
            self._tell(head, MessageTooLarge(self.address.name, head.size, limit, pool=pool, gate=self.gate))
            self._ask_at = 0.0
            self._wake.set()
