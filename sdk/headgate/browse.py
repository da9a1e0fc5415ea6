"""Browsing: the messages of a destination, read without taking them. No credit, no window, nothing is changed."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any, Final

from headgate.errors import InvalidValue
from headgate.message import decode
from headgate.redis.keys import Address
from headgate.redis.store import Store

PAGE: Final = 100
"""Messages that one call reads where the destination does not say (``browser_window``)."""


@dataclass(frozen=True, slots=True)
class Browsed:
    """A message that is stored, delivered or not; of a topic, one that some subscription has not settled.

    Attributes:
        id: what it is called at its destination.
        body: bytes, or text if it was sent as text.
        headers: as they were sent.
        size: bytes as stored.
        expires_ms: ms of Redis' clock at which it expires; None when it does not.
    """

    id: str
    body: bytes | str
    headers: dict[str, Any]
    size: int
    expires_ms: int | None


async def browse(
    store: Store, address: Address, *, after: str | None = None, limit: int | None = None
) -> AsyncIterator[Browsed]:
    """Yield stored messages, oldest first, a page at a time; see :meth:`Client.browse`."""
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise InvalidValue(f"limit: {limit!r}; use a number from 1, or None for all")
    last = after
    if after is not None and not re.fullmatch(r"\d{1,16}-\d{1,16}", after, re.ASCII):
        raise InvalidValue(f"after: {after!r}; use the id of a message")
    snapshot = await store.snapshot(address, waiters=0, consumers=1)
    page = int((snapshot.fields if snapshot else {}).get("browser_window") or PAGE)
    left = limit
    while left is None or left > 0:
        count = page if left is None else min(page, left)
        entries = await store.browse(address, after=last, count=count)
        for id_, stored, expires_ms in entries:
            body, headers = decode(stored)
            last = id_.decode()
            yield Browsed(last, body, headers, len(stored), expires_ms)
        if len(entries) < count:
            return
        left = None if left is None else left - count
