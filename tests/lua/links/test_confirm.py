"""Senders whose receipts wait for a link hear how far it is."""

from collections.abc import AsyncIterator

import pytest

from tests.lua.place import TTL_MS
from tests.lua.route import LINK, Route
from tests.support.rewriting import RewritingServer, virtual_clock
from tests.support.waiting import wait_until

pytestmark = pytest.mark.docker


@pytest.fixture
async def topic_route(redis_url: str, namespace: str) -> AsyncIterator[Route]:
    server = RewritingServer(redis_url, virtual_clock)
    await server.open()
    route = await Route.make(server, namespace, "topic")
    yield route
    await route.check()
    await route.close()
    await server.close()


async def confirm(route: Route, told: str) -> None:
    await route.source.store.apply(route.source.address, {"confirm": told}, mode="change", ttl_ms=TTL_MS)


async def heard(route: Route, *marks: int) -> list[str]:
    """Return what senders hear while the link releases up to each of these."""
    subscriber = await route.server.subscriber()
    words: list[str] = []
    async with subscriber.pubsub() as pubsub:
        channel = route.source.address.channels("")[1]
        await pubsub.subscribe(channel)
        for mark in marks:
            await route.read(mark)
        await route.server.command(route.source.address.shared[0], "PUBLISH", channel, "over")

        async def over() -> bool:
            message = await pubsub.get_message(timeout=0.01)
            if message and message["type"] == "message":
                words.append(message["data"].decode())
            return "over" in words

        await wait_until(over)
    await subscriber.aclose()
    return words[:-1]


async def test_senders_hear_how_far_the_link_is_that_they_wait_for(topic_route: Route) -> None:
    await confirm(topic_route, f"{LINK} quotes")
    await topic_route.source.producer("ann").send(10, 10, 10)
    await topic_route.read()
    assert await heard(topic_route, 2, 2, 3) == [f"released {LINK} 2", f"released {LINK} 3"]


@pytest.mark.parametrize("told", ["", "link~another quotes", f"{LINK}x quotes"])
async def test_nobody_hears_of_a_link_that_nobody_waits_for(topic_route: Route, told: str) -> None:
    await confirm(topic_route, told)
    await topic_route.source.producer("ann").send(10, 10, 10)
    await topic_route.read()
    assert await heard(topic_route, 2, 3) == []
