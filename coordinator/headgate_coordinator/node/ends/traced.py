"""Deliveries to a client with spans in the traces of their messages, from when they go until they are settled."""

from typing import Any

from headgate.message import Message
from headgate.spans import Span, Tracing


class Deliveries(dict[Any, Message]):
    """`Deliveries` holds a link's unsettled deliveries by id: a span begins with each, and ends as it is taken out."""

    def __init__(self, tracing: Tracing) -> None:
        super().__init__()
        self._tracing = tracing
        self._spans: dict[Any, Span] = {}

    def __setitem__(self, delivery: Any, message: Message) -> None:
        super().__setitem__(delivery, message)
        span = self._tracing.hop("transfer", message.destination, message.stored)
        if span is not None:
            span.set("messaging.message.id", message.id)
            self._spans[delivery] = span

    def __delitem__(self, delivery: Any) -> None:
        self.pop(delivery)

    def pop(self, delivery: Any, *default: Any) -> Any:
        """Take a delivery out."""
        if (span := self._spans.pop(delivery, None)) is not None:
            span.end()
        return super().pop(delivery, *default)

    def clear(self) -> None:
        """Take all deliveries out."""
        for delivery in tuple(self):
            self.pop(delivery)
