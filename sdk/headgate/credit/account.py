"""One session's account at one destination, kept by one task: all credit and all sends of it go through here.

The task does one thing at a time, so calls never overtake each other: publish what is paid, ask for what waits, renew
what is held, give back what is idle. Between calls everything is arithmetic (:mod:`headgate.core`).
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Final

from headgate._util.forks import FORKED, watch
from headgate._util.reconnect import AWAY, until_answered
from headgate._util.tasks import stop
from headgate.core.credit import CreditLine
from headgate.core.lease import Lease
from headgate.credit.calls import AccountCalls, Ensure, Refill, any_incarnation
from headgate.credit.observer import Outlook
from headgate.errors import Closed, HeadgateError, SessionExpired
from headgate.options import SessionOptions
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.spool.writer import Writer

CLOSE_WITHIN: Final = 0.5


class CreditAccount(AccountCalls):
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
        refill: Refill,
        *,
        holds_messages: bool = True,
        credit: CreditLine | None = None,
    ) -> None:
        line = CreditLine() if credit is None else credit
        lease = Lease(options.ttl)
        super().__init__(store, address, session, lease, line, outlook, ensure, refill, holds_messages=holds_messages)
        self.users = 0  # producers or gates that share it; it closes with the last
        self._wake_ups = wake_ups
        self._options = options
        self._forget = forget
        self._removed = False
        if options.resumes:
            self.resumed = 0
            self.credit.inc = any_incarnation()
        self._uses_seen = 0
        watch(self)
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

    def forked(self) -> None:
        """Admit nothing from now on: the credit in hand is that of the parent process."""
        self._closing, self.why_closed = True, f"cannot be used: {FORKED}"
        self.lease.use_until = -math.inf
        self.outbox.clear(lambda *_: None)

    def spool(self, writer: Writer, *, topic: bool) -> None:
        """Let that write what finds no room in memory, where the destination has a spool store."""
        self.writer, self.topic = writer, topic

    async def part(self) -> None:
        """Note that one of its users is gone."""
        self.users -= 1
        if self.users <= 0:
            await self.close()

    async def close(self, *, ends: bool = False) -> None:
        """Send what is paid, refuse what waits, give everything back; never longer than half a second.

        Args:
            ends: whether the session ends with it: then Redis forgets which of its messages came last.
        """
        if self._closing:
            if ends and self._sent:
                await self._end()
            return
        self._closing = True
        if self.writer is not None:
            await self.writer.close()
        self.outbox.waiting, waiting = type(self.outbox.waiting)(), self.outbox.waiting
        self._notice(self._loop.time(), None)
        await self.confirming.close()
        for item in waiting:
            self._tell(item, Closed(f"the producer of {self.address.name!r} was closed before there was credit"))
        with contextlib.suppress(HeadgateError, asyncio.TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                while self.outbox.batch() and self.lost_since is None and self._task and not self._task.done():
                    self._wake.set()
                    await asyncio.sleep(0.001)
        await stop(self._task)
        if self.securing is not None:
            await self.securing.close(CLOSE_WITHIN)
        if self._timer:
            self._timer.cancel()
        self.outbox.clear(lambda item, unknown: self._tell(item, self._lost(unknown=unknown)))
        if self._open or (ends and self._sent):
            await self._end(ends=ends)
        await self._wake_ups.unsubscribe(self.address.channels(self.session), self._hear)

    async def _end(self, *, ends: bool = True) -> None:
        with contextlib.suppress(HeadgateError, asyncio.TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                await self._leave(ends=ends)

    def _hear(self, words: list[str]) -> None:
        if words[0] == "credit" and self._open:
            epoch, inc, granted, granted_m = map(int, words[1:5])
            if inc == self.credit.inc and epoch == self.credit.epoch and self._grant(epoch, granted, granted_m):
                self._ask_at = 0.0  # served, so no longer in line: whoever comes next must ask
                self._admit()
        elif words[0] == "recall":
            self._give_back = self.recalled = True
            self._share = (int(words[1]) * self.weight, int(words[2]) * self.weight)
        elif words[0] == "released":
            self.confirming.hear(words)
            return
        elif words[0] == "deadlock":
            self._heed_deadlock(words[1], words[2])
        elif words[0] in ("settings", "removed"):
            self._ask_at = 0.0
            if words[0] == "removed":
                self._removed = True
                self.confirming.let_go()
                if self.securing is not None:
                    self.securing.let_go()  # there is nothing any more that could be lost
        else:
            return
        self._wake.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):  # a defect; nobody may wait for ever because of it
            self._closing = True
            failed = HeadgateError(f"{self.address.name!r} failed: {error!r}")
            if isinstance(error, SessionExpired):  # no defect: a session that resumes ends with its account
                failed = error
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
        if self.writer is not None and self.writer.prepared is not None and await self._take_prepared():
            return True
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
        if head := self.outbox.head():
            if self._open and self.last.place and now >= self._rate_at and self._may_exceed(head):
                self.outbox.exceed()
                return True
            if self._spools and self._open and now < self._ask_at and now >= self._rate_at and self.writer:
                self.writer.seek()  # it was asked for, and there is no room in memory
            return await self._wait_in_line(now)
        if self.outbox.ready and await self._look(now):
            return True
        return await self._keep_lease(now)

    async def _take_prepared(self) -> bool:
        """Put a segment that is written in flight, once it is its turn; returns whether there is something to do."""
        outbox, writer = self.outbox, self.writer
        if writer is None or outbox.flight is not None or outbox.ready or self._loop.time() < self._rate_at:
            return False
        if not self._open:
            await self._acquire()
            return True
        prepared = writer.take()
        if not outbox.spooling or not outbox.fly(prepared.references, prepared.segment):  # in line again, or unwanted
            writer.discard(prepared)
        elif self.outbox.head():
            writer.seek()  # the next is written while this one is published
        return True

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

    def _idle_since(self, now: float) -> bool:
        if self.resumed is not None:
            return False  # an account that ends cannot be told from one that a later session took
        if self.credit.uses != self._uses_seen:
            self._uses_seen, self._used_at = self.credit.uses, now
        busy = self.credit.spent - self.credit.returned > self.credit.used  # permits of a gate, that no message shows
        return (
            not busy
            and not self.outbox.waiting
            and not self.outbox.spooling
            and now - self._used_at >= self._options.idle
        )

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

    @property
    def owes(self) -> bool:
        """Whether a permit that comes back goes to others at once: they wait, and this holds more than its share."""
        if not self.recalled or self.alone_in_line:
            return False
        return self.credit.held > self._share[0] or self.credit.held_m > self._share[1]

    def hand_on(self) -> None:
        """Tell Redis of a permit that was given back."""
        self._wanted = True
        self._wake.set()

    def _recall(self) -> bool:
        """Give back what was not used since the last recall, and all above the fair share."""
        line, (share, share_m) = self.credit, (0, 0) if self.stopped else self._share
        used, used_m = line.used - self._used_before[0], line.used_m - self._used_before[1]
        self._used_before = line.used, line.used_m
        if self.outbox.waiting or self.stopped:
            used = used_m = 0  # what is in hand is too little for the first in line, and of use to others
        spare = min(line.in_hand, max(line.in_hand - used, line.held - share))
        spare_m = min(line.in_hand_m, max(line.in_hand_m - used_m, line.held_m - share_m))
        if max(spare, spare_m) <= 0:
            return False
        line.give_back(spare, spare_m)
        return True
