"""OpenTelemetry: spans of sends, receives and waits, and their histogram, where a provider is set; else nothing.

The API is looked for once, as a client connects. A program that sets a provider has imported it, so nothing is imported
here for others. The context of a trace travels in the headers ``traceparent`` and ``tracestate``, which AMQP
clients see as application properties, and which links and Spark keep.
"""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from typing import Any, Final

from headgate.consuming.consumer import Consumer, Supply
from headgate.consuming.inbox import Inbox
from headgate.core.outbox import Outgoing
from headgate.message import Headers, Message, Receipt
from headgate.producing.producer import Producer
from headgate.waits import Wait

SYSTEM: Final = "headgate"
_API: Final = ("opentelemetry.trace", "opentelemetry.metrics")


def found() -> "Tracing | None":
    """Return what traces with the providers that are set; None where none is."""
    modules = [sys.modules.get(name) for name in _API]
    providers = [
        module is not None and getattr(module, f"get_{kind}_provider")()
        for module, kind in zip(modules, ("tracer", "meter"), strict=True)
    ]
    # Providers that do nothing, and stand-ins for one to come, are classes of the API itself.
    real = [provider and not type(provider).__module__.startswith(_API) for provider in providers]
    return Tracing() if any(real) else None


def context_of(headers: Mapping[str, Any]) -> Any:
    """Return the context of the trace that a message's headers name; an empty one without any."""
    from opentelemetry.context import Context
    from opentelemetry.propagate import extract

    texts = {name: value for name, value in headers.items() if isinstance(value, str)}
    return extract(texts, context=Context())


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
    with tracing.span("process", message.destination, "CONSUMER", context_of(message.headers), id=message.id) as span:
        yield span


class Tracing:
    """The tracer and the meters of one client."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace
        from opentelemetry.propagate import inject

        own = version("headgate")
        self._trace, self._inject = trace, inject
        self._tracer = trace.get_tracer("headgate", own)
        meter = metrics.get_meter("headgate", own)
        self._waits = meter.create_histogram("headgate.wait.duration", "s", "How long callers waited.")
        self._operations = meter.create_histogram(
            "messaging.client.operation.duration", "s", "How long sends and receives took."
        )

    @contextmanager
    def span(
        self, operation: str, destination: str, kind: str, context: Any = None, *, id: str = ""  # noqa: A002 - as of a message
    ) -> Iterator[Any]:  # fmt: skip
        """Run a block in a span of messaging, as the semantic conventions have it."""
        attributes = self._attributes(operation, destination)
        if id:
            attributes["messaging.message.id"] = id
        began = time.perf_counter()
        measured = {name: attributes[name] for name in attributes if name != "messaging.message.id"}
        try:
            with self._tracer.start_as_current_span(
                f"{operation} {destination}", context, kind=self._trace.SpanKind[kind], attributes=attributes
            ) as span:
                try:
                    yield span
                except BaseException as error:
                    measured["error.type"] = type(error).__qualname__
                    span.set_attribute("error.type", type(error).__qualname__)
                    raise
        finally:
            self._operations.record(time.perf_counter() - began, measured)

    def injected(self, headers: Headers | None) -> dict[str, Any]:
        """Return headers with the context of the current span."""
        carrier = dict(headers or {})
        self._inject(carrier)
        return carrier

    def current(self) -> Any:
        """Return the current span."""
        return self._trace.get_current_span()

    def received(self, message: Message, began: int) -> None:
        """Note that a message was received: a span with a link to the one that sent it."""
        try:
            context = self._trace.get_current_span(context_of(message.headers)).get_span_context()
        except ValueError:  # it cannot be read, which whoever reads it hears
            return
        links = [self._trace.Link(context)] if context.is_valid else []
        attributes = self._attributes("receive", message.destination)
        now = time.time_ns()
        self._operations.record((now - began) / 1e9, attributes)
        self._tracer.start_span(
            f"receive {message.destination}", kind=self._trace.SpanKind.CLIENT, links=links, start_time=began,
            attributes=attributes | {"messaging.message.id": message.id},
        ).end(now)  # fmt: skip

    def heard(self, wait: Wait) -> None:
        """Count a wait; one for credit is an event of its send's span, any other a span of its own."""
        attributes = {
            "headgate.destination": wait.destination,
            "headgate.wait.kind": wait.kind,
            "headgate.wait.outcome": wait.outcome,
        }
        self._waits.record(wait.seconds, attributes)
        if wait.kind == "credit":
            if wait.span is not None:
                wait.span.add_event("headgate.wait", attributes | {"headgate.wait.seconds": wait.seconds})
            return
        now = time.time_ns()
        began = now - int(wait.seconds * 1e9)
        span = self._tracer.start_span(f"admit {wait.destination}", start_time=began, attributes=attributes)
        if wait.error is not None:
            span.set_attribute("error.type", type(wait.error).__qualname__)
            span.set_status(self._trace.StatusCode.ERROR, str(wait.error))
        span.end(now)

    def _attributes(self, operation: str, destination: str) -> dict[str, str]:
        return {
            "messaging.system": SYSTEM,
            "messaging.destination.name": destination,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
        }


class TracedProducer(Producer):
    """A producer whose sends are spans, and whose messages carry their context."""

    tracing: Tracing

    async def send(
        self, body: bytes | str, *, headers: Headers | None = None, timeout: float | str | None = None,
        ttl: float | str | None = None, at: datetime | float | None = None, delay: float | str | None = None,
        priority: int | None = None,
    ) -> Receipt:  # fmt: skip
        """Send a message, as :meth:`Producer.send`."""
        with self.tracing.span("send", self.destination, "PRODUCER") as span:
            receipt = await super().send(
                body, headers=headers, timeout=timeout, ttl=ttl, at=at, delay=delay, priority=priority
            )
            span.set_attribute("messaging.message.id", receipt.id)
            return receipt

    async def _paid(
        self,
        body: bytes | str,
        headers: Headers | None,
        timeout: float | str | None,
        ttl: float | str | None,
        later: str,
    ) -> Outgoing:
        with self.tracing.span("send", self.destination, "PRODUCER"):
            return await super()._paid(body, headers, timeout, ttl, later)

    def _item(
        self,
        body: bytes | str,
        headers: Headers | None,
        timeout: float | str | None,
        ttl: float | str | None,
        later: str,
    ) -> Outgoing:
        item = super()._item(body, self.tracing.injected(headers), timeout, ttl, later)
        item.span = self.tracing.current()
        return item


class TracedConsumer(Consumer):
    """A consumer whose receives are spans with links to those that sent."""

    def __init__(self, inbox: Inbox, supply: Supply, tracing: Tracing) -> None:
        super().__init__(inbox, supply)
        self._tracing = tracing

    async def receive(self, *, timeout: float | str | None = None) -> Message | None:
        """Return the next message, as :meth:`Consumer.receive`."""
        began = time.time_ns()
        message = await super().receive(timeout=timeout)
        if message is not None:
            self._tracing.received(message, began)
        return message
