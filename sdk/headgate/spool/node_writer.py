"""Messages without room in memory are sent whole to a node, which writes them to a store and sends references.

An SDK that comes over nodes reaches no store. It marks a batch that found no room: the node takes room in the store,
writes one segment, and puts references in the payloads' place before it calls the script. So there is one answer, as
to any batch, and one batch is under way: order holds.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.core.account.calls import NoStore
from headgate.core.outbox import MAX_BATCH, MAX_BATCH_BYTES, Outbox
from headgate.core.segment import MARKED
from headgate.core.when_full import WhenFull
from headgate.errors import MessageTooLarge
from headgate.spool.overflow import OverflowWriter

AGAIN: Final = 5.0
"""Seconds until payloads are sent again to a store that had no room, where nothing is heard of it."""


@dataclass(frozen=True, slots=True)
class NodeSpooled:
    """The payloads of these messages are for the node to write."""

    references: list[bytes]
    """In the place of references: the payloads."""
    segment: str = MARKED


class NodeWriter(OverflowWriter):
    """A node writer hands the messages of one account to its node.

    Args:
        name: the destination's.
        outbox: the account's line.
        wake: tells the account that something is ready for it.
    """

    def __init__(self, name: str, outbox: Outbox, wake: Callable[[], None]) -> None:
        super().__init__(outbox)
        self._name = name
        self._wake = wake
        self._most = MAX_BATCH
        self._sent = 0
        """How many went at once the last time."""
        self._refused = False
        """Whether these were too many."""

    def seek(self) -> None:
        """Take those that wait out of the line, unless some are out already."""
        if self._outbox.spooling or self.prepared is not None or not self.ready:
            return
        way = self._way
        most_bytes = int(min(MAX_BATCH_BYTES, self._most_bytes))
        items = self._outbox.spool(self._most, most_bytes, self._only(way))
        if items:
            self.prepared = NodeSpooled([item.payload for item in items])
            self._wake()

    def take(self) -> NodeSpooled:
        """Take over what is prepared, in order to publish it."""
        prepared, self.prepared = self.prepared, None
        assert isinstance(prepared, NodeSpooled)  # noqa: S101 -- only what is prepared is taken
        self._sent = len(prepared.references)
        if not self._refused:
            self._most = min(2 * self._most, MAX_BATCH)
        self._refused = False
        self._way.opens()
        return prepared

    def refuse(self, _segment: str, room: int, no_store: NoStore | None) -> None:
        """Note that there is room for only that many references, or none at the store: all are back in line."""
        self.prepared = None  # what came behind is back in line too
        way, now, self._refused = self._way, self._loop.time(), True
        if no_store is None:
            self._most = max(1, room)
            if room < 1:
                way.crowd(now)
            return
        way.when_full = WhenFull.parse(no_store.when_full)
        head = self._outbox.head()
        if no_store.limit is not None and head is not None and head.size > no_store.limit:
            head.done.set_exception(MessageTooLarge(self._name, head.size, no_store.limit))
            head.done.exception()
        elif self._sent > 1:
            self._most = max(1, self._sent // 4)  # there may be room for some of them
        else:
            way.resume_at, way.trouble, way.waits = now + AGAIN, no_store.why, True

    def hear_room(self) -> bool:
        """Note that there may be room for references, or at a store: its node says so."""
        heard = [way for way in self._ways if way.waits]
        for way in heard:
            way.resume_at = 0.0
        return bool(heard)

    def drop(self, segment: str) -> None:
        """Do nothing: the node deletes a segment of which nothing was stored."""

    def discard(self, prepared: NodeSpooled) -> None:
        """Do nothing: nothing was written."""
