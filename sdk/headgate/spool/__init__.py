"""Spool: payloads in shared storage where memory is full, and only references in the stream."""

from headgate.errors import HeadgateError
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address
from headgate.redis.store import Store
from headgate.spool.reader import PayloadReader
from headgate.spool.stores import Spools
from headgate.spool.sweep import Sweeper

__all__ = ["Spooling"]


class Spooling:
    """`Spooling` holds all that one client needs of spool stores.

    Attributes:
        spools: the stores.
        reader: reads payloads back.
        reaches: whether the stores can be reached from here; over nodes it is they that read payloads.
        sweeper: deletes segments whose messages are gone.
    """

    def __init__(self, store: Store, wake_ups: WakeUps, namespace: str, ttl_ms: int) -> None:
        self._store = store
        self.spools = Spools(store, wake_ups, namespace, ttl_ms)
        self.reaches = store.server.reaches_stores
        self.reader = PayloadReader(self.spools, reaches=self.reaches)
        self.sweeper = Sweeper(self.spools)

    async def has(self, address: Address, message: str) -> bool:
        """Return whether a message is still there; so it is where Redis does not answer."""
        try:
            return await self._store.stored(address, message) is not None
        except HeadgateError:
            return True

    async def close(self) -> None:
        """Stop."""
        await self.sweeper.close()
        await self.spools.close()
