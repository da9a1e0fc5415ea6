"""A slice is lent what it may deliver of a rate that all slices share, for messages that are there."""

from collections.abc import Callable
from typing import Any

from headgate.consuming.delivery_line import DeliveryLine
from headgate.consuming.sink import Sink
from headgate.context import Context
from headgate.core.fetching import Fetching
from headgate.redis.keys import Address


class LentDeliveries:
    """A feed has what its slice lacks of the rate fetched here, beside its calls, so that settlements go on.

    Args:
        context: of its session.
        address: the slice.
        machine: looks again when more may be delivered.
        sink: hears then that nothing is to be had now.
        wake: has the feed make what is due.
    """

    __slots__ = ("_address", "_context", "_line", "_machine", "_sink", "_wake")

    def __init__(
        self, context: Context, address: Address, machine: Fetching[Any], sink: Sink, wake: Callable[[], None]
    ) -> None:
        self._context, self._address = context, address
        self._machine, self._sink, self._wake = machine, sink, wake
        self._line: DeliveryLine | None = None
        """In which it stood once: most feeds never lack anything."""

    @property
    def session(self) -> str:
        """Its session."""
        return self._context.session

    def draw(self, lacks: tuple[int, ...]) -> bool:
        """Fetch what an answer says that the slice lacks; returns whether there may be some at once."""
        if lacks:
            need, want = lacks
            if self._line is None:
                self._line = DeliveryLine.at(self._address, self._context.rates, self._context.delivery_lines)
            return self._line.stand(self, need, want)
        if self._line is not None:
            self._line.leave(self)
        return False

    def lent(self) -> None:
        """Fetch, for the slice has some."""
        self._machine.look_at = 0.0
        self._wake()

    def short(self) -> None:
        """Note that nothing is to be had now."""
        self._sink.delivered(found_all=True)
        self._wake()

    async def close(self) -> None:
        """Ask for nothing more."""
        if self._line is not None:
            await self._line.close(self)
