"""What Redis does not permit is AccessDenied, wherever in a script it is refused, and whatever its version calls it."""

from collections.abc import Iterator

import pytest
import redis

import headgate
from tests.support.servers import RedisServer, ServerBinary, oldest_and_newest


@pytest.fixture(params=oldest_and_newest(), ids=lambda binary: binary.name)
def server(request: pytest.FixtureRequest) -> Iterator[RedisServer]:
    binary: ServerBinary = request.param
    with RedisServer.start(binary, port=0, persist=False) as server:
        yield server


@pytest.mark.parametrize(
    "rules",
    [
        "~* &* +@all -hset",  # a command of the script
        "~* &* +@all -xadd",
        "~* +@all resetchannels",  # a channel that it publishes on
        "&* +@all ~other*",  # the keys that it is called with
        "~* &* +@all -evalsha",
        "%R~* &* +@all",  # keys that it may read and not write; newer than 6.2
    ],
)
async def test_what_redis_refuses_is_denied_and_no_outage(server: RedisServer, rules: str) -> None:
    with redis.Redis.from_url(server.url) as direct:
        if "%R" in rules and server.binary.version < (7,):
            pytest.skip("6.2 has no permissions for reading alone")
        direct.execute_command("ACL", "SETUSER", "app", "on", ">pw", *rules.split())
    async with headgate.connect(server.url) as admin:
        await admin.apply("orders", limit=1000, kind="queue")
        async with headgate.connect(server.url.replace("//", "//app:pw@")) as client:
            with pytest.raises(headgate.AccessDenied, match="headgate acl"):
                await use(client)


async def use(client: headgate.Client) -> None:
    await client.apply("fresh", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await producer.send(b"x", timeout=1)
