"""A consumer takes messages out of a queue, a topic, or all topics that a pattern matches, under a window."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol, Self

from headgate._util.inner_property import InnerProperty
from headgate._util.keywords import explains
from headgate._util.pacing import Pacing
from headgate.consuming.inbox import BREATH, Inbox, InboxSource
from headgate.core.window import Window
from headgate.errors import Closed
from headgate.explain.self_wait import ConsumerUser
from headgate.message import Message
from headgate.redis.keys import Address
from headgate.units import parse_timeout


class MessageSource(Protocol):
    """A consumer gets its messages from a source: a feed, or one for each topic."""

    @property
    def address(self) -> Address:
        """The destination, or the pattern in its place."""

    @property
    def session(self) -> str:
        """The session's id."""

    @property
    def subscription(self) -> str:
        """The subscription's name; ``queue`` for a queue."""

    @property
    def durable(self) -> bool:
        """Whether the subscription stays when its last consumer goes."""

    @property
    def is_slow(self) -> bool:
        """Whether it settles too little of what there is for it, by the destination's rules."""

    @property
    def source(self) -> InboxSource:
        """The lease, which shows whether messages still come."""

    @property
    def id(self) -> str:
        """The consumer's name in the state; with a pattern, in the namespace's index."""

    @property
    def use(self) -> ConsumerUser:
        """Which task uses it."""

    @property
    def window(self) -> Window:
        """The window in force."""

    @property
    def held_messages(self) -> int:
        """Messages delivered and not settled, those not yet received included."""

    @property
    def held_bytes(self) -> int:
        """Their bytes."""

    @property
    def topics(self) -> list[str]:
        """The names of the destinations that it is on."""

    def configure(self, *, window: Window) -> Awaitable[None]:
        """Change the window."""

    def resume(self) -> None:
        """Look whether to fetch: somebody waits."""

    async def flush(self, *, timeout: float | str = 5.0) -> None:
        """Wait until every settlement made so far is in Redis."""

    async def close(self) -> None:
        """Settle what was settled, give the rest back."""


