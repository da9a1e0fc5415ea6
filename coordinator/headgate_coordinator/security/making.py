"""The bound on destinations that a user makes over the nodes of a namespace, counted in Redis before each is made."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

from headgate.client import Client
from headgate.core.addresses.pattern import WILDCARDS
from headgate.core.names import decode_name, encode_name
from headgate.errors import HeadgateError
from headgate.redis.keys import Address, made_key
from headgate.redis.scripts import script
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.security.access import Access
from headgate_coordinator.security.permissions import Identity

PAGE: Final = 100
"""Destinations that are looked for at a time."""
REST: Final = 20
"""Times as long as looking for those that are gone took, nobody looks for that user's again."""


class TooManyDestinations(HeadgateError):
    """A user has made as many destinations as it may; this one was not made."""


class Making:
    """Counts what users make where there is nothing. One that is removed, by anybody, makes room for another.

    A user who manages the namespace has no bound, and queues for replies have one of their own.

    Args:
        client: of Redis.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._looked: dict[str, tuple[float, float]] = {}

    @asynccontextmanager
    async def by(self, access: Access, destination: str) -> AsyncIterator[None]:
        """Count a destination for a user while it is made, unless it is there.

        Args:
            access: the user's.
            destination: its address.

        Raises:
            TooManyDestinations: the user has as many as it may.
            InvalidName: nothing can be called so.
            CoordinatorUnavailable: Redis does not answer.
        """
        name, identity = destination.partition("?")[0], access.identity
        named = not is_reply_queue(name) and not any(wildcard in name for wildcard in WILDCARDS)
        if identity is None or access.manages_all or not named or await self._is_there(name):
            yield
            return
        encoded = encode_name(name)
        if not await self._begin(identity, encoded):
            await self._make_room(identity, encoded)
        yield
        await self._call(identity, "done", [encoded])

    async def _is_there(self, name: str) -> bool:
        return await self._client.parts.registry.kind(Address.of(self._client.namespace, name)) is not None

    async def _begin(self, identity: Identity, encoded: str) -> bool:
        return await self._call(identity, "begin", [encoded]) == "OK"

    async def _call(self, identity: Identity, mode: str, names: Sequence[str]) -> str:
        op = script("made")
        argv = op.argv({"mode": mode, "most": identity.max_destinations}, names)
        reply = await self._client.store.server.call(op, (self._key(identity),), argv)
        return str(reply[0].decode())

    def _key(self, identity: Identity) -> bytes:
        return made_key(self._client.namespace, identity.name)

    async def _make_room(self, identity: Identity, encoded: str) -> None:
        """Take out what is gone; one look serves all who waited for it, so that a user who asks on costs little."""
        loop, user = asyncio.get_running_loop(), identity.name
        asked_at = loop.time()
        async with self._locks.setdefault(user, asyncio.Lock()):
            began, rest = self._looked.get(user, (0.0, 0.0))
            if began < asked_at:
                await asyncio.sleep(began + rest - loop.time())
                began = loop.time()
                await self._forget_gone(identity)
                self._looked[user] = began, REST * (loop.time() - began)
            if not await self._begin(identity, encoded):
                raise TooManyDestinations(
                    f"user {user!r} has made {identity.max_destinations} destinations, as many as it may "
                    f"(max_destinations), so {decode_name(encoded)!r} was not made; remove one, or have it made by an "
                    "operator"
                )

    async def _forget_gone(self, identity: Identity) -> None:
        server, key = self._client.store.server, self._key(identity)
        names = [name.decode() for name in await server.command(key, "ZRANGE", key, 0, -1)]
        for at in range(0, len(names), PAGE):
            page = names[at : at + PAGE]
            keys = [Address.of(self._client.namespace, decode_name(name)).shared[0] for name in page]
            kinds = await server.burst([(key, (b"HGET", key, "kind")) for key in keys])
            if gone := [name for name, kind in zip(page, kinds, strict=True) if kind is None]:
                await self._call(identity, "gone", gone)
