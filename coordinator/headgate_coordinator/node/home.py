"""A connection's home is its node, as the connections of the node's clients use it."""

import asyncio
from typing import Any, Protocol

from headgate_coordinator.node import host
from headgate_coordinator.node.claims import LinkClaims
from headgate_coordinator.node.log_throttle import LogThrottle


class ConnectionHome(host.Node, Protocol):
    """A connection's home is the node that it came to.

    Attributes:
        connections: all that it has.
        silent: those that have not logged in, the oldest first.
        claims: durable links that were attached here.
        emptied: set when the last connection is gone.
    """

    connections: set[Any]
    silent: dict[Any, None]
    claims: LinkClaims
    emptied: asyncio.Event

    @property
    def refusals(self) -> LogThrottle:
        """The log of users who are refused."""

    def ways_in(self, *, encrypted: bool, certified: str = "") -> tuple[str, ...]:
        """Return the SASL mechanisms that a client is offered."""

    def refusal(self) -> tuple[str, str] | None:
        """Return why a new connection cannot be served, as an AMQP error; None if it can."""

    def stir(self) -> None:
        """Note that a client may have less under way than before; a node that is about to stop waits for that."""

    def has_too_many(self, newcomer: Any) -> bool:
        """Return whether the user of a connection has more of them than it may."""