class Consumer:
    """A consumer receives from one subscription.

    Get one from :meth:`Session.consumer`; iterate it, and settle what it yields.

    It holds at most its window unsettled; what it holds goes back, untried, when it is closed. With a pattern it
    receives from all topics that match, each in turn, under one window: new topics are joined and removed ones left
    while it is open, and :attr:`Message.destination` says where a message comes from.
    """

    def __init__(self, inbox: Inbox, supply: MessageSource) -> None:
        self.inbox = inbox
        """The messages that are here; for :mod:`headgate.sync`."""
        self._supply = supply
        self._source = supply.source
        self._buffer = inbox.buffer
        self._pacing = inbox.pacing
        self._use = supply.use
        self._breathe_at = BREATH
        self._loop = asyncio.get_running_loop()

    def __repr__(self) -> str:
        supply = self._supply
        state = "closed" if self._source.closed else f"{supply.held_messages} messages held, {supply.window!r}"
        return f"Consumer({supply.address.name!r}, {state})"

    id = InnerProperty(MessageSource.id, "_supply")
    address = InnerProperty(MessageSource.address, "_supply")
    session = InnerProperty(MessageSource.session, "_supply")
    subscription = InnerProperty(MessageSource.subscription, "_supply")
    durable = InnerProperty(MessageSource.durable, "_supply")
    topics = InnerProperty(MessageSource.topics, "_supply")
    window = InnerProperty(MessageSource.window, "_supply")
    is_slow = InnerProperty(MessageSource.is_slow, "_supply")
    held_messages = InnerProperty(MessageSource.held_messages, "_supply")
    held_bytes = InnerProperty(MessageSource.held_bytes, "_supply")

    @property
    def pacing(self) -> Pacing:
        """Its own rate, in messages a second."""
        return self._pacing

    @property
    def use(self) -> ConsumerUser:
        """Which task uses it."""
        return self._use

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be received any more."""
        return self._source.closed

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        if (here := self._next_here()) is not None:
            return here
        source = self._source
        if source.closed and source.failure is None:
            raise StopAsyncIteration
        try:
            message = await self.receive(timeout=None)
        except Closed:
            if source.failure is not None:
                raise
            raise StopAsyncIteration from None
        if message is None:
            raise StopAsyncIteration
        return message

    def _next_here(self) -> Message | None:
        """Return the next message if it is here and nothing else is to be done first, as nearly always."""
        inbox, source, buffer = self.inbox, self._source, self._buffer
        if not buffer or self._pacing.rate is not None or source.closed or source.failure is not None:
            return None
        if inbox.received + 1 >= self._breathe_at:
            return None
        inbox.received += 1
        self._use.note()
        return buffer.popleft()

    async def receive(self, *, timeout: float | str | None = None) -> Message | None:
        """Return the next message; with a pattern, of each topic in turn.

        Args:
            timeout: seconds to wait; ``"unlimited"``, or None, to wait until there is one.

        Returns:
            None when none came in time, or none that the consumer's rate lets it take so soon.

        Raises:
            Closed: the consumer is closed.
            SlowConsumer: it was detached by the destination's rules.
            AccessDenied: nothing is here, and the right to receive was taken away; it goes on once it is given back.
        """
        if (here := self._next_here()) is not None:
            return here
        inbox = self.inbox
        inbox.received += 1
        self._use.note()
        if self._buffer and inbox.received >= self._breathe_at:
            self._breathe_at = inbox.received + BREATH
            await asyncio.sleep(0)  # let settlements out and deliveries in while the caller works on what is here
        return await self._next(timeout)

    async def _next(self, timeout: float | str | None) -> Message | None:
        inbox, buffer, pacing, source = self.inbox, self._buffer, self._pacing, self._source
        deadline = None
        if timeout is not None and (not buffer or pacing.rate is not None):
            deadline = self._loop.time() + parse_timeout(timeout)
        while True:
            if not buffer:
                await inbox.wait(source, deadline, self._supply.resume)
                self._breathe_at = inbox.received + BREATH
            if source.failure is not None:
                raise source.failure
            if source.closed:
                raise Closed(f"the consumer of {self.address.shown!r} is closed")
            if not buffer:
                if source.denied is not None:
                    raise source.denied
                return None  # its time is over
            if pacing.rate is None:
                return buffer.popleft()
            if not await inbox.has_turn(source, deadline):
                return None
            if buffer and not source.closed:
                return buffer.popleft()
            pacing.put_back()  # others took what was here meanwhile, or it went back: wait for the next

    @explains("consumer")
    def configure(self, *, window: Window | int | str) -> Awaitable[None]:
        """Change the window, effective at once; below what is held, nothing more comes until enough is settled.

        Returns:
            An awaitable that is done when Redis has it too, for operators to see; it need not be awaited. It fails with
            CoordinatorUnavailable where Redis does not answer; the window is in force here all the same.

        Raises:
            InvalidValue: not a window; nothing was changed.
            Closed: the consumer is closed.
        """
        if self._source.closed:
            raise Closed(f"the consumer of {self._supply.address.name!r} is closed")
        return self._supply.configure(window=Window.of(window))

    async def flush(self, *, timeout: float | str = 5.0) -> None:
        """Wait until every settlement made so far is in Redis, and as safe there as its durability asks.

        Raises:
            CoordinatorUnavailable: not within the timeout; or a failover may have lost some of what was delivered.
            NotDurable: in Redis within the timeout, and not as safe.
            SessionExpired: one of them came too late.
            AccessDenied: the right to settle was taken away.
        """
        await self._supply.flush(timeout=timeout)

    async def close(self) -> None:
        """Settle what was settled, give the rest back; never longer than about 1 s. A durable subscription stays."""
        await self._supply.close()
