"""An outbox holds messages on their way out: waiting for credit, paid and ready, or in a batch being published.

Order is the order of :meth:`Outbox.add`, whatever happens in between. No clock and no I/O here: the caller says what
time it is, and what became of a batch.
"""

import math
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.core.account.late_copies import STORED_LATER, Tried
from headgate.core.credit import CreditLine
from headgate.core.deadlines import Deadlines
from headgate.core.when_full import WhenFull

MAX_BATCH: Final = 256
MAX_BATCH_BYTES: Final = 1 << 20


@dataclass(eq=False, slots=True)
class Outgoing:
    """An outgoing message is one that a caller sends.

    It has slots: without them one that gets an attribute that the first ones had not has a dictionary of its own.

    Attributes:
        payload: as it will be stored; its length is its size.
        deadline: when the caller stops waiting, on the caller's clock.
        done: called with the receipt or the error.
        ttl_ms: how long it is kept once it is stored; None as long as its destination says.
        when_full: what its producer says for itself; None leaves it to the destination.
        credited: called once the credit is there, for callers that wait for no more.
        since: when its sender came, or, where it had to wait for credit, when that began; 0 while that is not known.
        timed: whether its deadline is being watched, where it has one.
        paid: whether it has its credit: then only a rate, or Redis, can hold it up.
        beyond: whether it may exceed the limit, up to the destination's hard limit, rather than wait.
        safe_within: seconds after which a stored message that is not as safe as asked for is reported.
        whole: the payload where a reference to it has taken its place, for it is in a spool store.
        who: the task, or the thread, that does nothing else until the message is paid; None when that is not known.
        durable: whether it is not to be lost, where that decides which store it goes to; None until somebody asked.
        producer: which of the session's clients sent it, where it has several; empty where it has one.
        span: of its send, for traces; None without one.
        later: when it is due, as ``lua/publish.lua`` reads it; empty for at once.
    """

    payload: bytes
    size: int
    deadline: float
    done: Any
    ttl_ms: int | None = None
    when_full: WhenFull | None = None
    credited: Any = None
    since: float = 0.0
    timed: bool = field(default=False, init=False)
    paid: bool = field(default=False, init=False)
    beyond: bool = field(default=False, init=False)
    safe_within: float = field(default=math.inf, init=False)
    whole: bytes | None = field(default=None, init=False)
    who: Any = field(default=None, init=False)
    durable: bool | None = field(default=None, init=False)
    producer: str = field(default="", init=False)
    span: Any = field(default=None, init=False)
    later: str = field(default="", init=False)

    def restore(self) -> None:
        """Put the payload back in place: it was not sent, and is to go on as it came."""
        self.paid = False
        if self.whole is not None:
            self.payload, self.size, self.whole = self.whole, len(self.whole), None

    def abandoned(self) -> bool:
        """Return whether nobody wants it sent any more."""
        return bool(self.done.cancelled() or (self.credited is not None and self.credited.cancelled()))


@dataclass(slots=True)
class Batch:
    """A batch holds messages published together, of one ``ttl_ms``.

    ``seq`` numbers the first, counted by the session from 1.

    ``beyond``: they go up to the hard limit, and were paid with credit that may not be in hand. ``segment``: these are
    references to that segment, ``<name> <bytes>``, which cost no bytes of credit. ``found``: they are known to be
    stored, paid by an account that was given up; only their receipts are to be asked for.
    """

    seq: int
    items: list[Outgoing]
    size: int
    beyond: bool = False
    segment: str = ""
    found: bool = False


