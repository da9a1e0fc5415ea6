"""The calls of one account: acquire, publish, leave. When one is due, its loop says: :mod:`headgate.credit.account`."""

import asyncio
import math
import secrets
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from headgate.core.credit import MESSAGES_PER_WINDOW_BYTE, PERMITS_PER_WINDOW_BYTE, CreditLine
from headgate.core.durability import Durability, Held
from headgate.core.lease import Lease
from headgate.core.outbox import Batch, Outgoing
from headgate.credit.observer import Outlook
from headgate.credit.securing import Nobody, Part, Securing, Written, secured_by
from headgate.credit.waiters import Callers
from headgate.errors import DestinationFull, MessageTooLarge, SessionExpired
from headgate.message import Receipt
from headgate.redis.keys import Address
from headgate.redis.replies import Account as Totals
from headgate.redis.replies import Credit
from headgate.redis.secured import Waiting
from headgate.redis.store import Store

RECEIPTS_LAST: Final = 3540.0
"""Seconds for which Redis surely knows the number of the last message that it gave a receipt for."""
Ensure = Callable[[bool], Any]
Refill = Callable[[Callable[[str, int], None]], None]


def any_incarnation() -> int:
    """Return a number from 1 on that hardly anybody else gets: of two that resume, one fences the other."""
    return 1 + secrets.randbelow(1 << 20)


