"""Messages without room in memory may go to the destination's store, or one of its two.

A destination may have a store for messages that are durable and one for those that are not. They are in one line all
the same: the first in line says which is written to.
"""

import asyncio
import math
from collections.abc import Callable
from typing import Any

from headgate.core.names import decode_name
from headgate.core.outbox import Outbox, Outgoing
from headgate.core.when_full import WhenFull
from headgate.message import is_durable
from headgate.spool.store_access import StoreAccess


class OverflowWriter:
    """The ways of one account's messages to stores.

    Args:
        outbox: the account's line.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.store = ""
        """Name of the store for messages that are durable; empty where there is none at all."""
        self.prepared: Any = None
        """Messages that wait to be published, with what stands for them."""
        self._outbox = outbox
        self._ways: tuple[StoreAccess, StoreAccess] = (StoreAccess(""),) * 2  # of what is durable, and of what is not
        self._loop = asyncio.get_running_loop()
        self._most_bytes = math.inf

    def adopt(self, store: str, nonpersistent: str, most_bytes: float) -> None:
        """Use other stores from now on.

        Args:
            store: encoded name of the store of messages that are durable; empty for none, whatever the other says.
            nonpersistent: that of all others; empty where they have the same.
            most_bytes: that go in one segment.
        """
        self.store = decode_name(store)
        names = (self.store, decode_name(nonpersistent) if store and nonpersistent else self.store)
        ways = {way.store: way for way in self._ways}
        for name in names:
            ways.setdefault(name, StoreAccess(name))
        self._ways = (ways[names[0]], ways[names[1]])
        self._most_bytes = most_bytes
        self.hear_room()

    def hear_room(self) -> bool:
        """Note that there may be room for references again; returns whether that was waited for."""
        heard = [way for way in self._ways if way.crowded]
        for way in heard:
            way.resume_at = 0.0
        return bool(heard)

    def _way_of(self, item: Outgoing) -> StoreAccess:
        lasting, other = self._ways
        if lasting is other:
            return lasting
        if item.durable is None:
            item.durable = is_durable(item.payload if item.whole is None else item.whole)
        return lasting if item.durable else other

    def _only(self, way: StoreAccess) -> Callable[[Outgoing], bool] | None:
        """Return what says of a message whether it goes that way; None where all do."""
        if self._ways[0] is self._ways[1] is way:
            return None
        return lambda item: self._way_of(item) is way

    @property
    def _way(self) -> StoreAccess:
        """The way of the first message that has no credit."""
        if self._ways[0] is self._ways[1] or (front := self._outbox.front()) is None:
            return self._ways[0]
        return self._way_of(front)

    @property
    def ready(self) -> bool:
        """Whether there is a store that may be tried now."""
        return bool(self.store) and self._loop.time() >= self._way.resume_at

    @property
    def resumes_at(self) -> float:
        """When a store that failed may be tried again, on the loop's clock; infinite where there is none."""
        return self._way.resume_at if self.store else math.inf

    @property
    def ahead(self) -> int:
        """Bytes that may wait in line for nothing but the storage: two segments."""
        return self._way.ahead

    @property
    def waits(self) -> bool:
        """Whether the store has no room, or does not take anything: then memory is waited for as well."""
        return self._way.waits

    @property
    def crowded(self) -> bool:
        """Whether there is no room for references: nothing is written until a look at the destination finds some."""
        return self._way.crowded

    @property
    def hurries(self) -> bool:
        """Whether it waits for a store, and messages may be in line that do not wait for ever for theirs."""
        return self.waits and any(way.when_full.patience is not None for way in self._ways)

    def how(self, item: Outgoing) -> WhenFull:
        """Return what is to be done with a message that finds no room at its store either."""
        way = self._ways[0]
        return (way if way is self._ways[1] else self._way_of(item)).when_full

    @property
    def reason(self) -> str:
        """Why nothing goes to the store, empty where that is not known."""
        return self._way.reason

    async def close(self) -> None:
        """Stop; what was not sent goes back in line."""
        self.prepared = None
        self._outbox.unspool()
