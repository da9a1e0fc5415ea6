"""A client has a tracer and meters: found where a provider is set, and what is recorded with them."""

import sys
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.message import Headers, Message, Stored
from headgate.spans.span import Span
from headgate.waits import Wait

MOST_LINKS: Final = 128
"""Of one span, as OpenTelemetry keeps them by default."""
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


class Tracing:
    """`Tracing` holds the tracer and the meters of one client."""

    def __init__(self) -> None:
        from opentelemetry import metrics, trace
        from opentelemetry.propagate import inject

        own = version("headgate")
        self.trace, self._inject = trace, inject
        self.tracer = trace.get_tracer("headgate", own)
        meter = metrics.get_meter("headgate", own)
        self._waits = meter.create_histogram("headgate.wait.duration", "s", "How long callers waited.")
        self.operations = meter.create_histogram(
            "messaging.client.operation.duration", "s", "How long sends, receives and settlements took."
        )

    def injected(self, headers: Headers | None) -> dict[str, Any]:
        """Return headers with the context of the current span."""
        carrier = dict(headers or {})
        self._inject(carrier)
        return carrier

    def links(self, messages: Iterable[Message]) -> list[Any]:
        """Return links to the spans that sent messages, as far as these name any."""
        senders = (self._sender(message)[0] for message in messages)
        return [self.trace.Link(sender) for sender in senders if sender is not None][:MOST_LINKS]

    def hop(self, operation: str, destination: str, stored: bytes, began: int | None = None) -> "Span | None":
        """Begin the span of a message's way through a node or over a link, in its trace; None where it has none."""
        sender, context = self._sender(Stored(stored))
        return None if sender is None else Span(self, operation, destination, "INTERNAL", context=context, began=began)

    def _sender(self, message: Stored) -> tuple[Any, Any]:
        """Return the span that sent a message, and its context; None where none is named, or it cannot be read."""
        try:
            context = context_of(message.headers)
        except HeadgateError:  # whoever reads it hears that
            return None, None
        span = self.trace.get_current_span(context).get_span_context()
        return (span, context) if span.is_valid else (None, None)

    def settled(self, destination: str, outcomes: Iterable[tuple[Any, Any, Any]], began: int) -> None:
        """Note a call that settled messages: outcome, message and whoever waits, of each; ``began`` is in ns."""
        messages = [message for _, message, _ in outcomes]
        span = Span(self, "settle", destination, "CLIENT", links=self.links(messages), began=began)
        span.set("messaging.batch.message_count", len(messages))
        span.end()

    def heard(self, wait: Wait) -> None:
        """Count a wait; one for credit is an event of its send's span, any other a span of its own."""
        attributes = {
            "headgate.destination": wait.destination,
            "headgate.wait.kind": wait.kind,
            "headgate.wait.outcome": wait.outcome,
        }
        self._waits.record(wait.seconds, attributes)
        if wait.kind == "credit":
            if wait.span is not None and wait.span.is_recording():  # whoever gave up has ended it
                wait.span.add_event("headgate.wait", attributes | {"headgate.wait.seconds": wait.seconds})
            return
        now = time.time_ns()
        began = now - int(wait.seconds * 1e9)
        span = self.tracer.start_span(f"admit {wait.destination}", start_time=began, attributes=attributes)
        if wait.error is not None:
            span.set_attribute("error.type", type(wait.error).__qualname__)
            span.set_status(self.trace.StatusCode.ERROR, str(wait.error))
        span.end(now)
