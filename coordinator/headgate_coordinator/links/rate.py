"""The rate of the links of a table: buckets in Redis, which all nodes that work on one of them share."""

from typing import Final

from headgate.bucket import Bucket
from headgate.core.forwarding import BATCH
from headgate.core.link import Link, burst_of, rate_bucket
from headgate.errors import CreditTimeout
from headgate.session import Session

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

    def __init__(self, messages: Bucket | None, size: Bucket | None, link: Link) -> None:
        self._parts = [
            (bucket, burst_of(rate))
            for bucket, rate in ((messages, link.rate), (size, link.byte_rate))
            if bucket is not None and rate is not None
        ]
        self._has_messages = messages is not None

    @classmethod
    async def open(cls, session: Session, link: Link) -> "LinkRate":
        """Open the buckets of a link.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        messages = await session.bucket(rate_bucket(link.kind, link.name, "messages")) if link.rate else None
        size = await session.bucket(rate_bucket(link.kind, link.name, "bytes")) if link.byte_rate else None
        return cls(messages, size, link)

    async def allow(self, messages: int, size: int) -> None:
        """Wait until so much may go; what is more than the rate has at once is taken bit by bit.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        amounts = (messages, size) if self._has_messages else (size,)
        for (bucket, most), amount in zip(self._parts, amounts, strict=False):
            left = amount
            while left > 0:
                try:
                    await bucket.take(min(most, left), timeout=PATIENCE)
                except CreditTimeout:
                    continue
                left -= most
