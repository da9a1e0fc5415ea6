"""Makes the calls that are due at one account, and hands it the answers: :mod:`headgate.core.account.machine`."""

import asyncio
import math
import secrets
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from headgate._util.flag import Flag
from headgate._util.reconnect import AWAY, until_answered
from headgate._util.tasks import Running, StepCallbacks, in_background, stop
from headgate.core.account.calls import Acquire, Call, Create, Credit, Explain, Leave, Publish, Reap
from headgate.core.account.machine import PAUSE_MS, Account
from headgate.core.account.ports import Waiting
from headgate.core.account.spread_credit import SpreadCredit
from headgate.core.credit import CreditLine, Lease
from headgate.core.durability import Durability, WriteProgress
from headgate.core.names import is_slice, slice_number
from headgate.core.outbox import Batch, Outgoing
from headgate.core.segment import MARKED
from headgate.credit.confirmations import Confirmations
from headgate.credit.durable_writes import CallWrites, DurableWrites, IgnoredFuture, WrittenPart, secured_by
from headgate.credit.failures import Failures
from headgate.credit.observer import Observer
from headgate.credit.wait_timer import WaitTimer
from headgate.message import Receipt
from headgate.options import SessionOptions
from headgate.redis.durable_calls import DurableBackend
from headgate.redis.keys import Address
from headgate.redis.shared_sweeps import BEAT, beat
from headgate.redis.store import Store

Ensure = Callable[[bool], Any]
"""Makes a destination exist; its argument says whether it was known before and is gone."""
Refill = Callable[[Callable[[str, int], None], Callable[[], None] | None, Callable[[], Waiting]], None]
"""Begins to fetch what is missing from a destination's pools, if it has any; calls the second once all were asked."""
Draw = Callable[[Sequence[int], int], Coroutine[Any, Any, int] | None]
"""Returns what fetches the rate for a sender's messages of these sizes, by its weight; None where slices share none."""


def any_incarnation() -> int:
    """Return a number from 1 on that hardly anybody else gets: of two that resume, one fences the other."""
    return 1 + secrets.randbelow(1 << 20)


