"""The fault proxy does what it says: one that loses nothing would make the tests that use it worthless."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from tests.support.faultproxy import FaultProxy
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

ConnectionLost = redis.ConnectionError


class TestFaultProxy:
    @pytest.fixture(params=["unix", "tcp"])
    async def server(self, request: pytest.FixtureRequest) -> AsyncIterator[RedisServer]:
        with RedisServer.start(persist=False, port=0 if request.param == "tcp" else None) as server:
            yield server

    @pytest.fixture
    async def proxy(self, server: RedisServer) -> AsyncIterator[FaultProxy]:
        async with FaultProxy(server.url) as proxy:
            yield proxy

    @pytest.fixture
    async def client(self, proxy: FaultProxy) -> AsyncIterator[redis.asyncio.Redis]:
        """One connection, no retries: what it sees is what the proxy did."""
        client = redis.asyncio.Redis.from_url(
            proxy.url, retry=Retry(NoBackoff(), 0), socket_timeout=5, single_connection_client=True
        )
        async with client:
            yield client

    @pytest.fixture
    def direct(self, server: RedisServer) -> Iterator[redis.Redis]:
        with redis.Redis.from_url(server.url) as client:
            yield client

    async def test_passes_through_large_and_small(self, client: redis.asyncio.Redis) -> None:
        large = bytes(range(256)) * 20_000
        await client.set("large", large)
        assert await client.get("large") == large

    async def test_a_lost_reply_was_applied(
        self, proxy: FaultProxy, client: redis.asyncio.Redis, direct: redis.Redis
    ) -> None:
        assert await client.incr("n") == 1
        proxy.drop_replies(1)
        with pytest.raises(ConnectionLost):
            await client.incr("n")
        assert direct.get("n") == b"2"
        assert proxy.lost == 1
        assert await client.incr("n") == 3

    async def test_loses_every_nth_reply_and_no_request(
        self, proxy: FaultProxy, client: redis.asyncio.Redis, direct: redis.Redis
    ) -> None:
        await client.ping()
        proxy.lose_every(5)
        calls, failures = 200, 0
        for call in range(calls):
            try:
                await client.incr("n")
            except ConnectionLost:
                assert call >= 4
                failures += 1
        # A loss costs a reconnect, whose own requests count and may be lost too.
        assert failures >= calls // 5
        assert proxy.lost == proxy.requests // 5
        answered = calls - failures
        applied = int(direct.get("n") or 0)
        assert answered < applied <= calls

    async def test_a_held_request_arrives_when_let_go(
        self, proxy: FaultProxy, client: redis.asyncio.Redis, direct: redis.Redis
    ) -> None:
        await client.ping()
        proxy.hold()
        async with redis.asyncio.Redis.from_url(proxy.url, socket_timeout=5) as late:
            calls = [asyncio.ensure_future(client.set("k", "v")), asyncio.ensure_future(late.ping())]
            done, _ = await asyncio.wait(calls, timeout=0.1)
            assert not done
            assert direct.get("k") is None
            proxy.pass_through()
            assert await asyncio.gather(*calls) == [True, True]
            assert direct.get("k") == b"v"

    async def test_delay_adds_to_each_way_and_keeps_throughput(
        self, proxy: FaultProxy, client: redis.asyncio.Redis
    ) -> None:
        await client.ping()
        proxy.delay(0.05)
        one = await self.seconds_of(client, 1)
        assert one >= 0.095
        reader, writer = await asyncio.open_connection("127.0.0.1", int(proxy.url.split(":")[2].split("/")[0]))
        took: list[float] = []
        while not took or (min(took) >= 10 * one and len(took) < 20):  # others may keep one of them waiting
            begin = time.monotonic()
            for _ in range(20):  # twenty requests on the way at once take one round trip, not twenty
                writer.write(b"PING\r\n")
                await asyncio.sleep(0)
            await reader.readexactly(20 * len(b"+PONG\r\n"))
            took.append(time.monotonic() - begin)
        assert min(took) < 10 * one
        writer.close()

    @staticmethod
    async def seconds_of(client: redis.asyncio.Redis, calls: int) -> float:
        begin = time.monotonic()
        for _ in range(calls):
            await client.ping()
        return time.monotonic() - begin

    async def test_reset_ends_what_is_under_way_and_new_connections_work(
        self, proxy: FaultProxy, client: redis.asyncio.Redis, direct: redis.Redis
    ) -> None:
        await client.ping()
        blocked = asyncio.ensure_future(client.blpop(["never"], timeout=4))
        await wait_until(lambda: direct.info("clients")["blocked_clients"])
        proxy.reset()
        with pytest.raises(ConnectionLost):
            await blocked
        assert await client.ping()

    async def test_refuse_closes_new_connections_only(self, proxy: FaultProxy, client: redis.asyncio.Redis) -> None:
        await client.ping()
        proxy.refuse()
        async with redis.asyncio.Redis.from_url(proxy.url, retry=Retry(NoBackoff(), 0)) as late:
            with pytest.raises(ConnectionLost):
                await late.ping()
            assert await client.ping()
            proxy.pass_through()
            assert await late.ping()

    async def test_a_dead_server_looks_dead(
        self, proxy: FaultProxy, client: redis.asyncio.Redis, server: RedisServer
    ) -> None:
        await client.ping()
        server.kill9()
        for _ in range(2):
            with pytest.raises(ConnectionLost):
                await client.ping()
        server.restart()
        assert await client.ping()

    async def test_keeps_the_database(self, server: RedisServer) -> None:
        url = server.url.replace("db=0", "db=3") if "db=0" in server.url else server.url[:-1] + "3"
        async with FaultProxy(url) as proxy:
            assert proxy.url.endswith("/3")
