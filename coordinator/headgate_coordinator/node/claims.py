"""Links by the names that their clients gave them: an attach takes a link over from where it was attached before."""

from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from headgate_coordinator.node.ends.end import LinkEnd

STOLEN: Final = "amqp:link:stolen"


class Claims:
    """The links of one node. A user, a container, a direction and a name say which link is meant (2.6.1)."""

    def __init__(self) -> None:
        self._ends: WeakValueDictionary[tuple[str, str, bool, str], LinkEnd] = WeakValueDictionary()

    def take(self, end: "LinkEnd") -> None:
        """Note a link; one that is meant by the same name ends, as its client has come back elsewhere.

        What it held comes again: as a failed attempt if it was over another connection, which its client has lost.
        """
        connection, link = end.connection, end.link
        container = connection.engine.peer
        if not container or not link.name:
            return
        user = connection.identity.name if connection.identity else ""
        key = (user, container, link.receives, link.name)
        before = self._ends.get(key)
        self._ends[key] = end
        if before is not None and before is not end and before.link.alive:
            elsewhere = before.connection is not connection
            where = "another connection" if elsewhere else "another session"
            before.fail(
                STOLEN, f"container {container!r} has attached its link {link.name!r} to {where}", lost=elsewhere
            )
