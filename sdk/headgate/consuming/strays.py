"""Redis counts a stray as held by a consumer that does not know it: a failover lost its settlement."""

import logging
from typing import Final

from headgate.core.fetching import Fetching
from headgate.errors import AccessDenied, DestinationDamaged
from headgate.message import Message
from headgate.namespace.losses import LossListeners
from headgate.redis.keys import PARTS, Address
from headgate.redis.store import Store

_log: Final = logging.getLogger("headgate")
PAGE: Final = 256
"""Ids looked at in one step."""
_MESSAGES: Final = 1 + PARTS.index("messages")


class StrayDeliveries:
    """Strays are given back in a new epoch: deliveries that Redis counts as held and the consumer does not know.

    It settled them before, and Redis lost that; or the answer that brought them was lost with a connection. Nobody else
    would get them while the consumer lives.

    Attributes:
        epoch: of the last answer.
        after: id after which to look; None while nothing is in doubt.
    """

    __slots__ = ("_address", "_losses", "_store", "_subscription", "after", "epoch")

    def __init__(self, store: Store, losses: LossListeners, address: Address, subscription: str) -> None:
        self._store = store
        self._losses = losses
        self._address = address
        self._subscription = subscription
        self.epoch = 0
        self.after: bytes | None = None

    def forget(self) -> None:
        """Forget the epoch: the destination was removed, so another begins with it."""
        self.epoch = 0

    def attached(self, epoch: int) -> None:
        """Note the epoch in which the consumer was attached; it holds nothing yet."""
        self._met(epoch)
        self.after = None

    def answered(self, epoch: int) -> None:
        """Note the epoch of an answer; in a new one all that the consumer holds is in doubt."""
        if epoch != self.epoch:
            self._met(epoch)
            self.after = b""

    def _met(self, epoch: int) -> None:
        before, self.epoch = self.epoch, epoch
        if before and before != epoch:
            self._losses.meet(self._address, epoch)

    async def give_back(self, session: str, consumer: str, machine: Fetching[Message], ttl_ms: int) -> bool:
        """Look at some of what the consumer holds, and give back what it does not know; returns whether it did."""
        key = self._address.shared[_MESSAGES]
        start = b"(" + self.after if self.after else b"-"
        words = ("XPENDING", key, self._subscription, start, b"+", PAGE, consumer)
        try:
            entries = await self._store.server.command(key, *words)
        except AccessDenied as error:  # by an ACL, or by an older node: all else goes on
            _log.warning("what consumer %s holds cannot be compared with what it settled: %s", consumer, error)
            self.after = None
            return False
        except DestinationDamaged:  # removed, and perhaps made anew without it: then it holds nothing
            self.after = None
            return False
        unknown = [entry[0] for entry in entries if entry[0] not in machine.held]
        if unknown:  # untried: by whom it was tried, and how often, nobody knows any more
            machine.fetches += 1  # so that this changes nothing where it comes once more, and late
            await self._store.settle(
                self._address, session, consumer, ttl_ms=ttl_ms, fetch=machine.fetches, released=unknown
            )
        self.after = entries[-1][0] if len(entries) == PAGE else None
        return bool(unknown)
