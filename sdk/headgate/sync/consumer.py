"""A consumer for threads makes no round trip: what has arrived is received, and what is settled is queued."""

import asyncio
import math
import threading
import time
from collections import deque
from typing import Self

import headgate.consuming.consumer
import headgate.message
from headgate._util.forks import FORKED, watch
from headgate._util.inner_property import InnerProperty
from headgate.core.window import Window
from headgate.errors import Closed, HeadgateError, InvalidValue, SessionExpired
from headgate.message import Outcome
from headgate.sync.faces import Face
from headgate.sync.thread import LoopThread
from headgate.units import parse_timeout


class Message:
    """A message is one delivery; attributes as of :class:`headgate.Message`. Settle it once, from any thread."""

    __slots__ = ("_consumer", "_inner", "delivery_count", "id", "settled", "size")

    def __init__(self, consumer: "Consumer", inner: headgate.message.Message) -> None:
        self._consumer = consumer
        self._inner = inner
        self.id = inner.id
        self.size = inner.size
        self.delivery_count = inner.delivery_count
        self.settled = False

    body = InnerProperty(headgate.message.Message.body)
    headers = InnerProperty(headgate.message.Message.headers)
    priority = InnerProperty(headgate.message.Message.priority)
    is_current = InnerProperty(headgate.message.Message.is_current)
    destination = InnerProperty(headgate.message.Message.destination)

    @property
    def stored(self) -> bytes:
        """The message as it is stored."""
        return self._inner.stored

    def __repr__(self) -> str:
        return f"Message({self.id}, {self.size} bytes{', settled' if self.settled else ''})"

    def accept(self, *, confirm: bool = False, timeout: float | str | None = None) -> None:
        """Say that it is done with; ``confirm`` waits until Redis has it, for ``timeout`` seconds (30 when None).

        Errors as :meth:`headgate.Message.accept`.
        """
        self._consumer.settle(self, "accepted", confirm=confirm, timeout=timeout)

    def release(self, *, confirm: bool = False, timeout: float | str | None = None) -> None:
        """Give it back untried: it is delivered again, before newer ones."""
        self._consumer.settle(self, "released", confirm=confirm, timeout=timeout)

    def reject(self, reason: str = "", *, confirm: bool = False, timeout: float | str | None = None) -> None:
        """Say that it can never be used: it is removed and counted as rejected."""
        self._consumer.settle(self, "rejected", confirm=confirm, reason=reason, timeout=timeout)

    def modify(
        self,
        *,
        failed: bool = True,
        after: float | str | None = None,
        confirm: bool = False,
        timeout: float | str | None = None,
    ) -> None:
        """Give it back after a failed attempt; arguments as :meth:`headgate.Message.modify`."""
        if after is not None and not self.settled:
            self._inner.put_off(after)
        self._consumer.settle(self, "failed" if failed else "released", confirm=confirm, timeout=timeout)


