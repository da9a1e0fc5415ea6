"""What destinations publish to those who use them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio

from tests.lua.place import Place
from tests.support.waiting import wait_until


class Ear:
    """Hears what is published on the destination's wake-up channels."""

    def __init__(self, place: Place, pubsub: redis.asyncio.client.PubSub) -> None:
        self._place, self._pubsub = place, pubsub

    async def heard(self) -> list[tuple[str, str]]:
        """Return (session, message) of all that was published until now; everybody's channel is session ''."""
        channel = f"{self._place.address.key}:wake"
        await self._place.server.command(channel.encode(), "PUBLISH", f"{channel}:", "end")
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
    @asynccontextmanager
    async def at(cls, place: Place) -> AsyncIterator["Ear"]:
        """Hear what is published from now on."""
        client = await place.server.subscriber()
        pubsub = client.pubsub()
        await pubsub.psubscribe(f"{place.address.key}:wake*")
        await pubsub.get_message(timeout=1)
        yield cls(place, pubsub)
        await pubsub.aclose()  # type: ignore[no-untyped-call]
        await client.aclose()
