"""A span records one operation on messages."""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Final, Self

SYSTEM: Final = "headgate"


class Span:
    """One operation on messages, as the semantic conventions have it: a span, and its time in the histogram.

    As a block it is the current span, and ends with it.

    Args:
        tracing: of the client, :class:`~headgate.spans.Tracing`.
        operation: its name.
        destination: of the messages.
        kind: as OpenTelemetry calls it.
        context: that it is in; the current one when None.
        links: to other spans.
        began: when, in ns since the epoch; now when None.
        ends: whether it ends with the block; else with :meth:`end`, unless the block fails.
    """

    def __init__(
        self, tracing: Any, operation: str, destination: str, kind: str, *, context: Any = None,
        links: Iterable[Any] = (), began: int | None = None, ends: bool = True,
    ) -> None:  # fmt: skip
        self._tracing, self._ends = tracing, ends
        self._began = time.time_ns() if began is None else began
        self._measured = {
            "messaging.system": SYSTEM,
            "messaging.destination.name": destination,
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
        }
        self.span = tracing.tracer.start_span(
            f"{operation} {destination}", context, kind=tracing.trace.SpanKind[kind], links=list(links),
            start_time=self._began, attributes=self._measured,
        )  # fmt: skip
        self._scope = tracing.trace.use_span(self.span)

    def set(self, name: str, value: Any) -> None:
        """Set an attribute."""
        self.span.set_attribute(name, value)

    def end(self, error: BaseException | None = None) -> None:
        """End it, now; with the error that the operation failed with."""
        if error is not None:
            self._measured["error.type"] = type(error).__qualname__
            self.set("error.type", type(error).__qualname__)
            self.span.set_status(self._tracing.trace.StatusCode.ERROR, str(error))
        now = time.time_ns()
        self._tracing.operations.record((now - self._began) / 1e9, self._measured)
        self.span.end(now)

    def __enter__(self) -> Self:
        self._scope.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._scope.__exit__(kind, error, trace)
        if self._ends or error is not None:
            self.end(error)
