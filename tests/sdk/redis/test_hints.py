"""Hints come over one connection, whatever ends it."""

import asyncio
import gc
from typing import Any

import redis.asyncio

import headgate
from headgate._util.tasks import stop
from headgate.redis.hints import PubSubWakeUps
from tests.support.waiting import wait_until


async def test_a_connection_that_is_ended_while_others_write_is_made_again_once(
    client: headgate.Client, redis_url: str
) -> None:
    """Mutant: whoever writes to the connection makes it again too, and leaves one open."""
    gc.freeze()  # to look through all that the tests have would take half a second
    hints = client.store.server.wake_ups()
    heard: list[str] = []
    async with redis.asyncio.Redis.from_url(redis_url) as direct:

        async def own() -> list[dict[str, str]]:
            there = await direct.client_list(_type="pubsub")
            return [one for one in there if one["id"] not in others]

        others = {one["id"] for one in await direct.client_list(_type="pubsub")}
        await hints.subscribe(("hg:t:0",), lambda words: heard.append(words[0]))
        hints.sure(("hg:t:0",))
        for number in range(1, 21):
            await wait_until(own)
            for one in await own():
                await direct.client_kill_filter(_id=one["id"])
            await asyncio.gather(
                *(hints.subscribe((f"hg:t:{number}.{of}",), lambda words: heard.append(words[0])) for of in range(5))
            )

        async def is_one_with_all() -> bool:
            return [one["sub"] for one in await own()] == ["101"]

        await wait_until(is_one_with_all)
        await hints.close()
        gc.collect()  # a connection that was left open says so


class SlowToClose:
    """A client to a real server, whose subscriptions do not close while somebody is in the middle of a call there."""

    def __init__(self, url: str) -> None:
        self._client = redis.asyncio.Redis.from_url(url)
        self.lock = asyncio.Lock()
        self.closing = asyncio.Event()

    def pubsub(self) -> Any:
        pubsub: Any = self._client.pubsub()
        close = pubsub.aclose

        async def closes() -> None:
            self.closing.set()
            async with self.lock:
                await close()

        pubsub.aclose = closes
        return pubsub

    async def aclose(self) -> None:
        await self._client.aclose(close_connection_pool=True)

    @property
    def open(self) -> int:
        """Connections that are open."""
        pool: Any = self._client.connection_pool
        return sum(one.is_connected for one in (*pool._in_use_connections, *pool._available_connections))


async def listening(url: str) -> tuple[PubSubWakeUps, SlowToClose]:
    """Return hints that are subscribed to a channel, over that client."""
    client = SlowToClose(url)

    async def dial() -> SlowToClose:
        return client

    hints = PubSubWakeUps(dial)
    await hints.subscribe(("hg:t:0",), lambda _: None)
    await wait_until(lambda: client.open == 1)
    return hints, client


async def test_a_connection_is_closed_although_its_subscriptions_do_not_close_in_time(redis_url: str) -> None:
    """Mutant: what follows them is given up with them."""
    hints, client = await listening(redis_url)
    async with client.lock:
        await hints.close()
        assert client.open == 0


async def test_hints_that_are_closed_while_they_move_leave_no_connection(redis_url: str) -> None:
    """Mutant: whoever hangs up forgets first what it is to close."""
    hints, client = await listening(redis_url)
    async with client.lock:
        hints.reconnect()
        await client.closing.wait()
        closing = asyncio.create_task(hints.close())
        await asyncio.sleep(0)
    await closing
    assert client.open == 0


async def test_hanging_up_forgets_no_connection_that_was_made_meanwhile(redis_url: str) -> None:
    """A task that listens may not end when it is told to. Mutant: whatever is open by then is forgotten."""
    hints, client = await listening(redis_url)
    other = SlowToClose(redis_url)

    async def dial() -> SlowToClose:
        return other

    await stop(hints._task)
    async with client.lock:
        hanging_up = asyncio.create_task(hints._hang_up())
        await client.closing.wait()
        hints._dial = dial
        await hints._connect()
    await hanging_up
    assert other.open == 1
    await hints.close()
    assert other.open == 0
    assert client.open == 0
