"""Users of a namespace: changed over the version that their author saw, once; told to everybody."""

from collections.abc import AsyncIterator

import pytest
import redis.asyncio

from headgate.redis.keys import namespace_channel, users_key
from headgate.redis.scripts import script
from headgate.redis.server import Server
from headgate.redis.url import parse_url
from tests.support.rewriting import RewritingServer, watched
from tests.support.waiting import wait_until

pytestmark = pytest.mark.docker


class Desk:
    def __init__(self, server: Server, namespace: str) -> None:
        self.server = server
        self.key = users_key(namespace).encode()

    async def switch(self, expected: object, version: int, **users: str) -> tuple[str, int]:
        op = script("users")
        rest = [text for pair in users.items() for text in pair]
        code, found = await self.server.call(op, (self.key,), op.argv({"expected": expected, "version": version}, rest))
        return code.decode(), int(found)

    async def read(self) -> dict[str, str]:
        flat = [text.decode() for text in await self.server.command(self.key, "HGETALL", self.key)]
        return dict(zip(flat[::2], flat[1::2], strict=True))


@pytest.fixture
async def desk(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Desk]:
    server = Server(parse_url(redis_url))
    await server.open()
    yield Desk(server, cleanup_namespace)
    await server.close()


async def test_users_come_change_and_go(desk: Desk) -> None:
    assert await desk.switch(0, 1, ann="a", bob="b") == ("OK", 1)
    assert await desk.switch(1, 2, ann="", bob="c") == ("OK", 2)
    assert await desk.read() == {"bob": "c", "!version": "2"}
    assert await desk.switch(2, 3, bob="") == ("OK", 3)
    assert await desk.read() == {"!version": "3"}, "that there were users is not forgotten"


async def test_only_over_the_version_that_was_seen(desk: Desk) -> None:
    await desk.switch(0, 1, ann="a")
    await desk.switch(1, 2, ann="b")
    assert await desk.switch(1, 2, ann="c") == ("CONFLICT", 2)
    assert await desk.switch(0, 3, ann="c") == ("CONFLICT", 2)
    assert await desk.switch(0, 1, ann="c") == ("CONFLICT", 2)
    assert await desk.read() == {"ann": "b", "!version": "2"}


async def test_repeated_it_is_in_force_once(desk: Desk) -> None:
    """P5: the reply was lost, the call comes again."""
    await desk.switch(0, 1, ann="a", bob="b")
    assert await desk.switch(1, 2, ann="", bob="c") == ("OK", 2)
    assert await desk.switch(1, 2, ann="", bob="c") == ("OK", 2)
    assert await desk.read() == {"bob": "c", "!version": "2"}


async def test_what_was_lost_is_put_back_and_never_over_what_is_newer(desk: Desk) -> None:
    assert await desk.switch(0, 1, eve="e") == ("OK", 1)
    assert await desk.switch("lost", 5, ann="a") == ("OK", 5)
    assert await desk.read() == {"ann": "a", "!version": "5"}, "whole, without what came in between"
    assert await desk.switch("lost", 4, ann="old") == ("CONFLICT", 5)
    assert await desk.switch("lost", 5, ann="other") == ("CONFLICT", 5)
    assert await desk.read() == {"ann": "a", "!version": "5"}


async def test_everybody_of_the_namespace_is_told(desk: Desk, redis_url: str, namespace: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as direct, direct.pubsub() as heard:
        await heard.subscribe(namespace_channel(namespace))
        await wait_until(lambda: heard.get_message(ignore_subscribe_messages=False, timeout=1))
        await desk.switch(0, 1, ann="a")
        message = await wait_until(lambda: heard.get_message(ignore_subscribe_messages=True, timeout=1))
        assert message["data"] == b"users 1"


async def test_it_keeps_to_its_key_and_begins_with_what_a_full_redis_allows(cluster_url: str, namespace: str) -> None:
    server = RewritingServer(cluster_url, watched)
    await server.open()
    desk = Desk(server, namespace)
    trace = f"{desk.key.decode()}:trace"
    try:
        assert await desk.switch(0, 1, ann="a") == ("OK", 1)
        assert await server.command(desk.key, "LRANGE", trace, 0, -1) == [
            b"HGET",
            b"HDEL",
            b"HSET",
            b"HSET",
            b"PUBLISH",
        ]
    finally:
        await server.command(desk.key, "UNLINK", desk.key, trace)
        await server.close()
