"""Says how much of a node one connection may take, by what its user may do at all.

A client that may send has messages of full size under way. One that may not needs none. One that may do nothing
is served as a stranger is: it learns that it has no rights, and holds next to nothing of the node.
"""

import functools
from dataclasses import dataclass, replace
from typing import Final

from headgate.amqp.calls import CREDIT, MAX_CALL
from headgate.amqp.limits import Limits
from headgate_coordinator.security import Action, Identity


@dataclass(frozen=True, slots=True)
class ConnectionShare:
    """A connection share sets the limits of one connection.

    Attributes:
        calls: bytes of one AMQP message with calls of an SDK.
        credit: such messages under way, beside one for a ping.
        at_once: calls that Redis is busy with at a time: nobody else waits behind more of them.
        ahead: bytes of answers that may wait for the client to read; while there are more, nothing more is done for it.
        message: bytes of a message, and of all that have come in part; None for what the node's options say.
        links: links at a time; None likewise.
        described: bytes of filters and capabilities; None likewise.
        frame: bytes of a frame; None likewise. The content of one may take seventy times as much in memory.
    """

    calls: int = MAX_CALL
    credit: int = CREDIT
    at_once: int = 32
    ahead: int = 4 << 20
    message: int | None = None
    links: int | None = None
    described: int | None = None
    frame: int | None = None

    def limits(self, most: Limits) -> Limits:
        """Return the limits of the connection, out of the most that anybody has at this node."""
        return _limits(self, most)


@functools.lru_cache(16)  # one for all connections
def _limits(share: ConnectionShare, most: Limits) -> Limits:
    message = most.message if share.message is None else min(share.message, most.message)
    return replace(
        most,
        message=message,
        unfinished=most.unfinished if share.message is None else message,
        links=most.links if share.links is None else min(share.links, most.links),
        described=most.described if share.described is None else min(share.described, most.described),
        frame=most.frame if share.frame is None else min(share.frame, most.frame),
    )


SENDS: Final = ConnectionShare()
READS: Final = ConnectionShare(calls=4 << 20, message=1 << 20)
NOTHING: Final = ConnectionShare(
    calls=8 << 10, credit=2, at_once=1, ahead=64 << 10, message=64 << 10, links=16, described=2 << 10, frame=8 << 10
)
REFUSALS: Final = 100
"""Links that a connection is refused whose user has no grant; then it is closed."""


def standing_of(identity: Identity | None) -> ConnectionShare:
    """Return the standing of a user as its grants are now."""
    if identity is None or not identity.actions:
        return NOTHING
    return READS if identity.actions.isdisjoint((Action.PRODUCE, Action.MANAGE)) else SENDS
