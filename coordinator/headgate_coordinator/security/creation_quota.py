"""The bounds on destinations and on subscriptions by pattern that a user makes over the nodes of a namespace.

Each is counted in Redis before it is made.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from headgate.client import Client
from headgate.core.limits.user_limit import UserLimit
from headgate.core.names import decode_name, encode_name, whole_name
from headgate.errors import CoordinatorUnavailable, HeadgateError
from headgate.namespace.topics import WildcardSubscription, is_pattern, read_pattern
from headgate.redis.backend import call
from headgate.redis.keys import Address, index_keys, made_key
from headgate.session.other_slices import has_other_slices
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.grants import Identity

PAGE: Final = 100
"""Destinations that are looked for at a time."""
REST: Final = 20
"""Times as long as looking for those that are gone took, nobody looks for that user's again."""
PATTERNS: Final = 1000
"""Subscriptions by pattern that a user may have made: whoever opens a topic reads all that a namespace has."""


class TooManyDestinations(HeadgateError):
    """A user has made as many destinations, or subscriptions by pattern, as it may; this one was not made."""


@dataclass(frozen=True, slots=True)
class _Count:
    """A count tells what one user made: under which key, at most how many, and how to find those that are gone."""

    key: bytes
    most: int
    what: str
    gone: Callable[[Sequence[str]], Awaitable[list[str]]]


class CreationQuota:
    """Counts what users make where there is nothing. One that is removed, by anybody, makes room for another.

    A user who manages the namespace has no bound, and queues for replies have one of their own.

    Args:
        client: of Redis.
        quota_of: returns a user's quota by the policy, which goes before the user's own bound.
    """

    def __init__(self, client: Client, quota_of: Callable[[str], UserLimit | None] = lambda _user: None) -> None:
        self._client = client
        self._quota_of = quota_of
        self._locks: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._looked: dict[bytes, tuple[float, float]] = {}

    @asynccontextmanager
    async def by(self, access: Access, destination: str, subscription: str | None = None) -> AsyncIterator[None]:
        """Count a destination, or a subscription by pattern, for a user while it is made, unless it is there.

        Args:
            access: the user's.
            destination: its address, or a pattern.
            subscription: its name, where it is by pattern and may outlive who makes it; else a pattern is not counted.

        Raises:
            TooManyDestinations: the user has as many as it may.
            InvalidName: nothing can be called so.
            CoordinatorUnavailable: Redis does not answer.
        """
        name, identity = whole_name(destination.partition("?")[0]), access.identity
        if identity is None or access.manages_all or is_reply_queue(name):
            yield
            return
        by_pattern = is_pattern(name)
        if by_pattern:
            entry = (
                WildcardSubscription(read_pattern(name), subscription, durable=True, ttl_ms=0).name
                if subscription
                else ""
            )
            there, counted = not entry or await self._is_subscribed(entry), _digest(entry)
        else:
            there, counted = await self._is_there(destination.partition("?")[0]), encode_name(name)
        if there:
            yield
            return
        count = self._count(identity, by_pattern=by_pattern)
        if not await self._begin(count, counted):
            await self._make_room(identity, count, counted, name)
        yield
        await self._call(count, "done", [counted])

    def _count(self, identity: Identity, *, by_pattern: bool) -> _Count:
        key = made_key(self._client.namespace, identity.name)
        if by_pattern:
            return _Count(key + b"*", PATTERNS, "subscriptions by pattern", self._gone_patterns)
        quota = self._quota_of(identity.name)
        most = identity.max_destinations if quota is None or quota.destinations is None else quota.destinations
        return _Count(key, most, "destinations", self._gone_destinations)

    async def _is_there(self, name: str) -> bool:
        """Return whether a destination is there, or the one that this is a slice of; others answer for the first."""
        registry, address = self._client.parts.registry, Address.of(self._client.namespace, name)
        try:
            return bool(await registry.kind(address) or await registry.kind(address.whole))
        except CoordinatorUnavailable:
            if await has_other_slices(registry, address.whole):
                return True
            raise

    async def _is_subscribed(self, entry: str) -> bool:
        key = index_keys(self._client.namespace)[0]
        return bool(await self._client.store.server.command(key, "HEXISTS", key, entry))

    async def _begin(self, count: _Count, encoded: str) -> bool:
        return await self._call(count, "begin", [encoded]) == "OK"

    async def _call(self, count: _Count, mode: str, names: Sequence[str]) -> str:
        reply = await call(self._client.store.server, "made", (count.key,), names, mode=mode, most=count.most)
        return str(reply[0].decode())

    async def _make_room(self, identity: Identity, count: _Count, encoded: str, name: str) -> None:
        """Take out what is gone; one look serves all who waited for it, so that a user who asks on costs little."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        async with self._locks.setdefault(count.key, asyncio.Lock()):
            began, rest = self._looked.get(count.key, (0.0, 0.0))
            if began < asked_at:
                await asyncio.sleep(began + rest - loop.time())
                began = loop.time()
                await self._forget_gone(count)
                self._looked[count.key] = began, REST * (loop.time() - began)
            if not await self._begin(count, encoded):
                bound = " (max_destinations)" if count.key == made_key(self._client.namespace, identity.name) else ""
                raise TooManyDestinations(
                    f"user {identity.name!r} has made {count.most} {count.what}, the most allowed{bound}, so {name!r} "
                    "was not made; remove one, or have an operator make it"
                )

    async def _forget_gone(self, count: _Count) -> None:
        found = await self._client.store.server.command(count.key, "ZRANGE", count.key, 0, -1)
        gone = await count.gone([name.decode() for name in found])
        for at in range(0, len(gone), PAGE):
            await self._call(count, "gone", gone[at : at + PAGE])

    async def _gone_destinations(self, names: Sequence[str]) -> list[str]:
        gone = []
        for at in range(0, len(names), PAGE):
            page = names[at : at + PAGE]
            keys = [Address.of(self._client.namespace, decode_name(name)).shared[0] for name in page]
            kinds = await self._client.store.server.burst([(key, (b"HGET", key, "kind")) for key in keys])
            gone += [name for name, kind in zip(page, kinds, strict=True) if kind is None]
        return gone

    async def _gone_patterns(self, digests: Sequence[str]) -> list[str]:
        key = index_keys(self._client.namespace)[0]
        there = {_digest(name.decode()) for name in await self._client.store.server.command(key, "HKEYS", key)}
        return [digest for digest in digests if digest not in there]


def _digest(entry: str) -> str:
    """Return what stands for a subscription by pattern among what was counted, which takes no wildcards."""
    return hashlib.sha256(entry.encode()).hexdigest()
