"""What one topic of a channel may send now: its part of a rate that all nodes and topics of the channel share."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from headgate._util.reconnect import until_answered
from headgate.core.channel import USE_WITHIN, Channel
from headgate.redis.keys import Address, session_id
from headgate.redis.store import Store

PATIENCE_MS: Final = 600_000
"""For how long it waits in line, however many topics are before it."""

SOON: Final = 0.05


class Allowance:
    """Takes bytes of the channel's rate, some hundredths of a second's worth at a time, and pays packets with them.

    What is taken and not used in time is lost: else a node that stood still would send what it had at once with what
    it takes next. So in any T seconds at most ``maxrate * T`` and ``most_at_once`` bytes leave all nodes.

    Args:
        store: the scripts.
        namespace: the channel's.
        channel: whose rate it is.
        missing: told each error while Redis does not answer.
    """

    def __init__(
        self, store: Store, namespace: str, channel: Channel, missing: Callable[[BaseException], None]
    ) -> None:
        self._store = store
        self._address = Address.of_channel(namespace, channel.name)
        self._channel = channel
        self._missing = missing
        self._session = session_id("channel")
        self._seq = 0
        self._grants: deque[tuple[float, int]] = deque()
        self._loop = asyncio.get_running_loop()

    async def begin(self, *, ttl_ms: int) -> None:
        """Make the bucket, or let it have the rate that the channel has now."""
        settings = {"kind": "bucket", "rate": repr(self._channel.maxrate), "burst": str(self._channel.burst)}
        await self._store.apply(self._address, settings | {"ledger": "off"}, mode="change", ttl_ms=ttl_ms)

    async def pay(self, size: int, ahead: int) -> None:
        """Wait until so many bytes may be sent, which has to be done at once.

        Args:
            size: of the packet, with its headers.
            ahead: of all packets that are at hand, this one included.
        """
        while self._left() < size:
            missing = ahead - self._left()
            await self._take(max(size, min(missing, self._channel.slice)))
        while size:
            until, left = self._grants.popleft()
            if left > size:
                self._grants.appendleft((until, left - size))
            size = max(0, size - left)

    def _left(self) -> int:
        now = self._loop.time()
        while self._grants and self._grants[0][0] < now:
            self._grants.popleft()
        return sum(left for _, left in self._grants)

    async def _take(self, size: int) -> None:
        self._seq += 1
        first = self._loop.time()
        reserved: tuple[float, float] = await until_answered(self._missing)(self._reserve, size)
        asked, wait = reserved
        earliest = asked + wait if wait > 0 else first  # asked again, it may be long since the slot
        if wait > 0:
            await asyncio.sleep(wait)  # from the answer on, and Redis looked at its clock before: never early
        self._grants.append((earliest + USE_WITHIN, size))

    async def _reserve(self, size: int) -> tuple[float, float]:
        """Return when it was asked, and how long after Redis' answer the slot is."""
        while True:
            asked = self._loop.time()
            code, answers = await self._store.take(
                self._address, self._session, seq=self._seq, line=[(size, PATIENCE_MS)]
            )
            if code == "OK" and answers[0].isdecimal():
                return asked, int(answers[0]) / 1e6
            await self.begin(ttl_ms=1000)  # it is gone, or has the rate of another policy, that some node knew still
            await asyncio.sleep(SOON)
            self._seq += 1