class AccountCalls(Callers):
    """The calls for the callers of one account: their totals go out, and the answers are acted upon.

    Args:
        store: the scripts.
        address: the destination.
        session: the session's id.
        lease: until when credit may be used.
        credit: the line of credit.
        outlook: what is known of the destination.
        ensure: makes the destination exist; its argument says whether it was known before and is gone.
        refill: begins to fetch what is missing from the destination's pools, if it has any.
        holds_messages: False for a gate, whose credit in use is a permit and not a message.
    """

    def __init__(
        self,
        store: Store,
        address: Address,
        session: str,
        lease: Lease,
        credit: CreditLine,
        outlook: Outlook,
        ensure: Ensure,
        refill: Refill,
        *,
        holds_messages: bool,
    ) -> None:
        super().__init__(address, session, lease, credit, outlook, holds_messages=holds_messages)
        self.consumers = 0
        """Consumers that the session has here: while there are any, idling must not end its lease."""
        self._messages_per_byte = MESSAGES_PER_WINDOW_BYTE if holds_messages else PERMITS_PER_WINDOW_BYTE
        self.resumed: int | None = None
        """Messages that earlier sessions of its id published; None for a session whose id is its own."""
        self._store = store
        self._ensure = ensure
        self._refill = refill
        self._task: asyncio.Task[None] | None = None
        """What makes the calls that are due; None until the first answer is there."""
        self._asked_for: Outgoing | None = None
        self._used_at = 0.0
        self.stored_at = -math.inf
        """When its last receipt was given, on the loop's clock."""
        self._used_before = (0, 0)
        self._granting: tuple[int, int, int] | None = None

    def secure(self, durability: Durability) -> None:
        """Confirm from now on only what is as safe as that."""
        self.securing = secured_by(durability, self.securing, self._store, self.address, self.session)

    def follow(self, before: "AccountCalls") -> None:
        """Go on with the numbers of an account of the same session that was closed."""
        self.outbox.next_seq, self.stored_at = before.outbox.next_seq, before.stored_at

    def in_line(self, item: Outgoing) -> bool:
        """Whether Redis was asked for a message, and there was no room."""
        return item is self._asked_for and self.last.place > 0 and not self._call_since

    def _start_anew(self) -> None:
        self.outbox.unpaid()
        self.credit.start_anew()
        self._open = False
        self._used_before = (0, 0)
        self._ask_at = 0.0
        self.outlook.start_anew()

    def _totals(self, weight: int, *, paid: int = 0, paid_m: int = 0) -> Totals:
        line = self.credit
        head = self._asked_for = self.outbox.head()
        lines_up = head is not None and head.size < self._beyond_memory
        lines_up = lines_up and not (self._spools and self.writer and not self.writer.waits)
        need, need_m = line.need_for(head.size) if head and lines_up else (line.granted, line.granted_m)
        if weight == 0 or ((self.last.blocked or self.recalled) and not head):
            want, want_m = line.granted, line.granted_m
        elif self.last.blocked:  # others wait too: ask for what is here, not for a window ahead of it
            want = line.spent + self.outbox.waiting_bytes(self.window)
            want_m = line.spent_m + len(self.outbox.waiting)
        else:
            want, want_m = line.window_totals(self.window, self._messages_per_byte)
            want, want_m = want + paid, want_m + paid_m
        if head is not None and not lines_up and head.size < self._beyond_memory and weight:
            fits, fits_m = line.need_for(head.size)  # it does not wait in line for memory, but takes what is free
            want, want_m = max(want, fits), max(want_m, fits_m)
        return Totals(
            self.session, line.inc, line.epoch, line.granted, line.granted_m, line.used, line.used_m,
            line.returned, line.returned_m, need, need_m, want, want_m, weight, head.size if head and lines_up else 0,
        )  # fmt: skip

    async def _acquire(self, weight: int | None = None) -> None:
        asked_at = self._loop.time()
        if not self._open:
            self._used_at = asked_at
        self._call_since = asked_at
        try:
            totals = self._totals(self.weight if weight is None else weight)
            resume, sent = self.resumed is not None, self._sent
            waiting, store = None, self._store
            if self.securing is not None and not self._holds_messages:
                waiting, store = self.securing.waiting(store)
            call = store.acquire(self.address, totals, ttl_ms=self.lease.ttl_ms, resume=resume, sent=sent)
            hasty = any(not self._how(item).drops for item in self._impatient())
            answer = await (self.outlook.look_during(call) if hasty else call)
        finally:
            self._call_since = 0.0
        if self.securing is not None and answer.code == "OK" and answer.epoch != totals.epoch:
            self.securing.epoch_began(answer.epoch, sent - answer.lost)
        await self._apply(answer, asked_at, None if waiting is None else waiting.held)
        if resume and self._task is None and answer.code == "OK":
            self.resumed = answer.first
            self.outbox.next_seq = answer.first + 1
        if self._open and not self.credit.frozen and self.outbox.head() is self._asked_for:
            self._refuse(asked_at)

    @property
    def _sent(self) -> int:
        """The number of the last message that it has a receipt for; 0 where Redis may have forgotten it rightly."""
        return self.outbox.next_seq - 1 if self._loop.time() - self.stored_at < RECEIPTS_LAST else 0

    async def _publish(self) -> None:
        batch = self.outbox.flight
        if batch is None:
            return
        asked_at = self._call_since = self._loop.time()
        totals = self._totals(self.weight, paid=batch.size, paid_m=len(batch.items))
        waiting, store = None, self._store
        if securing := self.securing:
            waiting, store = securing.waiting(store)
        try:
            bodies = [item.payload for item in batch.items]
            expires_ms = batch.items[0].ttl_ms or 0
            answer = await store.publish(
                self.address, totals, seq=batch.seq, bodies=bodies, ttl_ms=self.lease.ttl_ms, expires_ms=expires_ms,
                beyond="spool" if batch.segment else "hard" if batch.beyond else "refuse",
                segment=f"{batch.segment} {len(bodies)}" if batch.segment else "-", copies=self._copies(batch),
            )  # fmt: skip
        finally:
            self._call_since = 0.0
        if answer.code in ("OK", "DUPLICATE"):
            stored = self.outbox.published(answer.stored)
            self._hold_back(answer.again_ms if len(stored) < len(batch.items) else 0)
            self._used_at = self.stored_at = asked_at
            self.exceeded = batch.beyond and not batch.segment
            self._stored(securing, waiting, answer, batch.seq + len(stored) - 1, stored)
        elif answer.code == "PASSED":
            raise AssertionError(f"{self.session}: batch {batch.seq} was overtaken")
        elif answer.code == "FULL" and batch.segment:
            self._respool(answer)
            return
        elif answer.code == "FULL":
            self.exceeded = True
            for item in self.outbox.refused():
                self._give_up(item, asked_at, self._above_hard(item, answer))
            return
        elif answer.code in ("STOPPED", "ABOVE"):
            self.outbox.unspend()
            self.credit.give_back(self.credit.in_hand, self.credit.in_hand_m)
            self._ask_at = 0.0
            self._drop_segment(batch)
            return
        await self._apply(answer, asked_at)
        if not answer.stored:
            self._drop_segment(batch)
        if any(self._impatient()):
            self._ask_at = 0.0  # they do not wait for the next look

    def _stored(
        self, securing: Securing | None, waiting: Waiting | None, answer: Credit, last: int, stored: list[Outgoing]
    ) -> None:
        """Give receipts, at once or when what is stored is as safe as asked for."""
        if securing is None:
            for seq, item in enumerate(stored, answer.first):
                self.confirming.stored(Receipt(seq, item.size), item)
            return
        # What was stored before may be older than what this connection wrote.
        held = waiting.held if waiting is not None and answer.code == "OK" else None
        confirm, parts = self.confirming.stored, []
        for seq, item in enumerate(stored, answer.first):
            receipt = Receipt(seq, item.size)
            until = min(item.deadline, self.stored_at + item.safe_within)
            parts.append(Part(partial(confirm, receipt, item), item.done, until, receipt))
        securing.wrote(Written(answer.epoch, last, parts, self.stored_at), held)

    def _drop_segment(self, batch: Batch) -> None:
        """Delete what was written for a batch that is given up: nothing of it is stored."""
        if batch.segment and self.outbox.flight is not batch and self.writer is not None:
            self.writer.drop(batch.segment)

    def _copies(self, batch: Batch) -> list[bytes]:
        """Return payloads to go along with their references: for subscriptions of a topic that are not behind."""
        return [item.whole for item in batch.items if item.whole is not None] if batch.segment and self.topic else []

    def _respool(self, answer: Credit) -> None:
        """Put messages back in line that are in a store, but whose references find no room in memory."""
        batch = self.outbox.flight
        self.outbox.unspend()
        if self.writer is not None and batch is not None:
            self.writer.refuse(batch.segment, answer.granted_m - answer.granted)
        self._ask_at = 0.0

    def _above_hard(self, item: Outgoing, answer: Credit) -> DestinationFull:
        reason = f"{answer.granted} bytes are stored or promised, and its hard limit is {answer.granted_m}"
        return DestinationFull(self.address.name, item.size, reason, waited=0.0)

    async def _leave(self, *, ends: bool = False) -> None:
        """Give all back; ``ends``: the session ends too, so nobody asks again what it published."""
        line = self.credit
        line.give_back(line.in_hand, line.in_hand_m)  # nothing may be taken of it while the call is under way
        if self.outlook.unreported:
            await self.outlook.report()
        if self.consumers:
            await self._store.acquire(self.address, self._totals(0), ttl_ms=self.lease.ttl_ms)
        else:
            await self._store.acquire(
                self.address,
                self._totals(0),
                ttl_ms=self.lease.ttl_ms,
                leave=True,
                resume=not ends or self.resumed is not None,
            )
            self._start_anew()

    def _grant(self, epoch: int, granted: int, granted_m: int, held: Held | None = None) -> bool:
        """Take in granted totals; those of a gate once the grant is as safe as asked for. Returns whether they grew."""
        if self.securing is None or self._holds_messages:
            return self.credit.raise_to(granted, granted_m)
        grant = (self.credit.inc, granted, granted_m)
        grows = granted > self.credit.granted or granted_m > self.credit.granted_m
        if grows and (grant != self._granting or not self.securing.waits):
            self._granting = grant
            self.securing.wrote(
                Written(epoch, math.inf, [Part(partial(self._raise, *grant), Nobody())], self._loop.time()), held
            )
        return grows

    def _raise(self, inc: int, granted: int, granted_m: int) -> None:
        if inc == self.credit.inc and self.credit.raise_to(granted, granted_m):
            self._admit()

    async def _apply(self, answer: Credit, asked_at: float, held: Held | None = None) -> None:
        """Take an answer in; codes of lost state are healed here, at the price of one more call."""
        if answer.code in ("OK", "DUPLICATE"):
            if answer.code == "DUPLICATE" and not answer.granted:
                return  # stored once, and the account is gone: the next call says so
            self.outlook.meet(self.credit.epoch, answer.epoch, answer.lost)
            self.credit.epoch = answer.epoch
            self._open = True
            before, self.last = self.last, answer
            self.recalled = self.recalled and answer.blocked > 0
            self.lease.renewed(asked_at)
            self._grant(answer.epoch, answer.granted, answer.granted_m, held)
            served = self._admit()
            asked = self._spools or self.outbox.head() is self._asked_for  # not one that came during the call
            self._ask_at = 0.0 if served or not asked else self._loop.time() + answer.again_ms / 1000
            if 1 in (before.place, answer.place):  # who was first and gives up leaves the pools' lines too
                self._refill(self.beyond_pool)
        elif answer.code == "TOO_LARGE":
            head = self.outbox.head()
            if head and self.writer is not None and self.writer.store:
                self._beyond_memory = head.size  # but not for the store; to ask for it again would renew no lease
                self._ask_at = 0.0
            elif head:
                self._tell(head, MessageTooLarge(self.address.name, head.size, answer.granted, gate=self.gate))
        elif answer.code == "UNKNOWN":
            await self._ensure(self.credit.epoch > 0)
            await self._acquire()  # what is held is claimed first
        elif answer.code == "EPOCH":
            await self._acquire()
        elif self.resumed is not None and self._task is not None:
            raise SessionExpired(self.address.name, self.session, "a later session resumed it, or its lease ran out")
        else:  # EXPIRED, FENCED, OVERUSE: Redis has another account, or none; the next one starts empty
            self._start_anew()
            if self.resumed is not None and answer.code == "FENCED":  # whoever resumes comes after who was here
                self.credit.inc = answer.granted + any_incarnation()
            if self._task is None:
                await self._acquire()
