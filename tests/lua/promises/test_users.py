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

    async def switch(self, expected: int, version: int | str = "next", **users: str) -> tuple[str, int]:
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
    code, one = await desk.switch(0, ann="a", bob="b")
    assert code == "OK"
    code, two = await desk.switch(one, ann="", bob="c")
    assert code == "OK"
    assert await desk.read() == {"bob": "c", "!version": str(two)}
    code, three = await desk.switch(two, bob="")
    assert (code, one < two < three) == ("OK", True)
    assert await desk.read() == {"!version": str(three)}, "that there were users is not forgotten"


async def test_versions_are_of_the_clock_and_grow_where_it_was_set_back(desk: Desk) -> None:
    """Two masters, of which one took over without all that the other had, draw none twice."""
    seconds, _ = await desk.server.command(desk.key, "TIME")
    _, version = await desk.switch(0, ann="a")
    assert version >= int(seconds) * 1000
    ahead = version + 3_600_000
    assert await desk.switch(version, ahead, ann="b") == ("OK", ahead)
    assert await desk.switch(ahead, ann="c") == ("OK", ahead + 1)


async def test_only_over_the_version_that_was_seen(desk: Desk) -> None:
    _, one = await desk.switch(0, ann="a")
    _, two = await desk.switch(one, ann="b")
    assert await desk.switch(one, ann="c") == ("CONFLICT", two)
    assert await desk.switch(0, ann="c") == ("CONFLICT", two)
    assert await desk.switch(two + 1, ann="b") == ("CONFLICT", two), "seen before a failover"
    assert await desk.read() == {"ann": "b", "!version": str(two)}


async def test_repeated_it_is_in_force_once(desk: Desk) -> None:
    """P5: the reply was lost, the call comes again."""
    _, one = await desk.switch(0, ann="a", bob="b")
    done = await desk.switch(one, ann="", bob="c")
    assert done[0] == "OK"
    assert await desk.switch(one, ann="", bob="c") == done
    assert await desk.read() == {"bob": "c", "!version": str(done[1])}


async def test_what_was_lost_is_put_back_and_never_over_what_is_newer(desk: Desk) -> None:
    _, one = await desk.switch(0, eve="e")
    lost = one + 4
    assert await desk.switch(one, lost, ann="a") == ("OK", lost)
    assert await desk.read() == {"ann": "a", "!version": str(lost)}, "whole, without what came in between"
    assert await desk.switch(one, lost, ann="a") == ("OK", lost), "repeated"
    assert await desk.switch(one, lost + 1, ann="late") == ("CONFLICT", lost), "over what was put in force meanwhile"
    assert await desk.switch(lost, lost - 1, ann="old") == ("CONFLICT", lost)
    assert await desk.switch(lost, lost, ann="other") == ("CONFLICT", lost)
    assert await desk.read() == {"ann": "a", "!version": str(lost)}


async def test_everybody_of_the_namespace_is_told(desk: Desk, redis_url: str, namespace: str) -> None:
    async with redis.asyncio.Redis.from_url(redis_url) as direct, direct.pubsub() as heard:
        await heard.subscribe(namespace_channel(namespace))
        await wait_until(lambda: heard.get_message(ignore_subscribe_messages=False, timeout=1))
        _, version = await desk.switch(0, ann="a")
        message = await wait_until(lambda: heard.get_message(ignore_subscribe_messages=True, timeout=1))
        assert message["data"] == f"users {version}".encode()


async def test_it_keeps_to_its_key_and_begins_with_what_a_full_redis_allows(cluster_url: str, namespace: str) -> None:
    server = RewritingServer(cluster_url, watched)
    await server.open()
    desk = Desk(server, namespace)
    trace = f"{desk.key.decode()}:trace"
    try:
        assert (await desk.switch(0, ann="a"))[0] == "OK"
        assert await server.command(desk.key, "LRANGE", trace, 0, -1) == [
            b"TIME",
            b"HGET",
            b"HDEL",
            b"HSET",
            b"HSET",
            b"PUBLISH",
        ]
    finally:
        await server.command(desk.key, "UNLINK", desk.key, trace)
        await server.close()