@dataclass(slots=True)
class Outbox:
    """An outbox keeps the line of messages of one account: in flight, ready, spooling, waiting, the oldest first.

    ``holds_messages`` is False for a gate: whoever is paid there has what he waits for, and nothing is to be sent.
    ``served`` hears of each message that waited and is paid, where somebody times waits. ``tried`` is the last batch
    under ``next_seq`` that is not known to be stored, and might be yet.
    """

    credit: CreditLine
    holds_messages: bool = True
    waiting: deque[Outgoing] = field(default_factory=deque)
    spooling: list[Outgoing] = field(default_factory=list)
    ready: deque[Outgoing] = field(default_factory=deque)
    flight: Batch | None = None
    tried: Tried | None = None
    next_seq: int = 1
    served: Callable[[Outgoing], None] | None = None
    deadlines: Deadlines[Outgoing] = field(default_factory=Deadlines)
    _left: int = 0

    def __len__(self) -> int:
        return len(self.waiting) + len(self.spooling) + len(self.ready) + (len(self.flight.items) if self.flight else 0)

    def add(self, item: Outgoing) -> bool:
        """Put a message in line; returns whether it has its credit already. Nobody overtakes those who wait."""
        credit = self.credit
        # Looked at before it is taken, as in `admit`.
        if (
            not (self.waiting or self.spooling)
            and item.size <= credit.granted - credit.spent
            and credit.take(item.size)
        ):
            if self.holds_messages:
                item.paid = True
                self.ready.append(item)
            else:
                item.done.set_result(self.credit.inc)  # which paid; when its owner wakes up it may be over
            return True
        self.waiting.append(item)
        return False

    def add_all(self, items: Sequence[Outgoing]) -> bool:
        """Put messages in line if there is credit in hand for all of them; returns whether there is."""
        if self.waiting or self.spooling or not self.credit.take_all(sum([item.size for item in items]), len(items)):
            return False
        for item in items:
            item.paid = True
        self.ready.extend(items)
        return True

    def soonest_paid(self) -> float:
        """Return the first deadline of those that are paid and not known to be stored; infinite where none is."""
        items = (*self.ready, *(self.flight.items if self.flight else ()))
        return min((item.deadline for item in items if not item.done.done()), default=math.inf)

    def left(self) -> None:
        """Note that somebody who waited gave up: once half of the line has, the rest moves up."""
        self._left += 1
        if 2 * self._left >= len(self.waiting):
            self._left = 0
            rest = [item for item in self.waiting if not (item.abandoned() or item.done.done())]
            self.waiting.clear()
            self.waiting.extend(rest)

    def admit(self) -> bool:
        """Pay for as many of those waiting as the credit covers; returns whether anybody was paid."""
        paid, credit = False, self.credit
        # Looked at before it is taken: most who wait go on to, and threads need not wait for each other over that.
        while (head := self.head()) and not self.spooling and head.size <= credit.granted - credit.spent:
            if (not self.holds_messages and credit.is_lent_to_another(head.size)) or not credit.take(head.size):
                break
            self.waiting.popleft()
            paid = True
            if not self.holds_messages:
                head.done.set_result(credit.inc)
                continue
            head.paid = True
            self.ready.append(head)
            if self.served is not None:
                self.served(head)
            if head.credited is not None and not head.credited.done():
                head.credited.set_result(None)
        return paid

    def head(self) -> Outgoing | None:
        """Return the first message that waits for credit."""
        while self.waiting and (self.waiting[0].abandoned() or self.waiting[0].done.done()):
            self.waiting.popleft()
        return self.waiting[0] if self.waiting else None

    def held_back(self) -> Outgoing | None:
        """Return the first that is paid and not known to be stored; those who gave up put their credit back."""
        while self.ready and self.ready[0].done.done():
            self.credit.put_back(self.ready.popleft().size)
        line = self.flight.items if self.flight else self.ready
        return line[0] if line else None

    def waiting_bytes(self, most: int) -> int:
        """Return how many bytes wait, up to about ``most``."""
        total = 0
        for item in self.waiting:
            total += item.size
            if total >= most:
                break
        return total

    def batch(self) -> Batch | None:
        """Return the batch to publish: the one whose fate is unknown, else the next."""
        if self.flight is None:
            ready, items, size = self.ready, list[Outgoing](), 0
            while ready and len(items) < MAX_BATCH:
                item = ready[0]
                if items and (size + item.size > MAX_BATCH_BYTES or item.ttl_ms != items[0].ttl_ms):
                    break
                ready.popleft()
                if item.done.done():  # cancelled or timed out before it left: its credit is for others
                    self.credit.put_back(item.size)
                    continue
                items.append(item)
                size += item.size
            if items:
                self.flight = Batch(self.next_seq, items, size)
        return self.flight

    def not_stored(self, batch: Batch, code: str) -> None:
        """Note that nothing of a batch was stored, as a call was answered with that code."""
        if code in STORED_LATER and not (batch.found or batch.beyond):
            self.tried = Tried(batch.items, self.credit.inc)

    def go_on_for(self, before: "Outbox") -> None:
        """Go on with the numbers of one that was cleared, of the same session."""
        self.next_seq, self.tried = before.next_seq, before.tried

    def may_go(self, batch: Batch) -> bool:
        """Return whether a batch may have its number, whatever else was tried under that."""
        exceeds = batch.beyond and not batch.segment
        return self.tried is None or batch.found or exceeds or self.tried.begins(batch.items, batch.segment)

    def find(self, last: int, inc: int) -> bool:
        """Put in flight what a late copy has stored, once account ``inc`` bars copies; False: others have stored it."""
        if self.tried is None or inc <= self.tried.inc:
            return True
        tried, self.tried, stored = self.tried, None, last - self.next_seq + 1
        if stored > 0:
            items, segment = list(tried.items[:stored]), tried.segment
            found = set(map(id, items))
            self.waiting = deque(item for item in self.waiting if id(item) not in found)
            self.flight = Batch(self.next_seq, items, sum(i.size for i in items), bool(segment), segment, found=True)
        return stored <= len(tried.items)

    def exceed(self) -> None:
        """Put the first that waits in flight, beyond the credit in hand. Nothing may be ready or in flight."""
        item = self.waiting.popleft()
        self.credit.overdraw(item.size)
        self.flight = Batch(self.next_seq, [item], item.size, beyond=True)

    def front(self) -> Outgoing | None:
        """Return the first message that has no credit: of those that are being written, else of those that wait."""
        return self.spooling[0] if self.spooling else self.head()

    def spool(self, most: int, most_bytes: int, fits: Callable[[Outgoing], bool] | None = None) -> list[Outgoing]:
        """Take the first that wait out of the line, to be written to a store; nobody overtakes them meanwhile.

        Args:
            most: messages.
            most_bytes: of all of them together, but for the first.
            fits: whether a message goes to that store; those behind the first that does not stay in line. None: all do.
        """
        if self.spooling:
            raise AssertionError("a segment is being written")
        items, waiting, size = self.spooling, self.waiting, 0
        while waiting and len(items) < most and (fits is None or fits(waiting[0])):
            item = waiting[0]
            if not (item.done.done() or (item.credited and item.abandoned())):  # else `head` lets go of it
                if items and (size + item.size > most_bytes or item.ttl_ms != items[0].ttl_ms):
                    break
                items.append(item)
                size += item.size
            waiting.popleft()
        return items

    def fly(self, references: Sequence[bytes], segment: str) -> bool:
        """Put what was written in flight as references; False where nobody wants any of it sent so any more."""
        if not self.spooling:
            return False  # it is back in line: what went before it was not taken
        items = []
        for item, reference in zip(self.spooling, references, strict=True):
            if not item.done.done():
                item.whole, item.payload, item.size = item.payload, reference, 0  # a reference costs no credit
                items.append(item)
                if item.credited is not None and not item.credited.done():
                    item.credited.set_result(None)
        self.spooling = []
        if items:
            self.credit.overdraw(0, len(items))
            self.flight = Batch(self.next_seq, items, 0, beyond=True, segment=segment)
        return bool(items)

    def unspool(self) -> None:
        """Put what was being written back in line, in order."""
        items, self.spooling = self.spooling, []
        self._back(items)

    def _back(self, items: Sequence[Outgoing]) -> None:
        for item in reversed(items):
            item.restore()
            if not item.done.done():
                self.waiting.appendleft(item)

    def refused(self) -> list[Outgoing]:
        """Take the batch out: nothing of it was stored, nor may be; its numbers are free."""
        batch, self.flight = self.flight, None
        items = batch.items if batch else []
        for item in items:
            self.credit.put_back(item.size)
        return items

    def published(self, stored: int) -> list[Outgoing]:
        """Take the first ``stored`` of the batch out; their numbers are never used again. The rest is ready again.

        Their cost is the caller's to count, by :meth:`CreditLine.publish`.
        """
        batch, self.flight = self.flight, None
        if batch is None:
            raise AssertionError("no batch is in flight")
        items = batch.items[:stored]
        if stored:
            self.tried = None  # its number is that of what is stored
        self.next_seq = batch.seq + stored
        rest = batch.items[stored:]
        if batch.beyond and rest:
            rest += self.ready  # what comes after them waits behind them
            self.ready.clear()
            for item in rest:
                self.credit.put_back(item.size)
            self.unspool()
            self.deadlines.add_all(rest)
            self._back(rest)
        elif rest:
            self.ready.extendleft(reversed(rest))
        return items

    def unspend(self) -> None:
        """Put everything back in line, in order, and its credit in hand: nothing of it was stored, nor may be now."""
        for item in (*(self.flight.items if self.flight else ()), *self.ready):
            self.credit.put_back(item.size)
        self.unpaid()

    def take_out(self) -> list[Outgoing]:
        """Take out all that wait for credit, in order, those that are being written too: they go another way."""
        self.unspool()
        items = [item for item in self.waiting if not (item.abandoned() or item.done.done())]
        self.waiting.clear()
        for item in items:
            item.timed = False
        self.deadlines.clear()
        return items

    def unpaid(self) -> None:
        """Put everything back in line, in order: the account was lost, and with it the credit. Nothing was stored."""
        items = [*(self.flight.items if self.flight else ()), *self.ready, *self.spooling]
        self.flight, self.spooling = None, []
        self.ready.clear()
        self.deadlines.add_all(items)  # what waits behind them may be watched already
        self._back(items)

    def overdue(self, now: float, *, stuck: bool, silent: bool) -> Iterator[tuple[Outgoing, bool]]:
        """Yield messages whose caller's time is over, and whether their fate is unknown.

        Args:
            now: on the clock of the deadlines.
            stuck: whether Redis is slow to answer; only then can anything but the waiting be late.
            silent: whether it is so slow that what is on its way can be late: its answer would have brought more.
        """
        self.deadlines.look(self.spooling, self.waiting)
        for item in self.deadlines.over(now):
            if not (item in self.ready or (self.flight and item in self.flight.items)):
                yield item, False
        if stuck:
            for item in self.ready:
                if item.deadline <= now and not item.done.done():
                    yield item, False
        if silent:
            for item in self.flight.items if self.flight else ():
                if item.deadline <= now and not item.done.done():
                    yield item, True

    def clear(self, tell: Callable[[Outgoing, bool], None]) -> None:
        """Drop everything, telling each message whether its fate is unknown."""
        for item in (*self.ready, *self.spooling, *self.waiting):
            tell(item, False)
        for item in self.flight.items if self.flight else ():
            tell(item, True)
        if self.flight and not self.flight.found:
            self.tried = Tried(self.flight.items, self.credit.inc, self.flight.segment)
        self.ready.clear()
        self.spooling = []
        self.waiting.clear()
        self.deadlines.clear()
        self.flight = None
