"""What destinations publish to those who use them."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import redis.asyncio

from tests.lua.place import Place
from tests.support.rewriting import RewritingServer
from tests.support.waiting import wait_until


class Ear:
    """Hears what is published on a destination's wake-up channels, or those of a pool."""

    def __init__(self, server: RewritingServer, channel: str, pubsub: redis.asyncio.client.PubSub) -> None:
        self._server, self._channel, self._pubsub = server, channel, pubsub

    async def heard(self) -> list[tuple[str, str]]:
        """Return (session, message) of all that was published until now; everybody's channel is session ''."""
        channel = self._channel
        await self._server.command(channel.encode(), "PUBLISH", f"{channel}:", "end")
        found: list[tuple[str, str]] = []

        async def ended() -> bool:
            message = await self._pubsub.get_message(ignore_subscribe_messages=True, timeout=1)
            if message:
                name = message["channel"].decode().removeprefix(channel).removeprefix(":")
                found.append((name, message["data"].decode()))
            return bool(found) and found[-1] == ("", "end")

        await wait_until(ended, description="what was published")
        return found[:-1]

    @classmethod
    def at(cls, place: Place) -> AbstractAsyncContextManager["Ear"]:
        """Hear what a destination publishes from now on."""
        return cls.on(place.server, f"{place.address.key}:wake")

    @classmethod
    @asynccontextmanager
    async def on(cls, server: RewritingServer, channel: str) -> AsyncIterator["Ear"]:
        """Hear what is published on a channel from now on, and on those below it."""
        client = await server.subscriber()
        pubsub = client.pubsub()
        await pubsub.psubscribe(f"{channel}*")
        await pubsub.get_message(timeout=1)
        yield cls(server, channel, pubsub)
        await pubsub.aclose()  # type: ignore[no-untyped-call]
        await client.aclose()
