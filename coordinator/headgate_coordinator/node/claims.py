"""Links by the names that their clients gave them: an attach takes a link over from where it was attached before."""

import hashlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from headgate_coordinator.node.ends.end import LinkEnd

STOLEN: Final = "amqp:link:stolen"
ANNOUNCED_FOR: Final = 120.0
"""Seconds for which other nodes hear of an attach: what it took over has ended by itself then, silent as it was."""
MOST_ANNOUNCED: Final = 500
"""Attaches that other nodes hear of, the latest."""
Key = tuple[str, str, bool, str]


class LinkClaims:
    """`LinkClaims` keeps the links of one node.

    A user, a container, a direction and a name say which link is meant (2.6.1).
    """

    def __init__(self) -> None:
        self._ends: WeakValueDictionary[Key, LinkEnd] = WeakValueDictionary()
        self._durable: dict[Key, float] = {}
        """When links to durable subscriptions were attached, in seconds since 1970."""

    def take(self, end: "LinkEnd") -> None:
        """Note a link; one that is meant by the same name ends, as its client has come back elsewhere.

        The messages it held come again: as failed attempts if they went over another connection, which is lost.
        """
        connection, link = end.connection, end.link
        container = connection.engine.peer
        if not container or not link.name:
            return
        user = connection.identity.name if connection.identity else ""
        key = (user, container, link.receives, link.name)
        before = self._ends.get(key)
        self._ends[key] = end
        if link.source.durable and not link.receives:
            self._durable[key] = time.time()
        if before is not None and before is not end and before.link.alive:
            elsewhere = before.connection is not connection
            where = "another connection" if elsewhere else "another session"
            before.fail(
                STOLEN, f"container {container!r} has attached its link {link.name!r} to {where}", lost=elsewhere
            )

    @property
    def any_durable(self) -> bool:
        """Whether there are links to durable subscriptions: only these are taken over from other nodes."""
        for key in tuple(self._durable):
            if (end := self._ends.get(key)) is None or not end.link.alive:
                del self._durable[key]
        return bool(self._durable)

    def recent(self) -> dict[str, float]:
        """Return what other nodes are to hear: durable links that were attached lately, and when."""
        if not self.any_durable:
            return {}
        since = time.time() - ANNOUNCED_FOR
        lately = [(at, key) for key, at in self._durable.items() if at > since]
        return {_digest(key): round(at, 3) for at, key in sorted(lately)[-MOST_ANNOUNCED:]}

    def give_way(self, elsewhere: Mapping[str, float]) -> None:
        """End the durable links that :meth:`recent` of another node says were attached there later."""
        for key, at in tuple(self._durable.items()):
            end = self._ends.get(key)
            if end is not None and end.link.alive and elsewhere.get(_digest(key), 0.0) > at:
                end.fail(STOLEN, f"container {key[1]!r} has attached its link {key[3]!r} to another node", lost=True)


def _digest(key: Key) -> str:
    return hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()
