"""Those who receive: what is here for them, what they said of it, and what they are told. No calls are made here."""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, Self

from headgate._util.forks import FORKED, watch
from headgate._util.pacing import Pacing
from headgate.consuming.dead_letters import Dead, DeadLetters
from headgate.core.durability import MEMORY
from headgate.core.selector.messages import Matcher
from headgate.core.window import Holding, Window
from headgate.credit.securing import Securing, secured_by
from headgate.errors import (
    AccessDenied,
    Closed,
    CoordinatorUnavailable,
    HeadgateError,
    InvalidValue,
    MessageFormatError,
    NotDurable,
    SessionExpired,
)
from headgate.explain.self_wait import Use
from headgate.message import Message, Outcome
from headgate.namespace.defaults import durability_of
from headgate.options import DEFAULT_TIMEOUT
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.units import parse_timeout

_log = logging.getLogger("headgate")
CONFIRM_WITHIN: Final = DEFAULT_TIMEOUT
"""Seconds for which a settlement is waited for, where nothing else is said."""
CLOSE_WITHIN: Final = 0.5
"""Seconds for which a consumer that closes waits for replicas or the disk."""
BREATH: Final = 64
"""Settlements after which a receiver that never has to wait lets the other tasks run."""


class Receivers:
    """The callers' half of a consumer: a buffer of deliveries, and a line of settlements on their way out."""

    def __init__(
        self, address: Address, session: str, window: Window, rate: float | None, dead_letters: DeadLetters
    ) -> None:
        self.address = address
        self.session = session
        self._number = 0
        self._holding = Holding(window)
        self.pacing = Pacing(rate)
        """Its own rate, in messages a second."""
        self._dead_letters = dead_letters
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._arrived = asyncio.Event()
        self._buffer: deque[Message] = deque()
        self._outcomes: deque[tuple[Outcome, Message, asyncio.Future[None] | None]] = deque()
        self._held: dict[bytes, Message] = {}
        self._queued = self._flushed = 0
        self._breathe_at = BREATH
        self._expirations = 0
        self._progress = asyncio.Event()
        self._receivers = 0
        self._received = 0
        self._received_before = -1
        self._rests = False
        self._generation = 0
        self._closed = False
        self._failure: BaseException | None = None
        self.take_from_threads: Callable[[Receivers, int], list[Message]] = lambda _consumer, _most: []
        """Takes back up to so many of its messages that were handed to threads, and that none of them has begun."""
        self.selects: Matcher | None = None
        """Says of a stored message whether it is for this consumer; None where all are."""
        self._denied: AccessDenied | None = None
        """Why Redis or a node does nothing for it now; it is tried again, for an operator may give the right back."""
        self.trouble: BaseException | None = None
        """Why Redis cannot be asked just now."""
        self.securing: Securing | None = None
        """What is settled and not as safe yet as the durability asks; None where none is asked for."""
        self.insists = MEMORY
        """What it asks for itself, whatever the destination says."""
        self._epoch = 0
        watch(self)
        self.use = Use(self._loop, self._outcomes, dead_letters)
        """Which task uses it."""

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{self._holding.messages} messages held, {self._holding.window!r}"
        return f"{type(self).__name__}({self.address.name!r}, {state})"

    def adopt(self, fields: Mapping[str, str], store: Store) -> None:
        """Take in the destination's settings, as the state spells them."""
        self._dead_letters.configure(dict(fields))
        durability = durability_of(fields) | self.insists
        self.securing = secured_by(durability, self.securing, store, self.address, self.session)

    @property
    def id(self) -> str:
        """What the consumer is called in the state."""
        return f"{self.session}.{self._number}"

    @property
    def window(self) -> Window:
        """The window in force."""
        return self._holding.window

    @property
    def held_messages(self) -> int:
        """Messages delivered and not settled, those not yet received included."""
        return self._holding.messages

    @property
    def held_bytes(self) -> int:
        """Their bytes."""
        return self._holding.bytes

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if self._closed and self._failure is None:
            raise StopAsyncIteration
        try:
            message = await self.receive(timeout=None)
        except Closed:
            if self._failure is not None:
                raise
            raise StopAsyncIteration from None
        if message is None:
            raise StopAsyncIteration
        return message

    async def receive(self, *, timeout: float | str | None = None) -> Message | None:
        """Return the next message.

        Args:
            timeout: seconds to wait; ``"unlimited"``, or None, to wait until there is one.

        Returns:
            None when none came in time, or none that the consumer's rate lets it take so soon.

        Raises:
            Closed: the consumer is closed.
            SlowConsumer: it was detached by the destination's rules.
            AccessDenied: nothing is here, and the right to receive was taken away; it goes on once it is given back.
        """
        self._received += 1
        self.use.note()
        if self._buffer and len(self._outcomes) >= self._breathe_at:
            self._breathe_at = len(self._outcomes) + BREATH
            await asyncio.sleep(0)  # let settlements out and deliveries in while the caller works on what is here
        deadline = None
        if timeout is not None and (not self._buffer or self.pacing.rate is not None):
            deadline = self._loop.time() + parse_timeout(timeout)
        while True:
            if not self._buffer:
                await self._await_arrival(deadline)
            if self._failure is not None:
                raise self._failure
            if self._closed:
                raise Closed(f"the consumer of {self.address.name!r} is closed")
            if not self._buffer:
                if self._denied is not None:
                    raise self._denied
                return None  # its time is over
            if self.pacing.rate is None:
                return self._buffer.popleft()
            if not await self._has_turn(deadline):
                return None
            if self._buffer and not self._closed:
                return self._buffer.popleft()
            self.pacing.put_back()  # others took what was here meanwhile, or it went back: wait for the next

    async def _has_turn(self, deadline: float | None) -> bool:
        """Wait for a turn at the rate; False when none comes before the deadline, which is waited for."""
        while await self.pacing.turn(patience=math.inf if deadline is None else deadline - self._loop.time()):
            if deadline is None or self._loop.time() >= deadline or self._closed:
                return False
            await self.pacing.until(deadline)  # the rate may be raised meanwhile, or the consumer closed
        return True

    async def flush(self, *, timeout: float | str = 5.0) -> None:
        """Wait until every settlement made so far is in Redis, and as safe there as its durability asks.

        Raises:
            CoordinatorUnavailable: not within the timeout.
            NotDurable: in Redis within the timeout, and not as safe.
            SessionExpired: one of them came too late.
            AccessDenied: the right to settle was taken away.
        """
        target, until = self._queued, self._loop.time() + parse_timeout(timeout)
        expired = self._expirations
        self._wake.set()
        try:
            async with asyncio.timeout_at(until):
                dying = bool(self._dead_letters)
                while (dying or self._flushed < target) and not self._closed and self._failure is None:
                    if self._denied is not None:
                        raise self._denied
                    self._progress.clear()
                    await self._progress.wait()
                    if dying:  # a dead letter is settled once it is stored elsewhere
                        target, dying = self._queued, bool(self._dead_letters)
        except TimeoutError:
            raise CoordinatorUnavailable(
                f"settlements on {self.address.name!r} are not confirmed yet: {self._holdup}"
            ) from None
        if self._expirations != expired:
            raise SessionExpired(self.address.name, self.session, "what was not settled yet went to other consumers")
        if self._flushed < target:
            raise self._failure or Closed(f"the consumer of {self.address.name!r} was closed")
        if self.securing is not None and self._epoch:
            await self.securing.up_to_now(self._epoch, until)

    async def confirm(
        self, message: Message, outcome: Outcome, timeout: float | str | None, *, reason: str = ""
    ) -> None:
        """Settle, and wait until Redis has it. See :meth:`Message.accept`."""
        patience = CONFIRM_WITHIN if timeout is None else parse_timeout(timeout)
        done = self.settle(message, outcome, confirm=True, reason=reason) or self._loop.create_future()
        try:
            async with asyncio.timeout(patience):
                await done
        except TimeoutError as error:
            if isinstance(error, NotDurable):
                raise
            if self.securing is not None and message.raw_id not in self._held:
                raise self.securing.late(f"the settlement of message {message.id}", patience) from None
            raise CoordinatorUnavailable(
                f"message {message.id} of {self.address.name!r} is not known to be settled after {patience:g} s: "
                f"{self._holdup}; it is settled once that is over, unless the session's lease ends before"
            ) from None

    @property
    def _holdup(self) -> str:
        """Why settlements are not in Redis yet, as far as is known."""
        return str(self.trouble or self._dead_letters.trouble or "Redis has not answered yet")

    def settle(
        self, message: Message, outcome: Outcome, *, confirm: bool, reason: str = ""
    ) -> asyncio.Future[None] | None:
        """Queue a settlement; the future, if asked for, is done when Redis has it. See :meth:`Message.accept`."""
        if message.settled:
            raise InvalidValue(f"{message!r} cannot be settled twice")
        if message._generation != self._generation:  # noqa: SLF001
            raise self._given_away(message)
        if self._failure is not None:
            raise self._failure
        if self._closed:
            raise Closed(f"the consumer of {self.address.name!r} is closed; message {message.id} went back")
        message.settled = True
        self.use.note()
        future = self._loop.create_future() if confirm else None
        if outcome == "rejected":
            self._die(message, f"rejected: {reason or 'no reason given'}", message.delivery_count, future)
        elif outcome == "failed" and self._dead_letters.is_dead(attempts := message.delivery_count + 1):
            self._die(message, f"{attempts} attempts failed", attempts, future)
        else:
            self._queue(outcome, message, future)
        return future

    def _take_back(self, most: int) -> list[Message]:
        """Take out what nobody has begun, the newest first, up to ``most`` messages."""
        back = [self._buffer.pop() for _ in range(min(most, len(self._buffer)))]
        return back + self.take_from_threads(self, most - len(back)) if len(back) < most else back

    def _hand_back(self, keep: int) -> None:
        """Release what nobody has begun, for others wait: what is above ``keep``, or all if nobody asks here."""
        idle = self._received == self._received_before and not self._receivers
        self._received_before = self._received
        back = self._take_back(self._holding.messages if idle else max(1, self._holding.messages - keep))
        for message in back:
            message.settled = True
            self._queue("released", message, None)
        self._rests = self._rests or bool(back)

    def _queue(self, outcome: Outcome, message: Message, future: asyncio.Future[None] | None) -> None:
        self._outcomes.append((outcome, message, future))
        self._queued += 1
        self._wake.set()

    def _die(self, message: Message, reason: str, attempts: int, future: asyncio.Future[None] | None) -> None:
        """Move a message to the dead letters, and settle it once it is there; at once where there is no such place."""
        if self._dead_letters.target is not None:
            self._dead_letters.put(Dead(message, reason, attempts, future))
        else:
            _log.warning("message %s of %r was dropped: %s", message.id, self.address.name, reason)
            self._queue("rejected", message, future)

    def _is_for(self, message: Message, selects: Matcher) -> bool:
        """Return whether a delivery is for this consumer; settle it at once where it is not, or cannot be read."""
        try:
            if selects(message.stored):
                return True
        except MessageFormatError as error:
            message.settled = True
            self._die(message, f"a selector cannot read it: {error}", message.delivery_count, None)
        else:
            message.settled = True
            self._queue("accepted", message, None)
        return False

    def _buried(self, dead: Dead) -> None:
        if dead.message._generation == self._generation:  # noqa: SLF001
            self._queue("rejected", dead.message, dead.told)

    async def _await_arrival(self, deadline: float | None) -> None:
        """Wait until something is here, until the consumer ends, or until a moment of the loop's clock."""
        self._receivers += 1
        self._wake.set()
        try:
            async with asyncio.timeout_at(deadline):
                while not self._buffer and not self._closed and self._failure is None and self._denied is None:
                    self._arrived.clear()
                    await self._arrived.wait()
        except TimeoutError:
            pass
        finally:
            self._receivers -= 1

    def forked(self) -> None:
        """Refuse from now on: what is here was delivered to the parent process."""
        self._closed = True
        self._failure = Closed(f"the consumer of {self.address.name!r} cannot be used: {FORKED}")
        self._buffer.clear()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the consumer of {self.address.name!r} is closed")

    def _deny(self, error: AccessDenied) -> None:
        """Tell who waits that nothing is done for it now."""
        self._denied = error
        for _, _, future in self._outcomes:
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits may have gone
        self._arrived.set()
        self._progress.set()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):  # it cannot go on; whoever waits is told
            known = isinstance(error, HeadgateError)
            self._failure = failure = error if known else HeadgateError(f"{self.address.name!r} failed: {error!r}")
            self.pacing.wake()
            self._lose(lambda _: failure)
            self._arrived.set()
            self._progress.set()

    def _settled(self, going: list[tuple[Outcome, Message, asyncio.Future[None] | None]], epoch: int) -> None:
        self._epoch = epoch
        if self.securing is not None:
            self.securing.settled(epoch, (future for _, _, future in going))
            going = [(outcome, message, None) for outcome, message, _ in going]
        for _, message, future in going:
            self._outcomes.popleft()
            self._holding.settle(message.size)
            self._held.pop(message.raw_id, None)
            if future is not None and not future.done():
                future.set_result(None)
        self._flushed += len(going)
        self._breathe_at = len(self._outcomes) + BREATH
        self._progress.set()

    async def _secured(self) -> None:
        """Wait a moment for what is settled and not as safe yet as asked for."""
        if self.securing is not None:
            await self.securing.close(CLOSE_WITHIN)

    def _given_away(self, message: Message) -> HeadgateError:
        return SessionExpired(self.address.name, self.session, f"message {message.id} was given to another consumer")

    def _lose(self, why: Callable[[Message], BaseException]) -> None:
        """Drop the settlements that are on their way out, and tell who waits for one of them."""
        lost = [(message, future) for _, message, future in self._outcomes]
        lost += [(dead.message, dead.told) for dead in self._dead_letters.clear()]
        self._outcomes.clear()
        for message, future in lost:
            if future is not None and not future.done():
                future.set_exception(why(message))
                future.exception()  # whoever does not look at it has not lost anything

    def _expire(self) -> None:
        self._generation += 1
        self._lose(self._given_away)
        self._buffer.clear()
        self._expirations += 1
        self._flushed = self._queued
        self._progress.set()
