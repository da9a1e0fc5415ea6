"""A feed makes the calls of one consumer at one destination, one at a time as its machine says."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from headgate._util.flag import Flag
from headgate._util.forks import FORKED, watch
from headgate._util.reconnect import AWAY, until_answered
from headgate._util.tasks import Running, StepCallbacks, carried_through, in_background, stop
from headgate.consuming.lent_deliveries import LentDeliveries
from headgate.consuming.own_turn import lot, patiently
from headgate.consuming.settlements import Settlements
from headgate.consuming.sink import Sink
from headgate.consuming.strays import StrayDeliveries
from headgate.consuming.terms import ConsumerTerms, FeedOwner, refusal
from headgate.context import Context
from headgate.core.credit import Lease
from headgate.core.fetching import Fetching, WindowUse
from headgate.core.sharing import FirstShare, Share, SharedWindow, WindowUsers
from headgate.core.window import Allowance, Call, Exchange, Window
from headgate.credit.account import CLOSE_WITHIN
from headgate.errors import AccessDenied, Closed, DestinationDamaged, HeadgateError, SlowConsumer
from headgate.explain.self_wait import ConsumerUser
from headgate.message import Message
from headgate.redis.keys import Address
from headgate.redis.shared_sweeps import CALM, beat
from headgate.spool.recall import RecallQueue

_log = logging.getLogger("headgate")
HINTS: Final = frozenset({"ready", "wanted", "slow", "brisk", "settings", "removed"})


def _unheard(*_: object) -> None: ...


class Feed:
    """Fetches from one destination into a sink, and settles; what it holds goes back, untried, when it is closed.

    Args:
        context: the session's.
        address: the destination.
        terms: what is asked for.
        owner: what opened it.
        sink: returns where messages go.
        shared: the window that it shares with others; None for one of its own.

    Attributes:
        machine: decides which call is due.
        number: which of the session's consumers at the destination it is.
        settlements: what it delivered, until that is settled.
        steps: callbacks after each call.
        has_begun: whether it was attached, and fetches since then.
        received_before: how often a message had been asked for here when others wanted what it held.
        is_slow: whether it settles too little of what there is for it, by the destination's rules.
        lost_since: the time of the loop since when Redis does not answer; None while it does.
        on_end: called with the error with which it ends.
        on_slow: called when it has become slow.
    """

    __slots__ = (
        "__weakref__", "_attached_paused", "_lent", "_loop", "_owner", "_recall", "_removed", "_running", "_sink",
        "_store", "_strays", "_task", "_tracing", "_wake", "_wake_ups", "address", "durable", "has_begun", "is_slow",
        "lost_since", "machine", "number", "on_end", "on_slow", "received_before", "session", "settlements", "steps",
        "subscription", "terms",
    )  # fmt: skip

    def __init__(
        self, context: Context, address: Address, terms: ConsumerTerms, owner: FeedOwner,
        sink: Callable[["Feed"], Sink], *, shared: SharedWindow | None = None,
    ) -> None:  # fmt: skip
        self.address, self.session = address, context.session
        self.terms, self.subscription, self.durable = terms, terms.subscription, terms.durable
        self.is_slow = self.has_begun = self._removed = self._attached_paused = False
        self.lost_since: float | None = None
        self.on_end: Callable[[Feed, BaseException], None] = _unheard
        self.on_slow: Callable[[Feed], None] = _unheard
        self._store, self._wake_ups, self._tracing = context.store, context.wake_ups, context.tracing
        self._owner, self._sink, self.number, self.received_before = owner, sink(self), 0, -1
        self._loop, self._wake, self.steps = asyncio.get_running_loop(), Flag(), StepCallbacks()
        self._recall = RecallQueue(context.spooling, address, self._recalled)
        holding: Allowance = WindowUse(terms.window) if shared is None else Share(shared, self._wake.set, lot())
        self.machine = Fetching[Message](holding, Lease(context.options.ttl), self._sink, self._recall.line)
        self.settlements = Settlements(
            context, address, terms, self.machine, self._recall, self._sink, owner.ensure_at, self._wake.set
        )
        self._strays = StrayDeliveries(context.store, context.losses, address, terms.encoded_subscription)
        self._task: asyncio.Task[None] | None = None
        self._running: Running = {}
        self._lent = LentDeliveries(context, address, self.machine, self._sink, self._wake.set)
        watch(self)

    def __repr__(self) -> str:
        return f"Feed({self.address.shown!r}, closed={self.closed}, {self.held_messages} held, {self.window!r})"

    @property
    def id(self) -> str:
        """Its consumer's name in the state."""
        return f"{self.session}.{self.number}"

    @property
    def use(self) -> ConsumerUser:
        """Which task uses it."""
        return self.settlements.use

    @property
    def source(self) -> Settlements:
        """The lease, which shows whether messages still come."""
        return self.settlements

    @property
    def closed(self) -> bool:
        """Whether nothing comes any more."""
        return self.settlements.closed

    @property
    def topics(self) -> list[str]:
        """The destination's name."""
        return [self.address.name]

    @property
    def window(self) -> Window:
        """The window in force."""
        return self.machine.holding.window

    @property
    def held_messages(self) -> int:
        """Messages delivered and not settled, those not yet received included."""
        return self.machine.holding.messages

    @property
    def held_bytes(self) -> int:
        """Their bytes."""
        return self.machine.holding.bytes

    @property
    def recalls(self) -> int:
        """Messages that are here but for their payloads, which a spool store has."""
        return len(self._recall)

    @property
    def seeks(self) -> bool:
        """Whether a look may bring something, by the window and the sink."""
        return self.machine.free()[0] > 0

    async def start(self) -> None:
        """Attach, and begin to fetch.

        Raises:
            PolicyError: the destination holds no messages.
            CoordinatorUnavailable: Redis does not answer.
            Closed: it was closed meanwhile.
        """
        await self._wake_ups.subscribe(self.address.channels(self.session), self._hear, HINTS)
        await self._read_settings()
        await self._attach()
        if self.closed:  # its session ended as it attached
            await self._store.detach(self.address, self.session, self.id, failed=False)
            self.check_open()
        self.has_begun = True
        self._task = asyncio.create_task(self._keep(), name=f"headgate {self.id}")
        self._task.add_done_callback(self._ended)

    def configure(self, *, window: Window) -> Awaitable[None]:
        """Change the window, effective at once; see :meth:`Consumer.configure`."""
        self.check_open()
        self.machine.holding.configure(window)
        self.machine.look_at = 0.0
        self._wake.set()
        return in_background(self._tell_window(), self._running, f"headgate {self.id}")

    def share(self, takers: WindowUsers) -> SharedWindow:
        """Let others have parts of its window from now on; returns it."""
        shared = SharedWindow(self.window, takers, self.machine.holding)
        self.machine.leads = lambda held: FirstShare(shared, self._wake.set, held, lot())
        return shared

    def check_open(self) -> None:
        """Refuse what can only be done while it is open, by raising :class:`Closed`."""
        if self.closed:
            raise Closed(f"the consumer of {self.address.shown!r} is closed")

    def look(self) -> None:
        """Fetch now; an answer that is under way does not count as the last that there is."""
        self.machine.look()
        self._wake.set()

    def resume(self) -> None:
        """Look what is due, for more may be asked for; fetch again, if it had handed back what others wait for."""
        self.machine.resume()
        self._wake.set()

    async def flush(self, *, timeout: float | str = 5.0) -> None:
        """Wait until every settlement made so far is in Redis; see :meth:`Consumer.flush`."""
        await self.settlements.flush(timeout=timeout)

    @carried_through
    async def close(self, *, failed: bool = False) -> None:
        """Settle what was settled, give the rest back, as failed attempts or untried; never longer than 1 s."""
        if self.closed:
            return
        self.settlements.closed = self.machine.closing = True
        self._sink.close()
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                self._wake.set()
                await self.steps.until(lambda: self.lost_since is not None or not self.machine.outcomes, self._task)
        await asyncio.gather(*map(stop, (self._task, *self._running)), self._lent.close())
        await asyncio.gather(self._recall.close(), self.settlements.close())
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                while self.settlements.generation:
                    if await self._store.detach(self.address, self.session, self.id, failed=failed) != "MORE":
                        break
        await self._wake_ups.unsubscribe(self.address.channels(self.session), self._hear)
        self._sink.clear()
        self.machine.held.clear()
        await self._owner.closed(self)
        if isinstance(self.machine.holding, Share):
            self.machine.holding.clear()  # its room is for the others

    def forked(self) -> None:
        """Refuse from now on: what is here was delivered to the parent process."""
        self.settlements.closed = self.machine.closing = True
        self.settlements.failure = Closed(f"the consumer of {self.address.shown!r} cannot be used: {FORKED}")
        self._sink.clear()

    def _hear(self, words: list[str]) -> None:
        if words[0] == "removed":
            self._removed = True
            self._strays.forget()
        self.machine.settings_changed |= words[0] == "settings"
        if words[0] in ("slow", "brisk") and words[1] == self.id:
            self._judged(slow=words[0] == "slow")
        if words[0] == "wanted" and words[1] == self.id and not self.closed:
            self._hand_back(int(words[2]))
        if words[0] in ("settings", "removed") or (words[0] == "ready" and words[1:2] in ([], [self.id])):
            self.machine.hear(alone=words[1:2] == [self.id])
            self._wake.set()

    def _judged(self, *, slow: bool) -> None:
        if slow != self.is_slow:
            self.is_slow = slow
            _log.warning("consumer %s of %r is %s", self.id, self.address.shown, "slow" if slow else "no longer slow")
            if slow:
                self.on_slow(self)

    def _hand_back(self, keep: int) -> None:
        """Release what nobody has begun, for others wait: what is above ``keep``, or all if nobody asks here."""
        sink, held = self._sink, self.machine.holding.messages
        idle = sink.received == self.received_before and not sink.asked
        self.received_before = sink.received
        self.machine.resting |= self.settlements.give_back(held if idle else max(1, held - keep))

    async def _keep(self) -> None:
        while True:
            try:
                worked = await self._step()
            except AWAY as error:
                self._missing(error)
                worked = await until_answered(self._missing)(self._step)
            self.lost_since = self.settlements.trouble = self.settlements.denied = None
            if self.steps:
                self.steps.made()
            until = self.machine.wake_at() if not worked else 0.0
            if until > self._loop.time() and not self._wake.is_set():
                timer = self._loop.call_at(until, self._wake.set)
                await self._wake.wait()
                timer.cancel()

    def _recalled(self, message: Message, attempts: int, trouble: str) -> None:
        self.settlements.recalled(message, attempts, trouble)

    def _missing(self, error: BaseException) -> None:
        if isinstance(error, DestinationDamaged):  # waiting does not mend it
            _log.error("consumer %s of %r ends: %s", self.id, self.address.shown, error)
            raise error
        self.lost_since, self.settlements.trouble = self.lost_since or self._loop.time(), error
        if among := self.machine.holding.among:
            among.overdue(away=True)
        self.steps.made()
        if isinstance(error, AccessDenied):
            self.settlements.deny(error)
            self._sink.stir()

    async def _step(self) -> bool:
        """Make the one call that is due, if any is; returns whether one was."""
        self._wake.clear()
        machine = self.machine
        machine.window_known = not (self._attached_paused and self._sink.started)
        if (call := machine.next(self._loop.time(), doubts=self._strays.after is not None)) is None:
            return False
        await (patiently(self._make(call), among) if (among := machine.holding.among) else self._make(call))
        return True

    async def _make(self, call: Call | Exchange[Message]) -> None:
        if isinstance(call, Exchange):
            await self._exchange(call)
        elif call is Call.ATTACH:
            await self._attach()
        elif call is Call.READ_SETTINGS:
            await self._read_settings()
        elif call is Call.TELL:
            await self._tell_window()
        elif call is Call.PASS_ON:
            await self._store.pass_on(self.address, self.session, self.id, ttl_ms=self.machine.lease.ttl_ms)
        elif await self._strays.give_back(self.session, self.id, self.machine, self.machine.lease.ttl_ms):
            self.machine.look_at = 0.0  # what it gave back may come again

    async def _read_settings(self) -> None:
        self.machine.settings_changed = False
        if snapshot := await self._store.glance(self.address):
            self.settlements.adopt(snapshot.fields, self._store)

    async def _tell_window(self) -> tuple[str, str]:
        """Tell the window, or ``paused`` as long as nobody has asked for a message."""
        started = self._sink.started
        answer = await self._store.attach(
            self.address, self.session, number=self.number, subscription=self.terms.encoded_subscription,
            durable=self.durable, window=self.window.text if started else Window.paused.text,
            ttl_ms=self.machine.lease.ttl_ms, selector=self.terms.wants,
        )  # fmt: skip
        self._attached_paused = not started
        return answer

    async def _attach(self) -> None:
        if self.has_begun or not self.number:  # one that was not answered is asked for by the same name again
            self.number = self._owner.number()
        self.settlements.generation += 1
        self.machine.begin()
        self._recall.clear()
        self._sink.clear()
        while True:
            asked_at, (code, kind) = self._loop.time(), await self._tell_window()
            if code == "OK":
                self.machine.lease.renewed(asked_at)
                self._strays.attached(int(kind))
                self.machine.attached()
                return
            if refused := refusal(code, kind, self.address.shown, self.subscription):
                raise refused
            if code == "UNKNOWN":
                await self._owner.ensure(self.settlements.generation > 1 and not self._removed)
                self._removed = False
            else:  # GONE: that number is being cleared away, or the subscription is
                self.number = self._owner.number()
                await asyncio.sleep(0.01)  # a removal goes on a piece a call, and tells nobody of the last

    async def _exchange(self, call: Exchange[Message]) -> None:
        """Settle what waits and fetch what fits, in one call."""
        accepted = [message.raw_id for outcome, message, _ in call.going if outcome == "accepted"]
        ids: dict[str, list[bytes]] = {"accepted": accepted, "released": [], "rejected": [], "failed": []}
        for outcome, message, _ in call.going if len(accepted) < len(call.going) else ():
            if outcome != "accepted":
                ids[outcome].append(message.raw_id if outcome == "rejected" else message.given_back_id)
        began = time.time_ns() if self._tracing is not None else 0
        again = not call.going and (self.machine.look_at > 0 or call.fetch == 1)  # nothing was heard: beside others
        answer = await self._store.settle(
            self.address, self.session, self.id, ttl_ms=self.machine.lease.ttl_ms, fetch=call.fetch, again=again,
            max_messages=call.messages, max_bytes=call.size, after=call.after, waits=call.waits, **ids,
        )  # fmt: skip
        now = self._loop.time()
        if answer.code in ("OK", "AGAIN"):
            if answer.epoch != self._strays.epoch:
                self._strays.answered(answer.epoch)
            brought = self.machine.answered(call, now)  # first: what is delivered finds the room that these leave
            if self._tracing is not None and call.going:
                self._tracing.settled(self.address.shown, call.going, began)
            self.settlements.made(call, answer.epoch, answer.stale)
            if not brought:
                return
            surplus = self.settlements.deliver(messages := answer.messages)
            found_all = self.machine.fetched(
                call, now, len(messages), messages[-1][0] if messages else b"", beside=answer.beside, turn=answer.turn,
                repeated=answer.code == "AGAIN", again_ms=answer.again_ms, lacks=bool(answer.lacks), left=surplus > 0,
            )  # fmt: skip
            if found_all and self.machine.look_at and not answer.again_ms:
                calm = not answer.beside and self._wake_ups.sure(self.address.channels(self.session))
                self.machine.look_at = beat(self.machine.look_at + (CALM if calm else 0.0))
            lent = self._lent.draw(answer.lacks)
            self._sink.delivered(found_all=found_all and not lent)  # last: it may ask for more at once
            return
        # UNKNOWN, EXPIRED, SLOW: what it held is others' now
        self.machine.refused(now)
        self.settlements.expire()
        self._recall.clear()
        self._sink.expired()
        if answer.code == "SLOW":
            self._judged(slow=True)
            raise SlowConsumer(self.address.shown, self.id)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):  # it cannot go on; whoever waits gets the error
            failure = self.settlements.fail(error)
            self._sink.close()
            self.on_end(self, failure)
