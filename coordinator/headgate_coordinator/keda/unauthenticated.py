"""Some requests say in their message who asks: strangers who begin many and say nothing keep nobody out."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from headgate import InvalidValue
from headgate_coordinator.rpc import AT_A_TIME, peer_of
from headgate_coordinator.security.password_queue import Network

MOST: Final = 32
"""Requests of one network that have begun and not sent anything."""
WITHIN: Final = 5.0
"""Seconds that a request has to say it."""


class UnreadRequests:
    """The requests at a node that have begun and not sent anything."""

    def __init__(self) -> None:
        self._begun: Counter[Network] = Counter()

    async def message(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        """Return what a request says, or end it: too many of its network say nothing, or it was not sent in time."""
        peer = peer_of(context)
        if self._begun[peer] >= MOST or self._begun.total() >= AT_A_TIME // 2:
            await context.abort(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "too many requests have begun without sending anything"
            )
        self._begun[peer] += 1
        try:
            async with asyncio.timeout(WITHIN):
                return await anext(requests)
        except (TimeoutError, StopAsyncIteration):
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, f"nothing was sent within {WITHIN:g} s")
            raise
        finally:
            self._begun -= Counter([peer])  # which forgets those that have none


def parsed(of: Any, content: bytes) -> Any:
    """Return a message of that sort.

    Raises:
        InvalidValue: it is none.
    """
    try:
        return of.FromString(content)
    except (DecodeError, UnicodeDecodeError):
        raise InvalidValue(f"it is not a {of.DESCRIPTOR.name}") from None
