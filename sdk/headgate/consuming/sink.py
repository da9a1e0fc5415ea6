"""A feed's port, the sink, takes its messages and says how many are wanted."""

from typing import Protocol

from headgate.core.window import Demand
from headgate.message import Holder, Message


class Sink(Demand, Protocol):
    """Takes what a feed fetches: the inbox of a user's consumer, or a client's link at a node."""

    @property
    def received(self) -> int:
        """How often a message was asked for; a sink at which that stands still is idle."""

    @property
    def started(self) -> bool:
        """Whether a message was ever asked for; until then operators see the consumer as paused."""

    def deliver(self, message: Message) -> None:
        """Take a message; it is held until it is settled."""

    def delivered(self, *, found_all: bool) -> None:
        """Note that an answer of Redis was delivered; ``found_all``: nothing is left at the destination."""

    def recalled(self) -> None:
        """Note that a message was delivered whose payload came from a store."""

    def take_back(self, holder: Holder, most: int) -> list[Message]:
        """Take out up to ``most`` messages of one holder that nobody has begun, the newest first."""

    def clear(self) -> None:
        """Forget the messages that nobody has begun: they are settled, or others'."""

    def expired(self) -> None:
        """Note that all that was delivered is others' now."""

    def stir(self) -> None:
        """Have those who wait look again: the feed is denied."""

    def close(self) -> None:
        """Have those who wait look again: the feed failed or was closed."""
