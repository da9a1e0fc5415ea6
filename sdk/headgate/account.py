"""One session's account at one destination, kept by one task: all credit and all sends of it go through here.

The task does one thing at a time, so calls never overtake each other: publish what is paid, ask for what waits, renew
what is held, give back what is idle. Between calls everything is arithmetic (:mod:`headgate.core`).
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Final

from headgate.callers import Callers
from headgate.core.credit import MESSAGES_PER_WINDOW_BYTE, PERMITS_PER_WINDOW_BYTE, CreditLine
from headgate.core.lease import Lease
from headgate.core.outbox import Outgoing
from headgate.errors import Closed, HeadgateError, MessageTooLarge
from headgate.message import Receipt
from headgate.options import SessionOptions
from headgate.outlook import Outlook
from headgate.reconnect import AWAY, until_answered
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address
from headgate.redis.replies import Account as Totals
from headgate.redis.replies import Credit
from headgate.redis.store import Store
from headgate.tasks import stop

CLOSE_WITHIN: Final = 0.5

Ensure = Callable[[bool], Any]


class CreditAccount(Callers):
    """Credit and outgoing messages of a session at a destination.

    Args:
        store: the scripts.
        wake_ups: hints that credit came.
        outlook: what the session knows of the destination.
        address: the destination.
        session: the session's id.
        options: how the session lives.
        ensure: makes the destination exist; its argument says whether it was known before and is gone.
        forget: drops what is remembered of the destination: it was removed on purpose.
        refill: begins to fetch what is missing from the destination's pools, if it has any.
        holds_messages: False for a gate, whose credit in use is a permit and not a message.
        credit: the line to keep; a gate of :mod:`headgate.sync` has one that other threads change too, so the line is
            changed by its methods only, and what was read of it may be old a moment later.
    """

    def __init__(
        self,
        store: Store,
        wake_ups: WakeUps,
        outlook: Outlook,
        address: Address,
        session: str,
        options: SessionOptions,
        ensure: Ensure,
        forget: Callable[[], None],
        refill: Callable[[Callable[[str, int], None]], None],
        *,
        holds_messages: bool = True,
        credit: CreditLine | None = None,
    ) -> None:
        line = CreditLine() if credit is None else credit
        super().__init__(address, session, Lease(options.ttl), line, outlook, holds_messages=holds_messages)
        self.users = 0  # producers or gates that share it; it closes with the last
        self.consumers = 0
        """Consumers that the session has here: while there are any, idling must not end its lease."""
        self._messages_per_byte = MESSAGES_PER_WINDOW_BYTE if holds_messages else PERMITS_PER_WINDOW_BYTE
        self._store = store
        self._wake_ups = wake_ups
        self._options = options
        self._ensure = ensure
        self._forget = forget
        self._refill = refill
        self._removed = False
        self._task: asyncio.Task[None] | None = None
        self._asked_for: Outgoing | None = None
        self._used_at = 0.0
        self._used_before = self._uses_seen = 0
        self._share = (0, 0)

    async def start(self) -> None:
        """Ask for the first window and begin to keep it.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        await self._wake_ups.subscribe(self.address.channels(self.session), self._hear)
        self._used_at = self._loop.time()
        await self._acquire()
        self._task = asyncio.create_task(self._keep(), name=f"headgate {self.address.name}")
        self._task.add_done_callback(self._ended)

    async def part(self) -> None:
        """Note that one of its users is gone."""
        self.users -= 1
        if self.users <= 0:
            await self.close()

    async def close(self) -> None:
        """Send what is paid, refuse what waits, give everything back; never longer than half a second."""
        if self._closing:
            return
        self._closing = True
        self.outbox.waiting, waiting = type(self.outbox.waiting)(), self.outbox.waiting
        self._notice(self._loop.time(), None)
        for item in waiting:
            self._tell(item, Closed(f"the producer of {self.address.name!r} was closed before there was credit"))
        with contextlib.suppress(HeadgateError, asyncio.TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                while self.outbox.batch() and self.lost_since is None and self._task and not self._task.done():
                    self._wake.set()
                    await asyncio.sleep(0.001)
        await stop(self._task)
        if self._timer:
            self._timer.cancel()
        self.outbox.clear(lambda item, unknown: self._tell(item, self._lost(unknown=unknown)))
        with contextlib.suppress(HeadgateError, asyncio.TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                if self._open:
                    await self._leave()
        await self._wake_ups.unsubscribe(self.address.channels(self.session), self._hear)

    def _hear(self, words: list[str]) -> None:
        if words[0] == "credit" and self._open:
            epoch, inc, granted, granted_m = map(int, words[1:5])
            if inc == self.credit.inc and epoch == self.credit.epoch and self.credit.raise_to(granted, granted_m):
                self._ask_at = 0.0  # served, so no longer in line: whoever comes next must ask
                self._admit()
        elif words[0] == "recall":
            self._give_back = self.recalled = True
            self._share = (int(words[1]) * self.weight, int(words[2]) * self.weight)
        elif words[0] in ("settings", "removed"):
            self._ask_at = 0.0
            self._removed = self._removed or words[0] == "removed"
        else:
            return
        self._wake.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):  # a defect; nobody may wait for ever because of it
            self._closing = True
            failed = HeadgateError(f"{self.address.name!r} failed: {error!r}")
            self.outbox.clear(lambda item, _: self._tell(item, failed))

    async def _keep(self) -> None:
        while True:
            try:
                worked = await self._step()
            except AWAY as error:
                self._missing(error)
                worked = await until_answered(self._missing)(self._step)
            self._found()
            if not worked:
                await self._rest()

    def _found(self) -> None:
        self.lost_since = self.trouble = None
        if self.credit.frozen and not self.stopped:
            self.credit.frozen = False
            self._ask_at = 0.0  # the last answer was not acted upon
            self._admit()

    def _missing(self, error: BaseException) -> None:
        now = self._loop.time()
        self.trouble = error
        self.lost_since = self.lost_since or now
        if self._options.on_loss == "closed" or now > self.lease.use_until:
            self.credit.frozen = True
        self._refuse(now)

    async def _rest(self) -> None:
        now = self._loop.time()
        until = now + 60.0
        if self.outbox.head():
            until = min(self._ask_at, self._explain_at)
        if self.outbox.ready:
            until = min(until, self._rate_at, self._explain_at)
        if self._open and self.outlook.unreported:
            until = min(until, self.outlook.report_at)
        if self._open and not (self.consumers and self._idle_since(now)):
            until = min(until, self.lease.renew_at, max(self._used_at + self._options.idle, now + 0.05))
        if until <= now:
            return
        if not self._wake.is_set():
            timer = self._loop.call_at(until, self._wake.set)
            await self._wake.wait()
            timer.cancel()
        self._wake.clear()

    async def _step(self) -> bool:
        """Make the one call that is due, if any is; returns whether one was."""
        self._wake.clear()
        now = self._loop.time()
        if self.outbox.flight is not None:  # no answer yet: until its fate is known, its number must not be used again
            await self._publish()
            return True
        if await self._heed():
            return True
        if self._open and self.outlook.unreported and now >= self.outlook.report_at:
            await self.outlook.report()
            return True
        if self.outbox.waiting:
            self._admit()
            self._wake.clear()
        if now >= self._rate_at and self.outbox.batch() and self._open:
            await self._publish()
            return True
        if self.outbox.head():
            return await self._wait_in_line(now)
        if self.outbox.ready and await self._look(now):
            return True
        return await self._keep_lease(now)

    async def _heed(self) -> bool:
        """Do what a hint asked for."""
        if self._removed:  # on purpose: what it was is not to be brought back, nor is the credit
            self._removed = False
            self._forget()
            self._start_anew()
            self.credit.epoch = 0
            return True
        recalled, self._give_back = self._give_back, False
        wanted, self._wanted = self._wanted, False
        due = recalled and (self.stopped or not self.alone_in_line)
        if (due and self._recall()) or wanted:
            await self._acquire()
            return True
        return False

    async def _wait_in_line(self, now: float) -> bool:
        if now >= self._ask_at or not self._open:
            if self.last.place:  # still in line after its whole pause: see to what the dead may have left behind
                await self._store.reap(self.address)
            await self._acquire()
            return True
        return await self._look(now)

    async def _keep_lease(self, now: float) -> bool:
        if not self._open:
            return False
        if self._idle_since(now) and not self.last.place:
            return await self._end_idle()
        if self.last.place or now >= self.lease.renew_at:  # who waited may have given up: leave the line to others
            await self._acquire()
            return True
        return False

    def _start_anew(self) -> None:
        self.outbox.unpaid()
        self.credit.start_anew()
        self._open = False
        self._used_before = 0
        self._ask_at = 0.0
        self.outlook.start_anew()

    def _idle_since(self, now: float) -> bool:
        if self.credit.uses != self._uses_seen:
            self._uses_seen, self._used_at = self.credit.uses, now
        busy = self.credit.spent - self.credit.returned > self.credit.used  # permits of a gate, that no message shows
        return not busy and not self.outbox.waiting and now - self._used_at >= self._options.idle

    async def _end_idle(self) -> bool:
        if self.consumers:
            if self.credit.in_hand == 0 and self.credit.in_hand_m == 0:
                return False  # the consumers keep the lease
            self.credit.give_back(self.credit.in_hand, self.credit.in_hand_m)
            await self._acquire(weight=0)
            return True
        if not self.credit.retire():
            return False  # taken this very moment
        await self._leave()
        return True

    def _recall(self) -> bool:
        """Give back what was not used since the last recall, and all above the fair share."""
        line = self.credit
        used, self._used_before = line.used - self._used_before, line.used
        if self.outbox.waiting or self.stopped:
            used = 0  # what is in hand is too little for the first in line, and of use to others
        spare = max(line.in_hand - used, line.held - (0 if self.stopped else self._share[0]))
        if min(spare, line.in_hand) <= 0:
            return False
        line.give_back(spare, line.in_hand_m if spare >= line.in_hand else line.in_hand_m // 2)
        return True

    def _totals(self, weight: int, *, paid: int = 0, paid_m: int = 0) -> Totals:
        line = self.credit
        head = self._asked_for = self.outbox.head()
        need, need_m = line.need_for(head.size) if head else (line.granted, line.granted_m)
        if weight == 0 or ((self.last.blocked or self.recalled) and not head):
            want, want_m = line.granted, line.granted_m
        elif self.last.blocked:  # others wait too: ask for what is here, not for a window ahead of it
            want = line.spent + self.outbox.waiting_bytes(self.window)
            want_m = line.spent_m + len(self.outbox.waiting)
        else:
            want, want_m = line.window_totals(self.window, self._messages_per_byte)
            want, want_m = want + paid, want_m + paid_m
        return Totals(
            self.session, line.inc, line.epoch, line.granted, line.granted_m, line.used, line.used_m,
            line.returned, line.returned_m, need, need_m, want, want_m, weight, head.size if head else 0,
        )  # fmt: skip

    async def _acquire(self, weight: int | None = None) -> None:
        asked_at = self._loop.time()
        if not self._open:
            self._used_at = asked_at
        self._call_since = asked_at
        try:
            totals = self._totals(self.weight if weight is None else weight)
            call = self._store.acquire(self.address, totals, ttl_ms=self.lease.ttl_ms)
            hasty = any(not self._how(item).drops for item in self._impatient())
            answer = await (self.outlook.look_during(call) if hasty else call)
        finally:
            self._call_since = 0.0
        await self._apply(answer, asked_at)
        if self._open and not self.credit.frozen and self.outbox.head() is self._asked_for:
            self._refuse(asked_at)

    async def _publish(self) -> None:
        batch = self.outbox.flight
        if batch is None:
            return
        asked_at = self._call_since = self._loop.time()
        totals = self._totals(self.weight, paid=batch.size, paid_m=len(batch.items))
        try:
            bodies = [item.payload for item in batch.items]
            expires_ms = batch.items[0].ttl_ms or 0
            answer = await self._store.publish(
                self.address, totals, seq=batch.seq, bodies=bodies, ttl_ms=self.lease.ttl_ms, expires_ms=expires_ms
            )
        finally:
            self._call_since = 0.0
        if answer.code in ("OK", "DUPLICATE"):
            stored = self.outbox.published(answer.stored)
            self._hold_back(answer.again_ms if len(stored) < len(batch.items) else 0)
            self._used_at = asked_at
            seq = answer.first
            for item in stored:
                if not item.done.done():
                    item.done.set_result(Receipt(seq, item.size))
                seq += 1
        elif answer.code == "PASSED":
            raise AssertionError(f"{self.session}: batch {batch.seq} was overtaken")
        elif answer.code == "STOPPED":
            self.outbox.unspend()
            self.credit.give_back(self.credit.in_hand, self.credit.in_hand_m)
            self._ask_at = 0.0
            return
        await self._apply(answer, asked_at)
        if any(self._impatient()):
            self._ask_at = 0.0  # they do not wait for the next look

    async def _leave(self) -> None:
        line = self.credit
        line.give_back(line.in_hand, line.in_hand_m)  # nothing may be taken of it while the call is under way
        if self.outlook.unreported:
            await self.outlook.report()
        if self.consumers:
            await self._store.acquire(self.address, self._totals(0), ttl_ms=self.lease.ttl_ms)
        else:
            await self._store.acquire(self.address, self._totals(0), ttl_ms=self.lease.ttl_ms, leave=True)
            self._start_anew()

    async def _apply(self, answer: Credit, asked_at: float) -> None:
        """Take an answer in; codes of lost state are healed here, at the price of one more call."""
        if answer.code in ("OK", "DUPLICATE"):
            if answer.code == "DUPLICATE" and not answer.granted:
                return  # stored once, and the account is gone: the next call says so
            self.credit.epoch = answer.epoch
            self._open = True
            before, self.last = self.last, answer
            self.recalled = self.recalled and answer.blocked > 0
            self.lease.renewed(asked_at)
            self.credit.raise_to(answer.granted, answer.granted_m)
            served = self._admit()
            asked = self.outbox.head() is self._asked_for  # not for one that came while the call was under way
            self._ask_at = 0.0 if served or not asked else self._loop.time() + answer.again_ms / 1000
            if 1 in (before.place, answer.place):  # who was first and gives up leaves the pools' lines too
                self._refill(self.beyond_pool)
        elif answer.code == "TOO_LARGE":
            head = self.outbox.head()
            if head:
                self._tell(head, MessageTooLarge(self.address.name, head.size, answer.granted))
        elif answer.code == "UNKNOWN":
            await self._ensure(self.credit.epoch > 0)
            await self._acquire()  # what is held is claimed first
        elif answer.code == "EPOCH":
            await self._acquire()
        else:  # EXPIRED, FENCED, OVERUSE: Redis has another account, or none; the next one starts empty
            self._start_anew()
            if self._task is None:
                await self._acquire()
