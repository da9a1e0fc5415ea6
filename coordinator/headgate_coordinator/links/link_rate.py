"""The rate of the links of a table: buckets in Redis, which all nodes that work on one of them share."""

from collections.abc import Sequence
from typing import Final, Literal

from headgate.core.link import Link, burst_of, rate_bucket
from headgate.errors import CreditTimeout
from headgate.limiting.bucket import Bucket
from headgate.session.session import Session
from headgate_coordinator.links.forwarder import BATCH

Unit = Literal["messages", "bytes"]
PATIENCE: Final = 3600.0
"""Seconds for a slot; who finds none that soon asks again."""


def quantum(link: Link) -> tuple[int, int] | None:
    """Return the messages and bytes that a link asks its rate for at a time; None where it has no rate."""
    if link.rate is None and link.byte_rate is None:
        return None
    return (
        BATCH if link.rate is None else burst_of(link.rate),
        1 << 20 if link.byte_rate is None else burst_of(link.byte_rate),
    )


class LinkRate:
    """What one worker asks of the rate of its link."""

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
        """Wait until so much may go; what is more than the rate has at once is taken bit by bit.

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
