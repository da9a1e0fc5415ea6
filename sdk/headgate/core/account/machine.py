"""An account is a state machine without I/O: it says which call to make, and hears what was answered.

At most one call is under way, so calls never overtake each other, and whatever is not known to be stored is asked about
again before its number is used for anything else. Between calls everything is arithmetic. Times are seconds of the
caller's monotonic clock.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from headgate.core.account.calls import Acquire, Call, CountDrops, Create, Credit, Explain, Leave, Publish, Reap, Totals
from headgate.core.account.late_copies import COME_WITHIN
from headgate.core.account.ports import Destination, Effects, WaitFailures
from headgate.core.account.waiters import LONG_PAUSE, Waiters
from headgate.core.credit import MESSAGES_PER_WINDOW_BYTE, PERMITS_PER_WINDOW_BYTE, CreditLine, Lease
from headgate.core.outbox import Batch, Outgoing
from headgate.errors import SessionExpired

RECEIPTS_LAST: Final = 3540.0
"""Seconds for which Redis surely knows the number of the last message that it gave a receipt for."""
PAUSE_MS: Final = 1000
"""The pause of those in line of whom Redis knows no better moment to ask again."""
REFUSALS: Final = frozenset({"PASSED", "FULL", "STOPPED", "ABOVE", "STALE"})
"""Answers to a batch that say nothing of the account."""
LATER: Final = 60.0
"""Seconds after which an account with nothing to do looks at the time again."""
BUSY: Final = 0.05
"""The same for one that would be idle, but for something that is in use."""


class Account:
    """An account keeps the credit and the outgoing messages of one session at one destination.

    Args:
        name: the destination's.
        session: the session's id.
        credit: the line to keep; threads may change it by its methods, so what was read of it may be old.
        lease: until when it may be used.
        idle: seconds without use after which its credit goes back.
        destination: what is known of the destination.
        ends: tells callers of failures.
        effects: what answers lead to elsewhere.
        incarnation: returns a number that hardly any other session gets; of two that resume, one fences the other.
        resumes: whether a later session may go on under its id.
        holds_messages: False for a gate, whose credit in use is a permit and not a message.

    Attributes:
        waiters: the line of callers.
        open: whether Redis has the account, as far as is known.
        last: the last answer that was good.
        consumers: that the session has here: while there are any, idling must not end its lease.
        resumed: messages that earlier sessions of its id published; None for a session whose id is its own.
        stored_at: when its last receipt was given.
        recalled: whether others wait, and it was asked to give back.
        lost_since: when Redis stopped to answer; None while it does.
        call_since: when the call began that is under way; 0 while none is.
    """

    __slots__ = (
        "_ask_at", "_asked_for", "_claim", "_destination", "_effects", "_ends", "_ensure", "_give_back", "_heard",
        "_holds_messages", "_idle", "_incarnation", "_messages_per_byte", "_name", "_opened", "_owed",
        "_pools_asked_at", "_quiet_at", "_removed", "_session", "_share", "_sweeps", "_used_at", "_used_before",
        "_uses_seen", "_wanted", "_weighs", "call_since", "consumers", "credit", "exceeded", "last", "lease",
        "lost_since", "open", "outbox", "recalled", "resumed", "stored_at", "waiters", "weight", "window",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        session: str,
        credit: CreditLine,
        lease: Lease,
        idle: float,
        destination: Destination,
        ends: WaitFailures,
        effects: Effects,
        incarnation: Callable[[], int],
        *,
        resumes: bool,
        holds_messages: bool,
    ) -> None:
        self.credit, self.lease = credit, lease
        self.waiters = Waiters(credit, destination, ends, holds_messages=holds_messages)
        self.outbox = self.waiters.outbox
        self.window, self.weight, self._weighs, self._quiet_at = 0, 1, 0, math.inf
        self.open = self.recalled = self.exceeded = False
        self.last = Credit("NONE")
        self.consumers = 0
        self.resumed: int | None = 0 if resumes else None
        if resumes:
            credit.inc = incarnation()
        self.stored_at, self.call_since = -math.inf, 0.0
        self.lost_since: float | None = None
        self._name, self._session = name, session
        self._idle = idle
        self._destination, self._ends, self._effects = destination, ends, effects
        self._incarnation = incarnation
        self._holds_messages = holds_messages
        self._messages_per_byte = MESSAGES_PER_WINDOW_BYTE if holds_messages else PERMITS_PER_WINDOW_BYTE
        self._opened = False
        """Whether it ever was opened: until then somebody waits for that, and a refusal is asked about at once."""
        self._ensure = self._claim = self._owed = False
        self._ask_at = 0.0
        self._give_back = self._wanted = self._removed = self._heard = False
        self._share = self._used_before = (0, 0)
        self._used_at, self._uses_seen = 0.0, 0
        self._pools_asked_at = math.inf  # until they are, for those that wait now
        self._asked_for: Outgoing | None = None
        self._sweeps = True
        """Whether the next call for whoever stands in line is a sweep."""

    # What callers do.

    def paid(self, item: Outgoing, now: float) -> None:
        """Count in a message that was put in line and has its credit."""
        if self.waiters.rate_at:
            item.since = now
        self.waiters.attend_by(max(item.deadline, now))

    def come(self, item: Outgoing, now: float) -> bool:
        """Count in an unpaid message that was put in line, or admit a gate's caller if possible."""
        if not self._holds_messages:
            self._doubt(now)
            if self.outbox.add(item):
                return True
        waiters, first = self.waiters, len(self.outbox.waiting) == 1
        patience = waiters.join(item, now, self._destination.wait_begins(now) if first else math.inf)
        if first and not (waiters.goes_on and waiters.ahead and item.size <= self.window):
            self._ask_at = 0.0  # nothing waited at the last call, so the session is not in line yet
        elif patience == 0:
            self._ask_at = 0.0  # it goes by the next answer, not by the one that others wait for
        if self.lost_since is not None:
            waiters.refuse(now, now)
        return False

    def ask(self) -> None:
        """Ask Redis as soon as that can be: what it answered last is not true any more."""
        self._ask_at = 0.0

    def seek(self) -> None:
        """See whether there is room again, although no message waits for it."""
        self._wanted = True
        self.waiters.stir()  # a store that has no room may have other patience

    def want(self) -> None:
        """Tell Redis the totals, for they changed."""
        self._wanted = True

    def lacks(self, size: int, now: float) -> bool:
        """Note that ``size`` bytes were asked for and not there; returns whether the window is to be fetched."""
        self._wanted = self._wanted or not self.open or (now >= self._ask_at and self.credit.in_hand < size)
        return self._wanted

    def resize(self, window: int, weight: int) -> bool:
        """Change the window and the weight; returns whether Redis is to hear of it now."""
        if (window, weight) == (self.window, self.weight):
            return False
        self.window, self.weight = window, weight
        if self.open:
            self.credit.give_back(self.credit.in_hand - window, 0)
            self._wanted = True
        return self.open

    def heed(self, now: float, *, stopped: bool) -> None:
        """Go by new settings: whoever waits asks again under them."""
        self.waiters.beyond_memory = math.inf
        self.waiters.rate_at = min(self.waiters.rate_at, now)
        if stopped != self.waiters.stopped:
            self.waiters.stopped = self.credit.frozen = stopped
            self._give_back = self._give_back or stopped
            if not stopped:
                self.admit(now)
        self._ask_at = 0.0
        self.waiters.stir()

    def freed(self, now: float) -> None:
        """Note that a permit was put back while somebody waits for it, here or elsewhere."""
        if self.waiters.stopped or (self.recalled and not self.alone_in_line):
            self._give_back = True
            self.credit.keep_within()
        else:
            self.admit(now)

    # What hints say.

    def hear_grant(self, epoch: int, inc: int, granted: int, granted_m: int, now: float) -> None:
        """Take in credit that was granted while nobody asked."""
        line = self.credit
        if not self.open or (epoch, inc) != (line.epoch, line.inc):
            return
        if self._holds_messages:
            raised = line.raise_to(granted, granted_m)  # they go by the next call, before which they are paid
        elif raised := self._effects.granted(epoch, granted, granted_m):
            self.admit(now)
        if raised:
            self._ask_at = 0.0  # served, so no longer in line: whoever comes next must ask

    def hear_recall(self, share: int, share_m: int, epoch: int | None = None, *, owed: bool = False) -> bool:
        """Take in that others wait, and how much each may hold for one of weight 1; returns whether some is to go back.

        Most of those who hear it wait themselves, and have nothing. In an epoch that is new to the account it claims
        what it holds first, for only what was claimed is passed on. Others wait elsewhere for what is ``owed``.
        """
        line, self._owed = self.credit, self._owed or owed
        self._share = (share * self.weight, share_m * self.weight)
        if self.open and epoch not in (None, line.epoch):
            self._claim = self._give_back = True
            return True
        self.recalled = self._heard = True
        if line.granted > line.spent or line.granted_m > line.spent_m:
            self._give_back = True
        else:
            self._used_before = line.used, line.used_m
        return self._give_back

    def hear_first(self) -> None:
        """Take in that the first of those who wait here is first in line now."""
        self.last = replace(self.last, place=1)
        self._effects.refill(None)

    def hear_removed(self) -> None:
        """Take in that the destination was removed on purpose."""
        self._ask_at = 0.0
        self._removed = True

    # What others may know.

    @property
    def alone_in_line(self) -> bool:
        """Whether it waits and nobody else does, as far as the last answer tells: then a recall is its own echo."""
        return self.last.place > 0 and self.last.blocked == 1 and not self._owed

    @property
    def owes(self) -> bool:
        """Whether a permit that comes back goes to others at once: they wait, and this holds more than its share."""
        if not self.recalled or self.alone_in_line:
            return False
        return self.credit.held > self._share[0] or self.credit.held_m > self._share[1]

    @property
    def full(self) -> bool:
        """Whether a message would wait for others, or go beyond the limit."""
        if self.outbox.waiting and not self.waiters.ahead:
            return True
        others = self.last.blocked - (self.last.place > 0)  # while they wait in line, nothing comes to who only looks
        return self.exceeded and self.credit.in_hand <= 0 and not others

    def in_line(self, item: Outgoing) -> bool:
        """Return whether Redis was asked for a message, and there was no room."""
        return item is self._asked_for and self.last.place > 0 and not self.call_since

    def silent_since(self, now: float, slow: float) -> float | None:
        """Return since when Redis does not answer, or has not for that many seconds; None where it does."""
        return self.call_since if self.lost_since is None and 0 < self.call_since < now - slow else self.lost_since

    def sent(self, now: float) -> int:
        """Return the number of the last message with a receipt; 0 where Redis may have forgotten it rightly."""
        return self.outbox.next_seq - 1 if now - self.stored_at < RECEIPTS_LAST else 0

    # When to call, and what.

    def wake_at(self, now: float) -> float:
        """Return when to ask for a call again if nothing is heard before."""
        waiters, outbox = self.waiters, self.outbox
        until = now + LATER
        if outbox.waiting:
            until = min(self._ask_at, waiters.look_at, waiters.explain_at)
            if waiters.writer is not None and waiters.writer.store and not waiters.writer.ready:
                until = min(until, waiters.writer.resumes_at)
        if outbox.ready:
            until = min(until, waiters.rate_at, waiters.look_at, waiters.explain_at)
        if not self.open:
            return until
        if self._destination.unreported:
            until = min(until, self._destination.report_at)
        if self.consumers and self._idle_since(now):
            return min(until, self._quiet_at)  # the consumers keep the lease
        until = min(until, self.lease.renew_at)
        if self.resumed is None and not (outbox.waiting or outbox.spooling):
            until = min(until, max(self._used_at + self._idle, now + BUSY))
        return until

    def call(self, now: float) -> Call | None:
        """Return the call that is due, if any is; it is answered to :meth:`hear`, or to :meth:`missed`.

        The first that applies is made, and each line relies on those before it.
        """
        while (call := self._next(now)) is True:
            pass
        if call is not None:
            self.call_since, self._heard = now, False  # its answer may be older than a recall from now on
        return call or None

    def _next(self, now: float) -> "Call | bool | None":
        """Return the call that is due; True where something changed without one, and this is to be asked again."""
        waiters, outbox = self.waiters, self.outbox
        # What an answer showed to be missing comes before all that would meet with the same answer again.
        if (healing := self._heal(now)) is not None:
            return healing
        # A segment that is written goes in flight once all that was paid before it is stored: order holds.
        if waiters.writer is not None and (taken := self._take_prepared(now)) is not None:
            return taken
        # No answer yet: until its fate is known, its number must not be used again, nor the account ended or renewed.
        if outbox.flight is not None:
            return self._send(outbox.flight)
        # A removal voids what the lines below would do with the credit; the flight above may be stored before it.
        if self._removed:
            self._removed = False
            self._effects.forget()
            self._start_anew()
            self.credit.epoch = 0  # on purpose: what it was is not to be brought back, nor is the credit
            return True
        # What others wait for goes back before it is spent on those who wait here.
        if self._goes_back():
            return self._acquire(now)
        # Rare, and only counted: it must not starve behind sends that always have something to do.
        if self.open and self._destination.unreported and now >= self._destination.report_at:
            return CountDrops()
        # Credit may have come by a hint, or by hand of another thread: nobody asks for what is here.
        if outbox.waiting and self.admit(now):
            self._ask_at = 0.0
        # Paid messages go before new credit is asked for: the answer to them brings it.
        if outbox.ready and now >= waiters.rate_at and (batch := outbox.batch()) and self.open:
            return self._send(batch)
        if outbox.waiting and (head := outbox.head()):
            return self._serve(head, now)
        # Nothing waits for credit; what is paid is held up by the rate.
        if outbox.ready and now >= min(waiters.look_at, waiters.explain_at):
            return Explain(now >= waiters.explain_at)
        return self._keep_lease(now)

    def _heal(self, now: float) -> Call | None:
        if self._ensure:
            return Create(recover=self.credit.epoch > 0)
        return self._acquire(now) if self._claim else None  # what is held is claimed first

    def _take_prepared(self, now: float) -> "Call | bool | None":
        outbox, writer = self.outbox, self.waiters.writer
        if writer is None or writer.prepared is None or outbox.flight or outbox.ready or now < self.waiters.rate_at:
            return None
        if not (self.open and self.credit.may_refer()):
            return None if self.open else self._acquire(now)
        prepared = writer.take()
        if not outbox.spooling or not outbox.fly(prepared.references, prepared.segment):  # in line again, or unwanted
            writer.discard(prepared)
        elif outbox.head():
            writer.seek()  # the next is written while this one is published
        return True

    def _goes_back(self) -> bool:
        recalled, self._give_back = self._give_back, False
        wanted, self._wanted = self._wanted, False
        due = recalled and (self.waiters.stopped or not self.alone_in_line)
        return (due and self._recall()) or wanted

    def _serve(self, head: Outgoing, now: float) -> "Call | bool | None":
        """Do what is due for the first that waits for credit."""
        waiters = self.waiters
        if self.open and now >= waiters.rate_at:
            # In line, so there is no room below the limit; it need not wait where there is a hard one.
            if self.last.place and head.beyond and waiters.may_exceed(head):
                self.outbox.exceed()
                return True
            # It was asked for and there is no room in memory: the store takes it, while it keeps its place.
            if now < self._ask_at and self._spools and waiters.writer:
                waiters.writer.seek()
        if now >= min(self._ask_at, self.lease.renew_at) or not self.open:  # a lease may be shorter than the pause
            # In line for its whole pause: the dead may hold what it waits for. A sweep makes room, then it asks.
            if self.last.place and self._sweeps and self._ask_at > 0:
                self._sweeps = False
                return Reap()
            self._sweeps = True
            return self._acquire(now, again=self.open and self.last.place > 0 and self._ask_at > 0)
        return Explain(now >= waiters.explain_at) if now >= min(waiters.look_at, waiters.explain_at) else None

    def _keep_lease(self, now: float) -> Call | None:
        if self.open and self._idle_since(now) and not self.last.place:
            return self._end_idle(now)
        due = self.open and (self.last.place > 0 or now >= self.lease.renew_at)  # it may wait no more: leave the line
        return self._acquire(now) if due else None

    def _idle_since(self, now: float) -> bool:
        if self.resumed is not None:
            return False  # an account that ends looks the same as one that a later session took
        if self.credit.uses != self._uses_seen:
            self._uses_seen, self._used_at = self.credit.uses, now
        busy = self.credit.spent - self.credit.returned > self.credit.used  # permits of a gate, that no message shows
        waiting = self.outbox.waiting or self.outbox.spooling
        return not busy and not waiting and now >= self._used_at + self._idle

    def _end_idle(self, now: float) -> Call | None:
        if self.consumers:  # they keep the lease
            quiet = self.credit.in_hand == self.credit.in_hand_m == self._weighs == 0
            if quiet and now < self._quiet_at:
                return None
            # A late copy of an older call may say another weight, and equal totals have no order: say it twice.
            self._quiet_at = math.inf if quiet else now + COME_WITHIN
            self.credit.give_back(self.credit.in_hand, self.credit.in_hand_m)
            return self._acquire(now, weight=0)
        return self.leave() if self.credit.retire() else None  # unless some was taken this very moment

    def leave(self, *, ends: bool = False) -> Leave:
        """Return the call that gives everything back; ``ends``: so nobody asks again what its session published."""
        line = self.credit
        line.give_back(line.in_hand, line.in_hand_m)  # nothing may be taken of it while the call is under way
        return Leave(self._totals(0), closes=not self.consumers, resume=not ends or self.resumed is not None)

    def begin(self, now: float) -> Call | None:
        """Return the next of the calls that open the account; None once there is none."""
        call = self._heal(now)
        if call is None and not self._opened and not self.open:
            call = self._acquire(now)
        if call is None:
            self._opened = True
        else:
            self.call_since = now
        return call

    def _send(self, batch: Batch) -> "Call | bool":
        # For another account no copy of an older call is good; the call that opens it says what a copy has stored.
        if self.outbox.tried is not None and not self.outbox.may_go(batch):
            self._drop_segment(batch)
            self._start_anew()
            return True
        return Publish(self._totals(self.weight, paid=batch.size, paid_m=len(batch.items)), batch)

    def _acquire(self, now: float, weight: int | None = None, *, again: bool = False) -> Acquire:
        if not self.open:
            self._used_at = now
        resume, sent = self.resumed is not None or self.outbox.tried is not None, self.sent(now)
        totals = self._totals(self.weight if weight is None else weight)
        hasty = bool(self.outbox.waiting) and self.waiters.hasty
        return Acquire(totals, resume=resume, sent=sent, hasty=hasty, again=again and not hasty)

    def _totals(self, weight: int, *, paid: int = 0, paid_m: int = 0) -> Totals:
        """Return the totals that go out: what is had, what the first in line needs, and what would be good to have.

        A sender in line for memory needs; what it wants is more only where nobody else waits.
        """
        line, waiters, last, self._weighs = self.credit, self.waiters, self.last, weight
        head = self._asked_for = self.outbox.head() if self.outbox.waiting else None
        # Not in line: what memory never has room for, and what a store takes at once, unless pools are to lend room:
        # they do so to whoever stands in line. The store takes what comes meanwhile: each reference is a message.
        lines_up = head is not None and head.size < waiters.beyond_memory
        if waiters.writer and waiters.writer.store and not self._destination.pooled:
            lines_up = lines_up and not (waiters.spools and not waiters.writer.waits)
        need = line.spent + head.size if head and lines_up else line.granted
        need_m = line.spent_m + 1 if head and (lines_up or self._destination.pooled) else line.granted_m
        if weight == 0 or ((last.blocked or self.recalled) and not head):
            # It is of no use here, or of more use to those who wait elsewhere: nothing new.
            want, want_m = line.granted, line.granted_m
        elif last.blocked:
            # Others wait too: ask for what is here, not for a window ahead of it.
            want = line.spent + self.outbox.waiting_bytes(self.window)
            want_m = line.spent_m + len(self.outbox.waiting)
        else:
            # Nobody waits: a window ahead, on top of what this very call spends.
            want = line.used + line.returned + self.window + paid
            want_m = line.used_m + line.returned_m + max(1, int(self.window * self._messages_per_byte)) + paid_m
        if head is not None and not lines_up and head.size < waiters.beyond_memory and weight:
            # It goes to a store without waiting for memory, but takes what is free there.
            want, want_m = max(want, line.spent + head.size), max(want_m, line.spent_m + 1)
        return Totals(
            self._session, line.inc, line.epoch, line.granted, line.granted_m, line.used, line.used_m,
            line.returned, line.returned_m, need, need_m, want, want_m, weight, head.size if head and lines_up else 0,
        )  # fmt: skip

    def _recall(self) -> bool:
        """Give back what was not used since the last recall, and all above the fair share."""
        line, self._owed, (share, share_m) = self.credit, False, (0, 0) if self.waiters.stopped else self._share
        used, used_m = line.used - self._used_before[0], line.used_m - self._used_before[1]
        self._used_before = line.used, line.used_m
        if self.outbox.waiting or self.waiters.stopped:
            used = used_m = 0  # what is in hand is too little for the first in line, and of use to others
        spare = min(line.in_hand, max(line.in_hand - used, line.held - share))
        spare_m = min(line.in_hand_m, max(line.in_hand_m - used_m, line.held_m - share_m))
        line.give_back(spare, spare_m)  # nothing, where these are below 0
        return max(spare, spare_m) > 0

    # What was answered.

    def missed(self, now: float, *, gives_up: bool) -> None:
        """Note that a call was not answered, whether it was done or not: it will be made again.

        Args:
            now: when that was known.
            gives_up: whether nothing may be taken from now on, or else only once the lease may be over.
        """
        self.lost_since = self.lost_since or self.call_since or now
        self.call_since, self._weighs = 0.0, self.weight
        if gives_up or now > self.lease.use_until:
            self.credit.frozen = True
        self.waiters.refuse(now, now)
        self.waiters.stir()  # what is paid may be late now

    def answered(self, now: float) -> None:
        """Note that Redis answers; one that a gate was given long after it was asked says nothing of its lease."""
        self.call_since, self.lost_since = 0.0, None
        is_sure = self._holds_messages or now <= self.lease.use_until
        if self.credit.frozen and is_sure and not self.waiters.stopped:
            self.credit.frozen = False
            self._ask_at = 0.0  # the last answer was not acted upon
            self.admit(now)

    def hear(self, call: Call, answer: Credit | None, now: float) -> None:
        """Take in the answer to a call.

        Raises:
            SessionExpired: another session goes on under its id, or might have.
        """
        asked_at, self.call_since = self.call_since, 0.0
        if isinstance(call, Publish) and answer is not None:
            self._published(call.batch, answer, asked_at, now)
        elif isinstance(call, Acquire) and answer is not None:
            self._acquired(call, answer, asked_at, now)
        elif isinstance(call, Explain):
            self.waiters.looked(asked_at, fully=call.fully)
        elif isinstance(call, Create):
            self._ensure, self._claim = False, True
        elif isinstance(call, Leave) and call.closes:
            self._start_anew()
        self.answered(now)

    def _acquired(self, call: Acquire, answer: Credit, asked_at: float, now: float) -> None:
        self._claim = False
        self._apply(answer, asked_at, now)
        if answer.code == "OK" and self.resumed is not None and not self._opened:
            self.resumed = answer.first
            self.outbox.next_seq, self.outbox.tried = answer.first + 1, None
        elif answer.code == "OK" and call.resume and not self.outbox.find(answer.first, call.totals.inc):
            raise SessionExpired(self._name, self._session, "a later session resumed it")
        healing, waiting = self._ensure or self._claim, self.outbox.waiting
        was_asked = waiting and waiting[0] is self._asked_for and not self.credit.is_unsure(waiting[0].size)
        if self.open and not healing and not self.credit.frozen and was_asked and self._had_of_pools(answer, asked_at):
            self.waiters.refuse(asked_at, now)  # those that came during the call were not asked for

    def _had_of_pools(self, answer: Credit, asked_at: float) -> bool:
        """Return whether an answer is the last word: one from before the pools lent what they have is not."""
        if not self._destination.pooled or answer.place != 1:
            return True
        asked, self._pools_asked_at = self._pools_asked_at <= asked_at, math.inf
        return asked

    def _published(self, batch: Batch, answer: Credit, asked_at: float, now: float) -> None:
        """Take in what became of a batch.

        ============  =========================================  ====================================================
        OK            stored, all of it or as the rate allows    the rest goes first next time
        DUPLICATE     stored before, its answer was lost         the same
        FULL          a segment, or its references, find no room back in line, unspooled; the segment is deleted
        FULL          not even the hard limit has room           they fail, or are dropped
        STOPPED       the destination is stopped by hand         all back in line, all credit given back
        ABOVE         it is above the hard limit by now          the same
        STALE         a segment, and values say another slice    the same; what was seen of it is looked at again
        PASSED        a later batch is stored                    cannot be: numbers go out one after the other
        all others    nothing is stored; the account is not      as :meth:`_apply` has it: the batch stays in flight,
                      what was thought                           or is put back in line with all else
        ============  =========================================  ====================================================
        """
        code, outbox = answer.code, self.outbox
        if not answer.stored:
            outbox.not_stored(batch, code)
        if code not in REFUSALS:
            self._apply(answer, asked_at, now)
        if code in ("OK", "DUPLICATE"):
            rest = answer.stored < len(batch.items)
            size = sum(item.size for item in batch.items[: answer.stored]) if rest else batch.size
            if not batch.found:
                self.credit.publish(size, answer.stored)
            items = outbox.published(answer.stored)
            if (rest or self.waiters.rate_at) and self.waiters.hold_back(now, answer.again_ms if rest else 0):
                self._destination.wait_begins(now)
            self._used_at = self.stored_at = asked_at
            self.exceeded = batch.beyond and not batch.segment
            self._effects.stored(batch, items, answer)
        elif code == "PASSED":
            raise AssertionError(f"{self._session}: batch {batch.seq} was overtaken")
        elif code == "FULL":
            self._found_full(batch, answer)
            return
        elif code in ("STOPPED", "ABOVE", "STALE"):
            outbox.unspend()
            self.credit.give_back(self.credit.in_hand, self.credit.in_hand_m)
            self._ask_at = 0.0
            self._drop_segment(batch)
            return
        if not answer.stored and outbox.flight is not batch:
            self._drop_segment(batch)
        if outbox.waiting and any(self.waiters.impatient()):
            self._ask_at = 0.0  # they do not wait for the next look

    def _found_full(self, batch: Batch, answer: Credit) -> None:
        outbox, writer = self.outbox, self.waiters.writer
        if batch.segment:
            outbox.unspend()
            if writer is not None:
                writer.refuse(batch.segment, answer.granted_m, answer.no_store)
            self._effects.refill(None)  # it may lack messages of its pools, and whoever is first may not ask now
            self._ask_at = 0.0
            return
        self.exceeded = True
        for item in outbox.refused():
            if self.waiters.how(item).drops:
                self._ends.dropped(item)
            else:
                self._ends.above_hard(item, answer.granted, answer.granted_m)

    def _apply(self, answer: Credit, asked_at: float, now: float) -> None:
        """Take in what an answer says of the account.

        ===============================  =====================================================================
        OK, DUPLICATE                    it is open: its totals and its place in line are these
        DUPLICATE without any credit     stored once, and the account is gone: the next call says so
        TOO_LARGE                        the first in line never fits: to the store with it, or it fails
        UNKNOWN                          no such destination: make it, then claim what is held
        EPOCH                            its state was lost and begun anew: claim what is held before all else
        EXPIRED, FENCED, OVERUSE         another account has its place, or none: begin anew, with nothing in hand
        ===============================  =====================================================================
        """
        if (code := answer.code) in ("OK", "DUPLICATE"):
            if code == "OK" or answer.granted:
                self._opened_as(answer, asked_at, now)
        elif code == "TOO_LARGE":
            self._too_large(answer.granted)
        elif code == "UNKNOWN":
            self._ensure = True
        elif code == "EPOCH":
            self._claim = True
        elif self.resumed is not None and self._opened:
            raise SessionExpired(self._name, self._session, "a later session resumed it, or its lease ran out")
        else:
            self._start_anew()
            self._ensure = self._destination.pooled  # it was away: values may say by now which slice a message goes to
            if self.resumed is not None and code == "FENCED":  # whoever resumes comes after whoever was here
                self.credit.inc = answer.granted + self._incarnation()
            self._claim = not self._opened  # somebody waits for it to open

    def _opened_as(self, answer: Credit, asked_at: float, now: float) -> None:
        line = self.credit
        # The epoch first: what is granted below is of that one, and what was lost with another is counted once.
        if line.epoch != answer.epoch:
            if line.epoch:
                self._destination.meet(line.epoch, answer.epoch, answer.lost)
            line.epoch = answer.epoch
        self.open = True
        before, self.last = self.last, answer
        in_line = answer.place > 0 and not self._holds_messages  # permits that are taken up again call nobody
        self.recalled = (self.recalled or self._give_back or in_line) and (answer.blocked > 0 or self._heard)
        self._owed = self._owed and self.recalled
        if answer.code == "OK":  # a batch that is stored already renews nothing
            self.lease.renewed(asked_at)  # from before the call: Redis counted from some moment during it
        if self._holds_messages:
            line.raise_to(answer.granted, answer.granted_m)
        else:
            self._effects.granted(answer.epoch, answer.granted, answer.granted_m)
        waiting = self.outbox.waiting
        served = (bool(waiting) or line.lent) and self.admit(now)
        head = waiting[0] if waiting else None
        asked = head is self._asked_for or self._spools  # not one that came during the call
        again_at = now + answer.again_ms / 1000
        if answer.place:
            if answer.blocked > 1 and line.in_hand > 0 and head is not None and not self.waiters.may_exceed(head):
                self._give_back = True  # two that wait, each with what the other lacks, are recalled much later
            if answer.again_ms == PAUSE_MS:
                latest = min(asked_at + LONG_PAUSE, self.lease.renew_at) if answer.place > 1 else again_at
                again_at, self._sweeps = self._effects.turn(again_at, latest)
            if self._destination.consumers:
                self.waiters.watch(now)
        self._ask_at = 0.0 if served or not asked else again_at
        if self._destination.pooled and 1 in (before.place, answer.place):  # whoever gives up leaves their lines too
            hurried = asked and any(self.waiters.impatient())
            self._effects.refill(head if hurried else None)

    def _too_large(self, limit: int) -> None:
        head = self.outbox.head()
        if head and self.waiters.writer is not None and self.waiters.writer.store:
            self.waiters.beyond_memory = head.size  # but not for the store; to ask for it again would renew no lease
            self._ask_at = 0.0
        elif head:
            self._ends.too_large(head, limit)

    def pools_asked(self, head: Outgoing, now: float) -> None:
        """Note that the pools lent the first in line what they have: those that do not wait go by the next answer."""
        if self.outbox.waiting and self.outbox.waiting[0] is head:  # else it is gone, and nobody asked for the next one
            self._pools_asked_at = now
            self._ask_at = 0.0

    def beyond_pool(self, pool: str, limit: int) -> None:
        """Note that the destination can have at most ``limit`` bytes of a pool: more can never be sent at once."""
        head = self.outbox.head()
        if head and head.size > limit and self.waiters.writer is not None and self.waiters.writer.store:
            self.waiters.beyond_memory = min(self.waiters.beyond_memory, head.size)  # but not for the store
        elif head and head.size > limit:
            self._ends.too_large(head, limit, pool)
            self._ask_at = 0.0

    def _doubt(self, now: float) -> None:
        if not self._holds_messages and now > self.lease.use_until:
            self.credit.frozen = True  # what a gate has may be others' by now: first hear from Redis

    def admit(self, now: float) -> bool:
        """Pay for as many of those that wait as the credit covers; returns whether anybody was paid."""
        self._doubt(now)
        paid = self.outbox.admit()
        if not self._holds_messages and self.credit.keep_within():
            self._wanted = True
        if paid:
            self._pools_asked_at = math.inf  # for those, not for who comes next
        if paid and self.waiters.announced:
            self.waiters.stir()
        return paid

    @property
    def _spools(self) -> bool:
        return (writer := self.waiters.writer) is not None and bool(writer.store) and self.waiters.spools

    def _drop_segment(self, batch: Batch) -> None:
        """Delete what was written for a batch that is given up: nothing of it is stored."""
        if batch.segment and self.waiters.writer is not None:
            self.waiters.writer.drop(batch.segment)

    def _start_anew(self) -> None:
        """Forget the account: nothing is in hand, and nothing that is not stored was sent."""
        self.outbox.unpaid()
        self.credit.start_anew()
        self.open, self._used_before, self._ask_at = False, (0, 0), 0.0
        self._destination.start_anew()