class AccountCalls:
    """One task makes an account's calls here, and does what their answers lead to.

    Args:
        store: the scripts.
        address: the destination.
        session: the session's id.
        options: how the session lives.
        credit: the line to keep.
        observer: what is known of the destination.
        confirmations: receipts that wait for a channel.
        ensure: makes the destination exist.
        forget: drops what is remembered of the destination.
        refill: fetches what is missing from its pools.
        draw: fetches what is missing of a rate that slices share.
        sure: whether hints come for certain.
        holds_messages: False for a gate, whose grants are to be safe before they are used.

    Attributes:
        account: what is known of the account, and what is due.
        failures: tells callers why nothing was stored.
        wait_timer: sees to those who wait when their time comes.
        wake: set to have it look for a call that is due.
        steps: called after each step, whether it made a call or not, and when Redis did not answer one.
        durable_writes: what is stored or granted, and not yet as safe as asked for; None where nothing is asked for.
        topic: whether subscriptions that are not behind get payloads along with references to them.
    """

    def __init__(
        self,
        store: Store,
        address: Address,
        session: str,
        options: SessionOptions,
        credit: CreditLine,
        observer: Observer,
        confirmations: Confirmations,
        ensure: Ensure,
        forget: Callable[[], None],
        refill: Refill,
        draw: Draw,
        sure: Callable[[], bool],
        *,
        holds_messages: bool,
    ) -> None:
        self.store = store
        self.wake = Flag()
        self.steps = StepCallbacks()
        self.topic = False
        self.durable_writes: DurableWrites | None = None
        self._slice = slice_number(address.name)
        self.failures = Failures(address.shown, session, observer, confirmations)
        self.account = self.failures.account = Account(
            address.name, session, credit, Lease(options.ttl), options.idle, observer, self.failures, self,
            any_incarnation, resumes=options.resumes, holds_messages=holds_messages,
        )  # fmt: skip
        self.wait_timer = WaitTimer(self.account, self.failures, observer, self.wake.set)
        self.forget = forget
        self._address, self._session = address, session
        self._observer = observer
        self._confirmations = confirmations
        self._ensure, self._refill, self._sure = ensure, refill, sure
        self._draw = draw
        self._drawing: Running = {}
        self._gives_up = options.on_loss == "closed"
        self._holds_messages = holds_messages
        self._waiting: DurableBackend | None = None
        """The wait for safety of the call that was answered; None where it had none."""
        self._granting: tuple[int, int, int] | None = None
        self._loop = asyncio.get_running_loop()

    async def open(self) -> None:
        """Make the calls that open the account."""
        while call := self.account.begin(self._loop.time()):
            await self.make(call)

    async def keep(self) -> None:
        """Make each call that is due, one at a time, until cancelled."""
        account, loop = self.account, self._loop
        while True:
            self.wake.clear()
            call = account.call(loop.time())
            if call is not None:
                try:
                    await self.make(call)
                except AWAY as error:
                    self._missed(error)
                    await until_answered(self._missed)(self._again)
                self.failures.trouble = None
            if self.steps:
                self.steps.made()
            if account.waiters.attend_at < self.wait_timer.at:
                self.wait_timer.arrange()
            if call is None and (until := account.wake_at(now := loop.time())) > now and not self.wake.is_set():
                timer = loop.call_at(until, self.wake.set)
                await self.wake.wait()
                timer.cancel()

    async def _again(self) -> None:
        """Make the call that is due now; without any, Redis is taken to answer until one is."""
        call = self.account.call(self._loop.time())
        if call is None:
            self.account.answered(self._loop.time())
        else:
            await self.make(call)

    def _missed(self, error: BaseException) -> None:
        self.failures.trouble = error
        self.account.missed(self._loop.time(), gives_up=self._gives_up)
        self.wait_timer.arrange()
        self.steps.made()

    def stir(self) -> None:
        """Look for a call that is due, and for those whose wait is over."""
        self.wake.set()
        if self.account.waiters.attend_at < self.wait_timer.at:
            self.wait_timer.arrange()

    async def make(self, call: Call) -> None:
        """Make one call.

        Raises:
            CoordinatorUnavailable, AccessDenied: it was not answered, and will be asked for again.
            SessionExpired: another session goes on under the account's id.
        """
        answer: Credit | None = None
        self._waiting = None
        if isinstance(call, Publish):
            answer = await self._publish(call)
        elif isinstance(call, Acquire):
            answer = await self._acquire(call)
        elif isinstance(call, Create):
            await self._ensure(call.recover)
        elif isinstance(call, Reap):
            await self.store.reap(self._address)
        elif isinstance(call, Explain):
            await self._observer.look(fully=call.fully)
        elif isinstance(call, Leave):
            await self._leave(call)
        else:
            await self._observer.report()
        self.account.hear(call, answer, self._loop.time())
        self._waiting = None  # what a hint grants was not waited for
        if isinstance(call, Explain):
            self.wait_timer.break_deadlock()

    async def _acquire(self, call: Acquire) -> Credit:
        waiting, store = None, self.store
        if self.durable_writes is not None and not self._holds_messages:
            waiting, store = self.durable_writes.waiting(store)
        asked = store.acquire(
            self._address,
            call.totals,
            ttl_ms=self.account.lease.ttl_ms,
            resume=call.resume,
            sent=call.sent,
            again=call.again and waiting is None,  # a round waits for no replica
        )
        answer = await (self._observer.look_during(asked) if call.hasty else asked)
        if self.durable_writes is not None and answer.code == "OK" and answer.epoch != call.totals.epoch:
            self.durable_writes.epoch_began(answer.epoch, call.sent - answer.lost)
        self._waiting = waiting
        return answer

    async def _publish(self, call: Publish) -> Credit:
        batch, store, waiting = call.batch, self.store, None
        if self.durable_writes is not None:
            waiting, store = self.durable_writes.waiting(store)
        bodies = [item.payload for item in batch.items]
        spools, written = bool(batch.segment), batch.segment not in ("", MARKED)
        credit = self.account.credit
        seen = credit.seen if spools and isinstance(credit, SpreadCredit) else ""
        # Subscriptions of a topic that are not behind get the payloads at once.
        copied = written and self.topic and self._observer.copies
        copies = [item.whole for item in batch.items if item.whole is not None] if copied else []
        answer = await store.publish(
            self._address, call.totals, seq=batch.seq, bodies=bodies, ttl_ms=self.account.lease.ttl_ms,
            expires_ms=batch.items[0].ttl_ms or 0,
            beyond="spool" if spools else "hard" if batch.beyond else "refuse",
            segment=f"{batch.segment} {len(bodies)} {seen}".rstrip() if written else seen or MARKED, copies=copies,
            keys=self._observer.keys(batch) if self._observer.fair_by else "",
            later=" ".join(item.later or "-" for item in batch.items) if any(i.later for i in batch.items) else "",
            unwanted=self._observer.wanted.unwanted(bodies) if self._observer.wanted.selectors and not spools else "",
        )  # fmt: skip
        self._waiting = waiting
        if answer.code == "STALE" and isinstance(credit, SpreadCredit):
            credit.seen = ""
        if answer.code == "OK" and answer.stored < len(bodies) and not self._drawing:
            sizes = [len(body) for body in bodies[answer.stored :]]
            drawn = self._draw(sizes, self.account.weight)
            if drawn is not None:
                in_background(self._take_lent(drawn, sizes), self._drawing, f"headgate rate of {self._address.name}")
        return answer

    async def _take_lent(self, drawn: Coroutine[Any, Any, int], sizes: list[int]) -> None:
        """Fetch the rate for what is left of a batch until the first of it may go."""
        account = self.account
        while (again_ms := await drawn) and account.outbox.ready:
            account.waiters.lent(PAUSE_MS, self._loop.time())
            await asyncio.sleep(min(again_ms, PAUSE_MS) / 1000)
            if (again := self._draw(sizes, account.weight)) is None:
                break
            drawn = again
        account.waiters.lent(0, self._loop.time())
        self.stir()

    async def close(self) -> None:
        """Stop what goes on beside the calls."""
        for task in tuple(self._drawing):
            await stop(task)

    async def _leave(self, call: Leave) -> None:
        if self._observer.unreported:
            await self._observer.report()
        ttl_ms = self.account.lease.ttl_ms
        if call.closes:
            await self.store.acquire(self._address, call.totals, ttl_ms=ttl_ms, leave=True, resume=call.resume)
        else:
            await self.store.acquire(self._address, call.totals, ttl_ms=ttl_ms)

    # What the answers lead to.

    def secure(self, durability: Durability) -> None:
        """Confirm from now on only what is as safe as that."""
        self.durable_writes = secured_by(durability, self.durable_writes, self.store, self._address, self._session)
        self.failures.durable_writes = self.durable_writes

    def stored(self, batch: Batch, items: list[Outgoing], answer: Credit) -> None:
        """Give receipts, at once or when what is stored is as safe as asked for."""
        confirm, durable_writes = self._confirmations.stored, self.durable_writes
        # What was stored before may be older than what this connection wrote.
        held = self._held if answer.code == "OK" else None
        if batch.segment:
            self._go_on(answer)
        if durable_writes is None or durable_writes.is_met(held):
            if self.account.outbox.ready:  # the next batch goes first: Redis stores that while these hear of theirs
                self._loop.call_soon(self._confirm, items, answer.first)
            else:
                self._confirm(items, answer.first)
            return
        since, parts = self.account.stored_at, []
        for seq, item in enumerate(items, answer.first):
            receipt = Receipt(seq, item.size, slice=self._slice)
            until = min(item.deadline, since + item.safe_within)
            parts.append(WrittenPart(partial(confirm, receipt, item), item.done, until, receipt))
        durable_writes.wrote(CallWrites(answer.epoch, batch.seq + len(items) - 1, parts, since), held)

    def _confirm(self, items: list[Outgoing], first: int) -> None:
        """Give receipts for messages of which the first has that number."""
        confirm, waits, at = self._confirmations.stored, self._confirmations.link, self._slice
        for seq, item in enumerate(items, first):
            if waits:
                confirm(Receipt(seq, item.size, slice=at), item)
            elif not item.done.done():
                item.done.set_result(Receipt(seq, item.size, slice=at) if at else Receipt(seq, item.size))

    def _go_on(self, answer: Credit) -> None:
        """Let senders that go on in this turn, as they hear of their receipts, spool again if memory is full.

        The answer says so where it granted less than the window that was asked for, while nobody else waited.
        """
        account = self.account
        if answer.code != "OK" or answer.blocked or account.recalled or self._observer.pooled:
            return
        if account.credit.in_hand < account.window:
            account.waiters.goes_on = True
            turn_over = account.waiters.turn_over
            self._loop.call_soon(self._loop.call_soon, turn_over)  # after those who hear of receipts now

    def granted(self, epoch: int, granted: int, granted_m: int) -> bool:
        """Raise a gate's credit to what was granted, once that is as safe as asked for."""
        line = self.account.credit
        if self.durable_writes is None:
            return line.raise_to(granted, granted_m)
        grant = (line.inc, granted, granted_m)
        grows = granted > line.granted or granted_m > line.granted_m
        if grows and (grant != self._granting or not self.durable_writes.waits):
            self._granting = grant
            part = WrittenPart(partial(self._raise, *grant), IgnoredFuture())
            self.durable_writes.wrote(CallWrites(epoch, math.inf, [part], self._loop.time()), self._held)
        return grows

    def turn(self, when: float, latest: float) -> tuple[float, bool]:
        """Return when to ask again, and whether to sweep then for all of this client who wait there."""
        sweeps = self.store.rounds.takes_turn(self._address.shared[0], when)
        if not sweeps and latest > when and self._sure():
            when = latest - BEAT / 2  # the nearest beat is not after it
        return beat(when), sweeps

    def refill(self, head: Outgoing | None) -> None:
        """Fetch what is missing from the destination's pools, or leave their lines; say when they were asked."""
        asked = None if head is None else partial(self._pools_asked, head)
        self._refill(self._beyond_pool, asked, self._who_waits)

    def _who_waits(self) -> Waiting:
        last, waiting = self.account.last, self.account.outbox.waiting
        if waiting and last.place == 1:
            return "first"
        return "others" if waiting or last.blocked else "nobody"

    @property
    def _held(self) -> WriteProgress | None:
        return None if self._waiting is None else self._waiting.held

    def _raise(self, inc: int, granted: int, granted_m: int) -> None:
        line = self.account.credit
        if inc == line.inc and line.raise_to(granted, granted_m):
            self.account.admit(self._loop.time())
            self.stir()

    def _beyond_pool(self, pool: str, limit: int) -> None:
        self.account.beyond_pool("" if is_slice(pool) else pool, limit)
        self.stir()

    def _pools_asked(self, head: Outgoing) -> None:
        self.account.pools_asked(head, self._loop.time())
        self.stir()
