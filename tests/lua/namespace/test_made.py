"""Destinations that a user of nodes makes: counted before they are made, and as long as they are there."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from headgate.redis.keys import made_key
from headgate.redis.scripts import script
from headgate.redis.server import Server
from headgate.redis.url import parse_url

pytestmark = pytest.mark.docker
MINUTE = 60_000


@dataclass
class Count:
    """What one user has made."""

    server: Server
    key: bytes

    async def call(self, mode: str, *names: str, most: int = 2) -> tuple[str, int]:
        op = script("made")
        code, count = await self.server.call(op, (self.key,), op.argv({"mode": mode, "most": most}, names))
        return code.decode(), int(count)

    async def age(self, name: str, ms: int) -> None:
        """Have its making begun so much earlier."""
        await self.server.command(self.key, "ZINCRBY", self.key, -ms, name)


@pytest.fixture
async def count(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Count]:
    server = Server(parse_url(redis_url))
    await server.open()
    yield Count(server, made_key(cleanup_namespace, "ann@example"))
    await server.close()


async def test_so_many_are_counted_and_no_more(count: Count) -> None:
    assert await count.call("begin", "a") == ("OK", 1)
    assert await count.call("begin", "a") == ("OK", 1), "P5: the reply was lost, the call comes again"
    assert await count.call("begin", "b") == ("OK", 2)
    assert await count.call("begin", "c") == ("FULL", 2)
    assert await count.call("begin", "b", most=1) == ("OK", 2), "it counts already"
    assert await count.call("begin", "c", most=3) == ("OK", 3)
    assert await count.call("begin", "d", most=0) == ("FULL", 3)


async def test_what_is_there_and_goes_makes_room_at_once(count: Count) -> None:
    await count.call("begin", "a")
    assert await count.call("done", "a") == ("OK", 1)
    assert await count.call("gone", "a", "never") == ("OK", 0)


async def test_what_is_being_made_is_not_gone(count: Count) -> None:
    """Else who looks between the count and the making would forget it, and there were more than may be."""
    await count.call("begin", "first")
    await count.call("begin", "again")
    await count.call("done", "again")
    await count.call("begin", "again")
    assert await count.call("gone", "first", "again") == ("OK", 2)
    await count.age("first", MINUTE + 1000)
    await count.age("again", -MINUTE - 1000)  # by a clock that was set back
    assert await count.call("gone", "first", "again") == ("OK", 0)
