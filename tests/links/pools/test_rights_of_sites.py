"""A site's user at the home of a pool does its work with three commands on one key, and may do nothing else."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import redis as plain

import headgate
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pools import PoolStore
from headgate_coordinator.security.acl import site_line
from tests.links.pools.pool_sites import drawn, part, reached_by_env, shared, whole, working
from tests.links.sites import SiteOf, reach_of
from tests.support.servers import RedisServer, ServerBinary, oldest_and_newest
from tests.support.waiting import wait_until

PASSWORD = "s3cret"


@pytest.fixture(params=oldest_and_newest(), ids=lambda binary: binary.name)
def guarded(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RedisServer]:
    binary: ServerBinary = request.param
    file = tmp_path / "users.acl"
    lines = ["user default on nopass ~* &* +@all", site_line("shop", "orders", "berlin", password=PASSWORD)]
    file.write_text("\n".join(lines) + "\n")
    with RedisServer.start(binary, port=0, persist=False, config={"aclfile": str(file)}) as redis:
        yield redis


@pytest.mark.one_server
async def test_a_site_does_its_work_and_nothing_else(
    guarded: RedisServer, redis_url: str, cleanup_namespace: str
) -> None:
    narrow = guarded.url.replace("redis://", f"redis://hg-shop-site-berlin:{PASSWORD}@")
    async with (
        headgate.connect(guarded.url, namespace="shop") as home,
        headgate.connect(redis_url, namespace=cleanup_namespace) as there,
    ):
        paris = SiteOf("paris", home, guarded.url)
        berlin = SiteOf("berlin", there, redis_url, reach=reach_of(guarded.url))
        await paris.govern(whole(1000, least=200, berlin=600))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("HEADGATE_SITE_PARIS", narrow)
            await berlin.govern(part("paris") + reached_by_env(paris))
            async with working(paris, berlin):

                async def has_its_least() -> bool:
                    return await drawn(berlin) == 200

                await wait_until(has_its_least, timeout=60, description="berlin has its least, and asked for nothing")
                await berlin.send("invoices", b"x" * 397, timeout=20)
                assert (await shared(paris))["@berlin"] >= 400
    pool = PoolAddress.of("shop", "orders")
    with plain.Redis.from_url(narrow) as user:
        for command in (
            ("HSET", pool.key, "limit_bytes", "9"),
            ("HSET", pool.site_key("rome"), "report", "x"),
            ("HGETALL", pool.key),
            ("GET", "hg:{shop}:policy"),
            ("EVAL", "return 1", "0"),
            ("SCRIPT", "LOAD", "return 1"),
            ("PUBLISH", "hg:{shop}:wake", "policy 9"),
            ("DEL", pool.site_key("berlin")),
            ("SCAN", "0"),
            ("CONFIG", "GET", "*"),
        ):
            with pytest.raises(plain.exceptions.NoPermissionError):
                user.execute_command(*command)
    async with headgate.connect(guarded.url, namespace="shop") as home:
        assert (await PoolStore(home.store.server).fields(pool))["limit_bytes"] == "1000"
