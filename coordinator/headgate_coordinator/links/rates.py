"""The rate of links is a bucket in Redis: all nodes that work on the links of one table of the policy share it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Literal

from headgate._util.reconnect import until_answered
from headgate.core.links.channel import USE_WITHIN, Channel
from headgate.core.links.link import Link, burst_of, rate_bucket
from headgate.errors import CreditTimeout
from headgate.limiting.bucket import Bucket
from headgate.redis.keys import Address, session_id
from headgate.redis.store import Store
from headgate.session.session import Session
from headgate_coordinator.links.allowance import Allowance
from headgate_coordinator.links.forwarder import BATCH

Unit = Literal["messages", "bytes"]
PATIENCE: Final = 3600.0
"""Seconds that a link waits for a slot; one that finds none by then asks again."""
PATIENCE_MS: Final = 600_000
"""Milliseconds that a channel waits in line, however many topics are before it."""
SOON: Final = 0.05


def quantum(link: Link) -> tuple[int, int] | None:
    """Return the messages and bytes that a link asks its rate for at a time; None where it has no rate."""
    if link.rate is None and link.byte_rate is None:
        return None
    return (
        BATCH if link.rate is None else burst_of(link.rate),
        1 << 20 if link.byte_rate is None else burst_of(link.byte_rate),
    )


class LinkRate:
    """The rate of a bridge or route, as one worker asks for it."""

    def __init__(self, parts: Sequence[tuple[Unit, Bucket, int]]) -> None:
        self._parts = parts  # unit, bucket, and how much of it may be asked for at once

    @classmethod
    async def open(cls, session: Session, link: Link) -> "LinkRate":
        """Open the buckets of a link.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        rates: dict[Unit, float | None] = {"messages": link.rate, "bytes": link.byte_rate}
        return cls(
            [
                (unit, await session.bucket(rate_bucket(link.kind, link.name, unit)), burst_of(rate))
                for unit, rate in rates.items()
                if rate is not None
            ]
        )

    async def allow(self, messages: int, size: int) -> None:
        """Wait until that may go; an amount beyond the rate's burst is taken bit by bit.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        for unit, bucket, most in self._parts:
            left = messages if unit == "messages" else size
            while left > 0:
                try:
                    await bucket.take(min(most, left), timeout=PATIENCE)
                except CreditTimeout:
                    continue
                left -= most


class ChannelRate:
    """The rate of a channel, as one of its topics takes it: some hundredths of a second's worth at a time.

    An allowance not used in time is lost, so that a node that stood still does not send it with what it takes
    next. In any T seconds at most ``maxrate * T`` and ``most_at_once`` bytes leave all nodes.
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
        self._allowed = Allowance()
        self._loop = asyncio.get_running_loop()

    async def begin(self, *, ttl_ms: int) -> None:
        """Make the bucket, or let it have the rate that the channel has now."""
        settings = {"kind": "bucket", "rate": repr(self._channel.maxrate), "burst": str(self._channel.burst)}
        await self._store.apply(self._address, settings | {"ledger": "off"}, mode="change", ttl_ms=ttl_ms)

    async def pay(self, size: int, ahead: int) -> None:
        """Wait until that many bytes may be sent, which has to be done at once.

        Args:
            size: of the packet, with its headers.
            ahead: of all packets that are at hand, this one included.
        """
        while (left := self._allowed.left(self._loop.time())) < size:
            await self._take(max(size, min(ahead - left, self._channel.slice)))
        self._allowed.use(size)

    async def _take(self, size: int) -> None:
        self._seq += 1
        first = self._loop.time()
        reserved: tuple[float, float] = await until_answered(self._missing)(self._reserve, size)
        asked, wait = reserved
        earliest = asked + wait if wait > 0 else first  # asked again, it may be long since the slot
        if wait > 0:
            await asyncio.sleep(wait)  # from the answer on, and Redis looked at its clock before: never early
        self._allowed.add(size, earliest + USE_WITHIN)

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