class Consumer(Face[headgate.consuming.consumer.Consumer]):
    """This is :class:`headgate.Consumer` for threads. Get one from :meth:`Session.consumer`; threads may share it.

    A task on the loop receives while somebody here waits, and hands over all that has arrived.
    """

    def __init__(self, thread: LoopThread, inner: headgate.consuming.consumer.Consumer) -> None:
        super().__init__(thread, inner)
        self._changed = threading.Condition()
        self._arrived: deque[Message] = deque()
        self._receivers = 0
        self._pump: asyncio.Task[None] | None = None
        self._pumping = False
        self._settlements: deque[tuple[Message, Outcome, str]] = deque()
        self._telling = False
        self._closed = False
        self._failure: HeadgateError | None = None
        inner.use.by_threads()
        self._inbox = inner.inbox
        self._inbox.take_from_threads = self._take_back
        self._gone: Closed | None = None
        """Why nothing can be done with it in this process."""
        watch(self)

    def forked(self) -> None:
        """Refuse from now on, whoever held the lock at that moment."""
        self._changed = threading.Condition()
        self._arrived.clear()
        self._gone = Closed(f"the consumer of {self._inner.address.name!r} cannot be used: {FORKED}")

    id = InnerProperty(headgate.consuming.consumer.Consumer.id)
    window = InnerProperty(headgate.consuming.consumer.Consumer.window)
    held_messages = InnerProperty(headgate.consuming.consumer.Consumer.held_messages)
    held_bytes = InnerProperty(headgate.consuming.consumer.Consumer.held_bytes)
    is_slow = InnerProperty(headgate.consuming.consumer.Consumer.is_slow)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Message:
        try:
            message = self.receive()
        except Closed:
            if self._gone is not None:
                raise
            raise StopIteration from None
        if message is None:
            raise StopIteration
        return message

    def receive(self, *, timeout: float | str | None = None) -> Message | None:
        """Return the next message, or None when none came within ``timeout`` seconds (None, "unlimited": no bound).

        Raises:
            Closed: the consumer is closed.
        """
        self._inner.use.note_by(threading.current_thread())
        patience = math.inf if timeout is None else parse_timeout(timeout)
        deadline = None if patience == math.inf else time.monotonic() + patience
        with self._changed:
            while True:
                if (message := self._next()) is not None:
                    return message
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._receivers += 1
                try:
                    if not self._pumping:
                        self._pumping = True
                        self._thread.tell(self._start_pump)
                    self._changed.wait(left)
                finally:
                    self._receivers -= 1
                    if not self._receivers and not self._arrived:
                        self._thread.tell(self._stop_pump)
        return self._thread.run(self._poll(), self._put_back)

    def configure(self, *, window: Window | int | str) -> None:
        """Change the window, effective at once; errors as :meth:`headgate.Consumer.configure`."""
        self._thread.run(self._configure(window))

    def flush(self, *, timeout: float | str = 5.0) -> None:
        """Wait until every settlement made so far is in Redis; errors as :meth:`headgate.Consumer.flush`."""
        self._thread.run(self._flush(timeout))

    def close(self) -> None:
        """Settle what was settled, give the rest back; never longer than 1 s."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.finish(self._close())

    def settle(
        self,
        message: Message,
        outcome: Outcome,
        *,
        confirm: bool,
        reason: str = "",
        timeout: float | str | None = None,
    ) -> None:
        """Queue a settlement, or wait until Redis has it. See :meth:`Message.accept`."""
        if confirm and timeout is not None:
            parse_timeout(timeout)  # before anything is done
        with self._changed:
            if message.settled:
                raise InvalidValue(f"{message!r} cannot be settled twice")
            if not message.is_current:
                raise SessionExpired(
                    self._inner.address.name, self._inner.session, f"message {message.id} was given to another consumer"
                )
            if self._closed or self._inner.is_closed:
                raise self._gone or Closed(
                    f"the consumer of {self._inner.address.name!r} is closed; message {message.id} went back"
                )
            message.settled = True
            self._inner.use.note_by(threading.current_thread())
            tell = False
            if not confirm:
                self._settlements.append((message, outcome, reason))
                tell, self._telling = not self._telling, True
        if confirm:
            self._thread.run(self._confirm(message, outcome, reason, timeout))
        elif tell:
            self._thread.tell(self._settle_queued)

    def _next(self) -> Message | None:
        if self._closed or self._inner.is_closed:
            raise self._gone or Closed(f"the consumer of {self._inner.address.name!r} is closed")
        while self._arrived:
            message = self._arrived.popleft()
            if message.is_current:
                self._inbox.received += 1
                return message
        if self._failure is not None:
            raise self._failure
        return None

    # What runs on the loop.

    def _start_pump(self) -> None:
        self._pump = asyncio.get_running_loop().create_task(self._receive())
        self._pump.add_done_callback(self._pumped)

    def _stop_pump(self) -> None:
        with self._changed:
            if not self._receivers and self._pump is not None:
                self._pump.cancel()

    async def _poll(self) -> Message | None:
        """Return what is here already, for a caller that does not wait until it is handed over."""
        with self._changed:
            if (message := self._next()) is not None:
                return message
        polled = await self._inner.receive(timeout=0)
        return None if polled is None else Message(self, polled)

    def _put_back(self, message: Message | None) -> None:
        if message is not None:
            with self._changed:
                self._arrived.appendleft(message)
                self._changed.notify()

    async def _receive(self) -> None:
        inner = self._inner
        while True:
            with self._changed:
                if self._arrived or not self._receivers:
                    return
            first = await inner.receive()
            if first is None:
                continue
            fresh = [first]
            if inner.pacing.rate is None:
                fresh += self._inbox.take_all()
            with self._changed:
                self._arrived.extend(Message(self, message) for message in fresh)
                self._changed.notify(len(fresh))

    def _pumped(self, pump: "asyncio.Task[None]") -> None:
        error = None if pump.cancelled() else pump.exception()
        with self._changed:
            if error is not None:
                if not isinstance(error, HeadgateError):
                    error = HeadgateError(f"{self._inner!r} failed: {error!r}")
                self._failure = error
                self._changed.notify_all()
            self._pumping = bool(self._receivers and not self._arrived and self._failure is None)
            if self._pumping:  # somebody began to wait while it was ending
                self._start_pump()

    def _take_back(self, holder: headgate.message.Holder, most: int) -> list[headgate.message.Message]:
        with self._changed:
            back = [message for message in reversed(self._arrived) if _inner(message).is_of(holder)][:most]
            for message in back:
                self._arrived.remove(message)
        return [_inner(message) for message in back]

    def _settle_queued(self) -> None:
        with self._changed:
            queued, self._settlements = self._settlements, deque()
            self._telling = False
        for message, outcome, reason in queued:
            try:
                _inner(message).settle(outcome, reason=reason)
            except HeadgateError:  # meanwhile it was given to another consumer; flush() tells
                continue

    async def _confirm(self, message: Message, outcome: Outcome, reason: str, timeout: float | str | None) -> None:
        self._settle_queued()
        await _inner(message).confirm(outcome, timeout, reason=reason)

    async def _configure(self, window: Window | int | str) -> None:
        await self._inner.configure(window=window)

    async def _flush(self, timeout: float | str) -> None:
        self._settle_queued()
        await self._inner.flush(timeout=timeout)

    async def _close(self) -> None:
        self._settle_queued()
        await self._inner.close()


def _inner(message: Message) -> headgate.message.Message:
    return message._inner  # noqa: SLF001 -- a message and its consumer are two halves of one
