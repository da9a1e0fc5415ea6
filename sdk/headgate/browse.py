"""Browsing: the messages of a destination, read without taking them. No credit, no window, nothing is changed."""

import re
from collections.abc import AsyncIterator
from typing import Final

from headgate.errors import InvalidValue
from headgate.message import Stored
from headgate.redis.keys import Address
from headgate.redis.store import Store

PAGE: Final = 100
"""Messages that one call reads where the destination does not say (``browser_window``)."""


class Browsed(Stored):
    """A message that is stored, delivered or not; of a topic, one that some subscription has not settled.

    Attributes:
        expires_ms: ms of Redis' clock at which it expires; None when it does not.
    """

    __slots__ = ("_id", "expires_ms")

    def __init__(self, id: str, stored: bytes, expires_ms: int | None) -> None:  # noqa: A002 - as the attribute
        super().__init__(stored)
        self._id = id
        self.expires_ms = expires_ms

    @property
    def id(self) -> str:
        """What the message is called at its destination."""
        return self._id

    def __repr__(self) -> str:
        return f"Browsed({self.id}, {self.size} bytes)"


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
            last = id_.decode()
            yield Browsed(last, stored, expires_ms)
        if len(entries) < count:
            return
        left = None if left is None else left - count
