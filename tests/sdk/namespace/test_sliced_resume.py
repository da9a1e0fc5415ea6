"""Over slices, too, nobody is served once a queue was full until all that is pending is down to `resume_at`."""

import asyncio
from typing import Any

import pytest

import headgate
from headgate import CreditTimeout, DestinationFull, PolicyError
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pools import PoolStore, is_odd
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

LIMIT = 3000
SLICES = 4
ONE = bytes(80)  # about 100 with its envelope


async def is_full(client: headgate.Client, pool: str = "orders#0") -> bool:
    fields = await PoolStore(client.store.server).fields(PoolAddress.of(client.namespace, pool))
    return is_odd(int(fields.get("full", 0)))


async def settle(consumer: headgate.Consumer, count: int) -> None:
    for _ in range(count):
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept(confirm=True)


@pytest.mark.parametrize(
    ("kind", "settings", "pool", "level"),
    [
        ("queue", {"limit": 3000, "resume_at": "50%"}, "orders#0", 18),
        ("topic", {"limit_messages": 24, "resume_at_messages": 12}, "orders#m", 12),
    ],
)
async def test_all_that_send_wait_until_it_resumes(
    client: headgate.Client, other: headgate.Client, kind: str, settings: dict[str, Any], pool: str, level: int
) -> None:
    await client.apply("orders", kind=kind, slices=SLICES, **settings)
    async with other.session("in") as into, client.session("a") as a, client.session("b") as b:
        consumer = await into.consumer("orders", window=4)
        first, second = await a.producer("orders", window=100), await b.producer("orders", window=100)
        sent, refused = 0, ""
        while not refused:
            try:
                await (first, second)[sent % 2].send(ONE, timeout=GUARD if sent < 20 else 1)
                sent += 1
            except CreditTimeout as error:
                refused = str(error)
        assert "it was full and serves again at" in refused
        assert await is_full(client, pool)
        waiting = [asyncio.ensure_future(one.send(ONE, timeout=GUARD)) for one in (first, second)]
        await wait_until(lambda: blocked(client, 2), timeout=GUARD)
        await settle(consumer, sent - level - 1)
        assert not any(one.done() for one in waiting)
        await settle(consumer, 1)
        await asyncio.gather(*waiting)
        assert not await is_full(client, pool)


async def blocked(client: headgate.Client, count: int) -> bool:
    return (await client.explain("orders")).blocked == count


async def test_settings_change_while_it_is_full(client: headgate.Client, other: headgate.Client) -> None:
    """Whoever waits goes by the level and the limit that there are, with more slices and fewer."""
    await client.apply("orders", kind="queue", limit=LIMIT, slices=SLICES, resume_at="10%", when_full="block")
    async with other.session("in") as into, client.session("a") as a:
        consumer, first = await into.consumer("orders", window=4), await a.producer("orders", window=100)

        async def is_held_up(client: headgate.Client = client) -> bool:
            explained = await client.explain("orders")
            return explained.cause == "hysteresis" and await is_full(client)

        async def fill() -> "asyncio.Future[headgate.Receipt]":
            """Send until one waits, which is returned."""
            while True:
                one = asyncio.ensure_future(first.send(ONE, timeout=GUARD))
                done, _ = await asyncio.wait([one], timeout=1)
                if not done:
                    return one

        for change in ({"resume_at": "90%"}, {"resume_at": "default"}, {"limit": 6000}, {"enforce": "off"}):
            await client.apply("orders", limit=LIMIT, resume_at="10%", enforce="default")
            waiting = await fill()
            await settle(consumer, 8)
            await wait_until(is_held_up, timeout=GUARD)
            await client.apply("orders", **change)
            await waiting
        await client.apply("orders", limit=LIMIT, resume_at="10%", enforce="default")
        waiting = await fill()
        await settle(consumer, 8)
        await wait_until(is_held_up, timeout=GUARD)
        await client.apply("orders", slices=12)
        async with client.session("c") as c:
            late = asyncio.ensure_future((await c.producer("orders")).send(ONE, timeout=GUARD))
            await client.apply("orders", slices=1)
            await wait_until(lambda: blocked(client, 2), timeout=GUARD)
            while not waiting.done():
                await settle(consumer, 1)
            await asyncio.gather(waiting, late)


async def test_senders_that_do_not_wait_are_refused_until_it_resumes(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("orders", kind="queue", limit=LIMIT, slices=SLICES, resume_at="50%", when_full="fail")
    async with other.session("in") as into, client.session("a") as a, client.session("b") as b:
        consumer = await into.consumer("orders", window=4)
        first, second = await a.producer("orders", window=100), await b.producer("orders", window=100)
        sent, caught = 0, list[DestinationFull]()
        while not caught:
            try:
                await (first, second)[sent % 2].send(ONE, timeout=GUARD)
                sent += 1
            except DestinationFull as error:
                caught.append(error)
        assert sent * 100 > LIMIT - 600
        await settle(consumer, sent // 3)
        for producer in (first, second):
            with pytest.raises(DestinationFull):
                await producer.send(ONE, timeout=GUARD)
        await settle(consumer, sent // 4)
        await second.send(ONE, timeout=GUARD)
        await first.send(ONE, timeout=GUARD)


async def test_a_level_goes_with_its_own_limit(client: headgate.Client, other: headgate.Client) -> None:
    """Mutants: whoever lacks nothing of a full pool asks nobody; a level without a limit is taken."""
    with pytest.raises(PolicyError, match="resume_at_messages beside slices goes with limit_messages"):
        await client.apply("orders", kind="queue", limit=LIMIT, slices=SLICES, resume_at_messages=5)
    levels: dict[str, Any] = {"limit": 1700, "resume_at": 200, "limit_messages": 20, "resume_at_messages": "100%"}
    await client.apply("orders", kind="queue", slices=SLICES, **levels)
    async with other.session("in") as into, client.session("a") as a, client.session("b") as b:
        consumer = await into.consumer("orders", window=1)
        first, second = await a.producer("orders", window=10), await b.producer("orders", window=10)
        for _ in range(20):
            await first.send(bytes(10), timeout=GUARD)
        waiting = [asyncio.ensure_future(one.send(bytes(10), timeout=GUARD)) for one in (first, second)]
        await wait_until(lambda: blocked(client, 2), timeout=GUARD)
        await settle(consumer, 2)
        await asyncio.gather(*waiting)
        assert not await is_full(client)
        await settle(consumer, 20)
        for _ in range(9):
            await first.send(bytes(180), timeout=GUARD)
        waiting = [asyncio.ensure_future(one.send(bytes(180), timeout=GUARD)) for one in (first, second)]
        await wait_until(lambda: is_full(client), timeout=GUARD)
        await settle(consumer, 7)
        assert not any(one.done() for one in waiting)
        await settle(consumer, 1)
        await asyncio.gather(*waiting)
