"""A consumer's deliveries are taken in, settled and confirmed here; those who wait hear of it. No calls are made."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from headgate._util.flag import Flag
from headgate.consuming.dead_letters import DeadLetter, DeadLetters
from headgate.consuming.sink import Sink
from headgate.consuming.terms import ConsumerTerms
from headgate.context import Context
from headgate.core.fetching import Fetching
from headgate.core.segment import MARK, payload_size
from headgate.core.window import Exchange
from headgate.credit.calls import Ensure
from headgate.credit.durable_writes import DurableWrites, secured_by
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
from headgate.explain.self_wait import ConsumerUser
from headgate.message import Message, Outcome
from headgate.namespace.defaults import durability_of
from headgate.options import DEFAULT_TIMEOUT
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.spool.recall import GONE, RecallQueue
from headgate.units import parse_timeout

_log = logging.getLogger("headgate")
CONFIRM_WITHIN: Final = DEFAULT_TIMEOUT
"""Seconds for which a settlement is waited for, by default."""
SECURE_WITHIN: Final = 0.5
"""Seconds for which a consumer that closes waits for replicas or the disk."""
Future = asyncio.Future[None]
_NONE: Final = frozenset[bytes]()  # one for all: each takes 0.2 KiB


class Settlements:
    """Deliveries of one consumer, until they are settled: the holder of its messages.

    Args:
        context: the session's.
        address: the destination.
        terms: what the consumer asks for.
        machine: counts what comes, and what the settlements go out with.
        recall: deliveries that wait for a payload, or behind one that does.
        sink: where messages go that are whole, for this consumer, and not dead.
        ensure_at: makes the place of dead letters exist.
        wake: tells the feed that there is something to do.

    Attributes:
        generation: of the deliveries that are held; those of an earlier one are others'.
        closed: whether nothing can be settled any more.
        failure: why the consumer cannot go on.
        denied: why Redis or a node does nothing for it now; it is tried again, for an operator may give the right back.
        trouble: why Redis cannot be asked just now.
        durable_writes: what is settled and not as safe yet as the durability asks; None where none is asked for.
        use: which task uses the consumer.
    """

    __slots__ = (
        "_dead_letters", "_doubted", "_epoch", "_expirations", "_flushed", "_insists", "_loop", "_machine", "_outcomes",
        "_progress", "_queued", "_recall", "_session", "_sink", "_unknown", "_wake", "address", "closed", "denied",
        "durable_writes", "failure", "generation", "selects", "trouble", "use",
    )  # fmt: skip

    def __init__(
        self,
        context: Context,
        address: Address,
        terms: ConsumerTerms,
        machine: Fetching[Message],
        recall: RecallQueue,
        sink: Sink,
        ensure_at: Callable[[Address], Ensure],
        wake: Callable[[], None],
    ) -> None:
        self.address = address
        self.generation = 0
        self.closed = False
        self.failure: BaseException | None = None
        self.denied: AccessDenied | None = None
        self.trouble: BaseException | None = None
        self.durable_writes: DurableWrites | None = None
        self._session = context.session
        self._machine, self._recall, self._sink = machine, recall, sink
        self._outcomes = machine.outcomes
        self._dead_letters = DeadLetters(context, address, terms.encoded_subscription, ensure_at, self._buried)
        self._wake = wake
        self.selects = terms.selects
        self._insists = terms.insists
        self._loop = asyncio.get_running_loop()
        self._queued = self._flushed = self._expirations = self._unknown = self._epoch = 0
        self._doubted = _NONE
        """Ids of deliveries that the state may have lost, as an answer came in a new epoch."""
        self._progress = Flag()
        self.use = ConsumerUser(self._loop, self._outcomes, self._dead_letters)

    def adopt(self, fields: Mapping[str, str], store: Store) -> None:
        """Take in the destination's settings, as the state spells them."""
        self._dead_letters.configure(dict(fields))
        durability = durability_of(fields) | self._insists
        self.durable_writes = secured_by(durability, self.durable_writes, store, self.address, self._session)

    # What comes.

    def deliver(self, messages: Sequence[tuple[bytes, bytes, int]]) -> int:
        """Take what an answer brought: id, stored message and failed attempts of each; returns how many go back.

        Those that come too late go back, untried, where others were given their room.
        """
        recall, generation, selects = self._recall, self.generation, self.selects
        held, holding, deliver = self._machine.held, self._machine.holding, self._sink.deliver
        count = size = 0
        for id_, stored, attempts in messages:
            if id_ in held:
                continue  # known: only its reply was repeated
            held[id_] = message = Message(self, generation, id_, stored, attempts)
            count += 1
            if attempts or stored[:1] == MARK or recall.line:  # it may be dead, or not be whole, or overtake one
                message.size = payload_size(stored)
                size += message.size
                if recall.put(message, attempts):
                    self._arrive(message, attempts, "")
            else:  # as nearly all are: it is here, whole
                size += message.size
                if selects is None or self._is_for(message):
                    deliver(message)
        holding.deliver(count, size)
        if messages and holding.window.bytes != "unlimited":
            holding.fill(max(payload_size(stored) for _, stored, _ in messages))
        if holding.among is None or not (surplus := holding.among.surplus(islice(reversed(held.values()), count))):
            return 0
        self.give_back(surplus)
        return surplus

    def recalled(self, message: Message, attempts: int, trouble: str) -> None:
        """Take a delivery whose payload came from a store, or that waited behind one."""
        self._arrive(message, attempts, trouble)
        self._sink.recalled()

    def _arrive(self, message: Message, attempts: int, trouble: str) -> None:
        """Take a delivery that is here with its payload, or that is known to be unreadable."""
        if attempts and self._dead_letters.is_dead(attempts):
            trouble = f"{attempts} attempts failed"
        if trouble == GONE:
            self._drop(message)
        elif trouble:
            self._bury(message, trouble, attempts)
        elif self._is_for(message):
            self._sink.deliver(message)

    def _is_for(self, message: Message) -> bool:
        """Return whether a delivery is for this consumer; settle it at once where it is not, or cannot be read."""
        try:
            if self.selects is None or self.selects(message.stored):
                return True
        except MessageFormatError as error:
            self._bury(message, f"a selector cannot read it: {error}", message.delivery_count)
        else:
            self._drop(message)
        return False

    def _drop(self, message: Message) -> None:
        message.settled = True
        self._queue("accepted", message, None)

    def _bury(self, message: Message, why: str, attempts: int) -> None:
        """Make a message that nobody can use a dead letter."""
        message.settled = True
        self._die(message, why, attempts, None)

    # What is settled.

    def settle(self, message: Message, outcome: Outcome, *, confirm: bool, reason: str = "") -> Future | None:
        """Queue a settlement; the future, if asked for, is done when Redis has it. See :meth:`Message.accept`."""
        ours = message._generation == self.generation  # noqa: SLF001 -- for every message; a property takes a call more
        if not ours or message.settled or self.closed or self.failure:
            raise self._refusal(message)
        message.settled = True
        self.use.note()
        if outcome == "accepted" and not confirm:  # as nearly all are
            self._queue(outcome, message, None)
            return None
        future = self._loop.create_future() if confirm else None
        if outcome == "rejected":
            self._die(message, f"rejected: {reason or 'no reason given'}", message.delivery_count, future)
        elif outcome == "failed" and self._dead_letters.is_dead(attempts := message.delivery_count + 1):
            self._die(message, f"{attempts} attempts failed", attempts, future)
        else:
            self._queue(outcome, message, future)
        return future

    def accept(self, messages: Sequence[Message]) -> int:
        """Settle deliveries as accepted; returns how many cannot be settled any more."""
        if self.closed or self.failure is not None:
            return len(messages)
        outcomes, generation, before = self._outcomes, self.generation, len(self._outcomes)
        for message in messages:
            if not message.settled and message._generation == generation:  # noqa: SLF001 -- as above
                message.settled = True
                outcomes.append(("accepted", message, None))
        count = len(outcomes) - before
        self._queued += count
        self.use.note()
        self._stir()
        return len(messages) - count

    def _refusal(self, message: Message) -> BaseException:
        """Return why a message cannot be settled."""
        if message.settled:
            return InvalidValue(f"{message!r} cannot be settled twice")
        if not message.is_current:
            return self._given_away(message)
        went_back = f"the consumer of {self.address.shown!r} is closed; message {message.id} went back"
        return self.failure or Closed(went_back)

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
            if self.durable_writes is not None and message.raw_id not in self._machine.held:
                raise self.durable_writes.late(f"the settlement of message {message.id}", patience) from None
            raise CoordinatorUnavailable(
                f"message {message.id} of {self.address.shown!r} is not known to be settled after {patience:g} s: "
                f"{self._holdup}; it is settled once that is over, unless the session's lease ends before"
            ) from None

    async def flush(self, *, timeout: float | str = 5.0) -> None:
        """Wait until every settlement made so far is in Redis; see :meth:`Consumer.flush`."""
        target, until = self._queued, self._loop.time() + parse_timeout(timeout)
        expired, unknown = self._expirations, self._unknown
        self._machine.hurries = self._flushed < target
        self._wake()
        try:
            async with asyncio.timeout_at(until):
                dying = bool(self._dead_letters)
                while (dying or self._flushed < target) and not self.closed and self.failure is None:
                    if self.denied is not None:
                        raise self.denied
                    self._progress.clear()
                    await self._progress.wait()
                    if dying:  # a dead letter is settled once it is stored elsewhere
                        target, dying = self._queued, bool(self._dead_letters)
        except TimeoutError:
            raise CoordinatorUnavailable(
                f"settlements on {self.address.shown!r} are not confirmed yet: {self._holdup}"
            ) from None
        if self._expirations != expired:
            raise SessionExpired(self.address.shown, self._session, "what was not settled yet went to other consumers")
        if self._unknown != unknown:
            raise self._not_known("what was settled last")
        if self._flushed < target:
            raise self.failure or Closed(f"the consumer of {self.address.shown!r} was closed")
        if self.durable_writes is not None and self._epoch:
            await self.durable_writes.up_to_now(self._epoch, until)

    def give_back(self, most: int) -> bool:
        """Release up to so many messages that nobody has begun, the newest first; returns whether there were any."""
        back = self._sink.take_back(self, most)
        for message in back:
            message.settled = True
            self._queue("released", message, None)
        return bool(back)

    def made(self, call: Exchange[Message], epoch: int, stale: int) -> None:
        """Tell those who wait that the settlements of a call are made; of ``stale`` Redis knew no delivery.

        In a new epoch that may be for Redis lost these deliveries, and then what was settled comes again. Otherwise the
        answer to the same call was lost, and they are settled.
        """
        if epoch != self._epoch:
            if self._epoch:
                going = (message.raw_id for _, message, _ in call.going)
                self._doubted = frozenset((*self._machine.held, *going))
            self._epoch = epoch
        if self._doubted:
            self._judge_doubted(call, stale)
        if self.durable_writes is not None:
            self.durable_writes.settled(epoch, (future for _, _, future in call.going))
        else:
            for future in [future for _, _, future in call.going if future is not None]:
                if not future.done():
                    future.set_result(None)
        self._flushed += len(call.going)
        self._progress.set()

    def _judge_doubted(self, call: Exchange[Message], stale: int) -> None:
        """Tell those whose deliveries Redis may have lost that it may not have their settlements."""
        doubted = [one for one in call.going if one[1].raw_id in self._doubted]
        self._doubted = self._doubted.difference([message.raw_id for _, message, _ in doubted])
        if stale and doubted:
            self._unknown += len(doubted)
            for _, message, future in doubted:
                if future is not None and not future.done():
                    future.set_exception(self._not_known(f"message {message.id}"))
                    future.exception()  # whoever waits may have gone

    def _not_known(self, what: str) -> HeadgateError:
        return CoordinatorUnavailable(
            f"{what} of {self.address.shown!r} is not known to be settled: Redis lost its last writes, and "
            "perhaps that this was delivered; then it comes again"
        )

    def deny(self, error: AccessDenied) -> None:
        """Tell those who wait that nothing is done for them now."""
        self.denied = error
        for _, _, future in self._outcomes:
            if future is not None and not future.done():
                future.set_exception(error)
                future.exception()  # whoever waits may have gone
        self._progress.set()

    def fail(self, error: BaseException) -> HeadgateError:
        """End: the consumer cannot go on; returns the error for those who wait."""
        failure = (
            error if isinstance(error, HeadgateError) else HeadgateError(f"{self.address.shown!r} failed: {error!r}")
        )
        self.failure = failure
        self.lose(lambda _: failure)
        self._progress.set()
        return failure

    def expire(self) -> None:
        """Take note that all deliveries are others' now."""
        self.generation += 1
        self._doubted = _NONE
        self.lose(self._given_away)
        self._expirations += 1
        self._flushed = self._queued
        self._progress.set()

    def lose(self, why: Callable[[Message], BaseException]) -> None:
        """Drop the settlements that are on their way out, and tell those who wait for one of them."""
        lost = [(message, future) for _, message, future in self._outcomes]
        lost += [(dead.message, dead.caller) for dead in self._dead_letters.clear()]
        self._outcomes.clear()
        for message, future in lost:
            if future is not None and not future.done():
                future.set_exception(why(message))
                future.exception()  # whoever does not look at it has not lost anything

    async def close(self) -> None:
        """Stop with dead letters, wait a moment for what is settled to be safe, and drop the rest."""
        await self._dead_letters.close()
        if self.durable_writes is not None:
            await self.durable_writes.close(SECURE_WITHIN)
        self.lose(lambda _: Closed(f"the consumer of {self.address.shown!r} was closed"))

    def _queue(self, outcome: Outcome, message: Message, future: Future | None) -> None:
        self._outcomes.append((outcome, message, future))
        if future is not None or outcome != "accepted":  # here, or where it goes back to, somebody waits for it
            self._machine.hurries = True
        self._queued += 1
        self._stir()

    def _stir(self) -> None:
        self._wake()
        if (among := self._machine.holding.among) is not None:
            among.settles()

    def _die(self, message: Message, reason: str, attempts: int, future: Future | None) -> None:
        """Move a message to the dead letters, and settle it once it is there; at once where there is no such place."""
        if self._dead_letters.target is not None:
            self._dead_letters.put(DeadLetter(message, reason, attempts, future))
        else:
            _log.warning("message %s of %r was dropped: %s", message.id, self.address.shown, reason)
            self._queue("rejected", message, future)

    def _buried(self, dead: DeadLetter) -> None:
        """Settle a dead letter that is stored elsewhere now."""
        if dead.message.is_current:
            self._queue("rejected", dead.message, dead.caller)

    @property
    def _holdup(self) -> str:
        """Why settlements are not in Redis yet, as far as is known."""
        return str(self.trouble or self._dead_letters.trouble or "Redis has not answered yet")

    def _given_away(self, message: Message) -> HeadgateError:
        return SessionExpired(self.address.shown, self._session, f"message {message.id} was given to another consumer")
