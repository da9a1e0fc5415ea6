"""One task keeps a session's account at one destination: all credit and all sends of it go through here.

Which call is due, and what an answer means, is decided in :mod:`headgate.core.account.machine`. Here are the task that
has the calls made, the hints, and what producers, gates and nodes ask of an account.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from headgate._util.forks import FORKED, watch
from headgate._util.tasks import THREAD, carried_through, stop
from headgate.core.account.spread_credit import SpreadCredit
from headgate.core.credit import CreditLine
from headgate.core.durability import Durability
from headgate.core.outbox import Outgoing
from headgate.credit.calls import AccountCalls, Draw, Ensure, Refill
from headgate.credit.confirmations import Confirmations
from headgate.credit.failures import tell
from headgate.credit.observer import Observer
from headgate.errors import Closed, HeadgateError, SessionExpired
from headgate.options import SessionOptions
from headgate.redis import backend
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.spool.node_writer import NodeWriter
from headgate.spool.writer import Writer
from headgate.waits import Waits, outcome_of

CLOSE_WITHIN: Final = 0.5
_STOPS: Final = frozenset({"stopped", "held_off", "spreading"})
"""Settings with which nobody is let in."""
USED_WITHIN: Final = 0.2
"""Seconds without use after which credit is idle that another slice waits for; within one slice Redis asks so often."""
HINTS: Final = frozenset(
    {"credit", "recall", "first", "released", "deadlock", "references", "settings", "removed", backend.AGAIN}
)


class CreditAccount:
    """An account has the credit and outgoing messages of a session at a destination.

    Args:
        store: the scripts.
        wake_ups: hints that credit came.
        observer: what the session knows of the destination.
        address: the destination.
        session: the session's id.
        options: how the session lives.
        ensure: makes the destination exist; its argument says whether it was known before and is gone.
        forget: drops what is remembered of the destination: it was removed on purpose.
        refill: begins to fetch what is missing from the destination's pools, if it has any.
        draw: fetches what is missing of a rate that slices share.
        waits: hears how waits end: those of messages here, those of a gate's callers where they wait.
        holds_messages: False for a gate, whose credit in use is a permit and not a message.
        credit: the line to keep; a gate of :mod:`headgate.sync` has one that other threads change too, so the line is
            changed by its methods only, and what was read of it may be old a moment later.

    Attributes:
        state: what is known of the account, and what is due.
        steps: called after each step of the task that keeps it; add what is to hear that its line may have changed.
        users: producers or gates that share it; it closes with the last.
        closed: whether nothing can be submitted any more.
        why_closed: what errors say of it once nothing can be submitted any more.
        waits: the listeners to waits.
    """

    def __init__(
        self,
        store: Store,
        wake_ups: WakeUps,
        observer: Observer,
        address: Address,
        session: str,
        options: SessionOptions,
        ensure: Ensure,
        forget: Callable[[], None],
        refill: Refill,
        draw: Draw,
        *,
        waits: Waits,
        holds_messages: bool = True,
        credit: CreditLine | None = None,
    ) -> None:
        self.address, self.session = address, session
        self.observer = observer
        self.users = 0
        self.waits = waits
        self.why_closed = "is closed"
        self.confirmations = Confirmations(observer)
        self.credit = CreditLine() if credit is None else credit
        self._calls = calls = AccountCalls(
            store, address, session, options, self.credit, observer, self.confirmations, ensure, forget, refill, draw,
            partial(wake_ups.sure, address.channels(session)), holds_messages=holds_messages,
        )  # fmt: skip
        self.state, self.failures, self.wait_timer = calls.account, calls.failures, calls.wait_timer
        self.waiters, self.outbox, self.lease = self.state.waiters, self.state.outbox, self.state.lease
        self.steps = calls.steps
        self.writer: Writer | NodeWriter | None = None
        self._wake_ups = wake_ups
        self._holds_messages = holds_messages
        self.closed = False
        self._wake = calls.wake
        self._task: asyncio.Task[None] | None = None
        """The task that makes the calls that are due; None until the first answer is there."""
        self._loop = asyncio.get_running_loop()
        if waits.listeners and holds_messages:
            self.outbox.served = self.failures.unserved = self._waited
            self.wait_timer.gave_up = self._gave_up
        watch(self)

    # Its life.

    async def start(self) -> None:
        """Ask for the first window and begin to keep it.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        await self._wake_ups.subscribe(self.address.channels(self.session), self._hear, HINTS)
        try:
            await self._calls.open()
        except BaseException:
            await self._wake_ups.unsubscribe(self.address.channels(self.session), self._hear)
            raise
        self._task = asyncio.create_task(self._calls.keep(), name=f"headgate {self.address.name}")
        self._task.add_done_callback(self._ended)

    def follow(self, before: "CreditAccount") -> None:
        """Go on with the numbers of an account of the same session that was closed."""
        self.outbox.go_on_for(before.outbox)
        self.state.stored_at = before.state.stored_at

    def spool(self, writer: Writer | NodeWriter, *, topic: bool) -> None:
        """Let that write what finds no room in memory, where the destination has a spool store."""
        self.writer = self.waiters.writer = self.failures.writer = writer
        self._calls.topic = topic

    def _gave_up(self, item: Outgoing) -> None:
        self._waited(item, asyncio.CancelledError())

    def _waited(self, item: Outgoing, error: BaseException | None = None) -> None:
        seconds = self._loop.time() - item.since if item.since else 0.0
        self.waits.ended("credit", self.address.shown, seconds, outcome_of(error), error, item.span)

    def secure(self, durability: Durability) -> None:
        """Confirm from now on only what is as safe as that."""
        self._calls.secure(durability)

    def forked(self) -> None:
        """Admit nothing from now on: the credit in hand is that of the parent process."""
        self.closed, self.why_closed = True, f"cannot be used: {FORKED}"
        self.lease.use_until = -math.inf
        self.outbox.clear(lambda *_: None)

    async def part(self) -> None:
        """Note that one of its users is gone."""
        self.users -= 1
        if self.users <= 0:
            await self.close()

    @carried_through
    async def close(self, *, ends: bool = False) -> None:
        """Send what is paid, refuse what waits, give everything back; never longer than half a second.

        Args:
            ends: whether the session ends with it: then Redis forgets which of its messages came last.
        """
        if self.closed:
            if ends and self.state.sent(self._loop.time()):
                await self._end(ends=True)
            return
        self.closed = True
        if self.writer is not None:
            await self.writer.close()
        self.outbox.waiting, waiting = type(self.outbox.waiting)(), self.outbox.waiting
        self.wait_timer.notice(self._loop.time(), None)
        await self.confirmations.close()
        for item in waiting:
            tell(item, Closed(f"the producer of {self.address.shown!r} was closed before there was credit"))
        with contextlib.suppress(HeadgateError, asyncio.TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                self._wake.set()
                await self.steps.until(lambda: self.lost_since is not None or not self.outbox.batch(), self._task)
        await stop(self._task)
        await self._calls.close()
        if self._calls.durable_writes is not None:
            await self._calls.durable_writes.close(CLOSE_WITHIN)
        self.wait_timer.close()
        self.outbox.clear(lambda item, unknown: self.failures.lost(item, unknown=unknown))
        if self.state.open or (ends and self.state.sent(self._loop.time())):
            await self._end(ends=ends)
        await self._wake_ups.unsubscribe(self.address.channels(self.session), self._hear)

    async def _end(self, *, ends: bool) -> None:
        with contextlib.suppress(HeadgateError, asyncio.TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                await self._calls.make(self.state.leave(ends=ends))

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):  # a defect; nobody may wait for ever because of it
            self.closed = True
            failed = HeadgateError(f"{self.address.shown!r} failed: {error!r}")
            if isinstance(error, SessionExpired):  # no defect: a session that resumes ends with its account
                failed = error
            self.outbox.clear(lambda item, _: tell(item, failed))

    # What it hears.

    def _hear(self, words: list[str]) -> None:
        """Take a hint: what Redis says to those that may not have asked."""
        match words[0]:
            case "credit":
                epoch, inc, granted, granted_m = map(int, words[1:5])
                self.state.hear_grant(epoch, inc, granted, granted_m, self._loop.time())
            case "recall":
                if self.closed or not self._recalled(words, owed=words[4:] == ["owed"]):
                    return
            case "released":
                self.confirmations.hear(words)
                return
            case "deadlock":
                self.wait_timer.heed_deadlock(words[1], words[2])
            case "first" if self.observer.pooled:
                self.state.hear_first()
                return
            case "references":
                if self.writer is None or not self.writer.hear_room():
                    return
            case "settings" | "first" | backend.AGAIN:
                self.state.ask()
            case "removed":
                self.state.hear_removed()
                self.confirmations.let_go()
                if self._calls.durable_writes is not None:
                    self._calls.durable_writes.let_go()  # there is nothing any more that could be lost
        self._calls.stir()

    def _recalled(self, words: list[str], *, owed: bool) -> bool:
        """Take in that others wait; where they do at another slice, see soon what has not been used since."""
        if owed and self.credit.in_hand > 0:
            self._loop.call_later(USED_WITHIN, self._hear, words[:4])
        return self.state.hear_recall(*map(int, words[1:4]), owed=owed)

    # What producers, gates and stores ask of it.

    def submit(self, item: Outgoing, *, tells: bool = False) -> bool:
        """Put a message in line; returns whether it is paid. Its ``done`` hears the rest.

        ``tells``: its sender calls :meth:`WaitTimer.abandoned` when it gives up; else its futures are watched for that.
        """
        if self.closed:
            raise Closed(f"the producer of {self.address.shown!r} {self.why_closed}")
        self._wake.set()
        waiters = self.waiters
        if self._holds_messages and self.outbox.add(item):  # the way of most messages: nothing has to ask for the time
            if item.deadline < waiters.attend_at or waiters.rate_at:
                self.state.paid(item, self._loop.time())
                self.wait_timer.arrange()
            return True
        if tells and not item.when_full and (ahead := waiters.ahead_in_turn) and item.deadline >= ahead.deadline:
            item.since = ahead.since  # the way of most messages that go to a store: they came in one turn
            return False
        paid = self.state.come(item, self._loop.time())
        if not (paid or tells):
            self.wait_timer.expect(item)
        self.wait_timer.arrange()
        return paid

    def submit_all(self, items: Sequence[Outgoing]) -> None:
        """Put messages in line that have no deadline; see :meth:`submit`."""
        if self.closed or self.waiters.rate_at or not self.outbox.add_all(items):
            for item in items:
                self.submit(item)
        self._wake.set()

    def awaits(self, item: Outgoing) -> None:
        """Note that the thread or task that runs does nothing else until a message in line is paid."""
        item.who = THREAD.get() or asyncio.current_task(self._loop)
        self.observer.waits()

    def resize(self, window: int, weight: int) -> None:
        """Change the window and the weight, effective at once; what is in hand above the window goes back."""
        if self.state.resize(window, weight):
            self._wake.set()

    def heed(self, settings: Mapping[str, str]) -> None:
        """Take in the destination's settings, as the state spells them; whoever waits asks again under them."""
        limit = settings.get("limit_bytes", "")
        one = settings.get("oversize") == "allow-one" and settings.get("enforce", "always") == "always"
        self.credit.most = int(limit) if one and limit.isdigit() else math.inf
        self.observer.adopt(settings)
        self.confirmations.adopt(settings)
        if self.writer is not None:
            most = self.observer.most_copied if self._calls.topic else math.inf
            self.writer.adopt(self.observer.store, self.observer.store_nonpersistent, most)
        self.state.heed(self._loop.time(), stopped=not _STOPS.isdisjoint(settings))
        self._calls.stir()

    def stir(self) -> None:
        """Look whether a call is due."""
        self._wake.set()

    def freed(self) -> None:
        """Note that a permit was put back while somebody waits for it, here or elsewhere."""
        self.state.freed(self._loop.time())
        self._calls.stir()

    def hand_on(self) -> None:
        """Tell Redis of a permit that was given back."""
        self.state.want()
        self._wake.set()

    def yields(self) -> None:
        """Give back all that nobody waits for here: its session waits at another slice."""
        if self.state.open and self.credit.in_hand > 0 and not self.outbox.waiting:
            self.credit.give_back(self.credit.in_hand, self.credit.in_hand_m)
            self.state.recalled = True  # so that the same call asks for nothing ahead
            self.hand_on()

    def seek(self) -> None:
        """See whether there is room again, for whoever has no message that waits for it."""
        self.state.seek()
        self._calls.stir()

    def wanted(self, size: int) -> None:
        """Note that ``size`` bytes were asked for and not there, so that the window is fetched for the next time."""
        if self.state.lacks(size, self._loop.time()):
            self._wake.set()

    def left(self, item: Outgoing | None) -> None:
        """Note that somebody gave up who waited with that; None where it was never put in line."""
        self.wait_timer.abandoned(item)

    def let_go(self) -> None:
        """Give at once all receipts that wait for a channel: nobody will wait for them any more."""
        self.confirmations.let_go()

    async def quiet(self) -> None:
        """Wait until nothing is on its way: what waits may then be sent by another account."""
        task, outbox = self._task, self.outbox
        # Whoever waits goes on a moment after the step that it waits for: something may be on its way again by then.
        while task is not None and not task.done() and (outbox.flight or outbox.ready):
            await self.steps.until(lambda: not (outbox.flight or outbox.ready), task)

    def doubt(self) -> None:
        """Take nothing that is in hand, or that comes to one who has nothing, before a look."""
        self.credit = self.state.credit = self.outbox.credit = SpreadCredit.after(self.credit)

    def assured(self) -> None:
        """Pay for those that wait with credit that could not be taken before."""
        self.state.admit(self._loop.time())
        self._calls.stir()

    def give_up(self) -> None:
        """Give back what is in hand: it is not to be used here."""
        self.credit.give_back(self.credit.in_hand, self.credit.in_hand_m)
        self.hand_on()

    def explained(self) -> str:
        """Return why sends wait, as last seen; for whoever asks again, what is old is looked at anew."""
        if self.waiters.asked_why(self._loop.time()):
            self._wake.set()
        return self.failures.reason(self.outbox.head())

    @property
    def in_hand(self) -> int:
        """Bytes that can be sent without asking."""
        return self.credit.in_hand

    @property
    def queued(self) -> int:
        """Messages that came and are not known to be stored."""
        return len(self.outbox)

    @property
    def resumed(self) -> int:
        """Messages that earlier sessions of its id have stored."""
        return self.state.resumed or 0

    @property
    def wants(self) -> bool:
        """Whether somebody waits for credit here."""
        return bool(self.outbox.waiting)

    @property
    def lost_since(self) -> float | None:
        """When Redis stopped to answer, on the loop's clock; None while it does."""
        return self.state.lost_since

    @property
    def is_confirming(self) -> bool:
        """Whether messages are stored whose receipts wait for a channel, for replicas or for the disk."""
        durable_writes = self._calls.durable_writes
        return self.confirmations.waits or (durable_writes is not None and durable_writes.waits)
