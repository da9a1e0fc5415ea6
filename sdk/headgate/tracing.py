"""Traces of what a program sends, receives and processes, where a provider of OpenTelemetry is set; else nothing."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from headgate.consuming.consumer import Consumer, MessageSource
from headgate.consuming.inbox import Inbox
from headgate.core.outbox import Outgoing
from headgate.message import Headers, Message, Receipt
from headgate.producing.producer import Asked, Producer
from headgate.spans import Span, Tracing, context_of, found

__all__ = ["TracedConsumer", "TracedProducer", "context_of", "processing"]


@contextmanager
def processing(message: Any) -> Iterator[Any]:
    """Go on with the trace of a message of :mod:`headgate` or :mod:`headgate.sync` for a block, in a span ``process``.

    Without a provider it does nothing.

    Args:
        message: as it was received.

    Yields:
        The span; None where nothing is traced.
    """
    tracing = found()
    if tracing is None:
        yield None
        return
    with Span(tracing, "process", message.destination, "CONSUMER", context=context_of(message.headers)) as span:
        span.set("messaging.message.id", message.id)
        yield span.span


class TracedProducer(Producer):
    """A traced producer makes spans of its sends, and its messages carry their context."""

    tracing: Tracing

    async def send(
        self, body: bytes | str, *, headers: Headers | None = None, timeout: float | str | None = None,
        ttl: float | str | None = None, at: datetime | float | None = None, delay: float | str | None = None,
        priority: int | None = None,
    ) -> Receipt:  # fmt: skip
        """Send a message, as :meth:`Producer.send`."""
        with Span(self.tracing, "send", self.destination, "PRODUCER") as span:
            receipt = await super().send(
                body, headers=headers, timeout=timeout, ttl=ttl, at=at, delay=delay, priority=priority
            )
            span.set("messaging.message.id", receipt.id)
            return receipt

    async def _paid(self, *asked: *Asked) -> Outgoing:
        """Put a message in line, as :meth:`Producer._paid`; the span goes on until it is stored."""
        with Span(self.tracing, "send", self.destination, "PRODUCER", ends=False) as span:
            item = await super()._paid(*asked)
        item.done.add_done_callback(lambda done: _posted(span, done))
        return item

    def _item(self, *asked: *Asked) -> Outgoing:
        body, headers, *_ = asked
        item = super()._item(body, self.tracing.injected(headers), *asked[2:])
        item.span = self.tracing.trace.get_current_span()
        return item


def _posted(span: Span, done: Any) -> None:
    error = None if done.cancelled() else done.exception()
    if error is None and not done.cancelled():
        span.set("messaging.message.id", done.result().id)
    span.end(error)


class TracedConsumer(Consumer):
    """A traced consumer makes spans of its receives, with links to those that sent."""

    def __init__(self, inbox: Inbox, supply: MessageSource, tracing: Tracing) -> None:
        super().__init__(inbox, supply)
        self._tracing = tracing

    def _next_here(self) -> Message | None:
        here = super()._next_here()
        if here is not None:
            self._note(here, time.time_ns())
        return here

    async def receive(self, *, timeout: float | str | None = None) -> Message | None:
        """Return the next message, as :meth:`Consumer.receive`."""
        if (here := self._next_here()) is not None:
            return here
        began = time.time_ns()
        message = await super().receive(timeout=timeout)
        if message is not None:
            self._note(message, began)
        return message

    def _note(self, message: Message, began: int) -> None:
        """Make the span of a message that was received."""
        links = self._tracing.links([message])
        span = Span(self._tracing, "receive", message.destination, "CLIENT", links=links, began=began)
        span.set("messaging.message.id", message.id)
        span.end()
