"""Hints come over one connection, whatever ends it."""

import asyncio
import gc

import redis.asyncio

import headgate
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
