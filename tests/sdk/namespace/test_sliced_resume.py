"""Over slices, too, nobody is served once a queue was full until all that is pending is down to `resume_at`."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from unittest.mock import patch

import pytest

import headgate
from headgate import DestinationFull, PolicyError
from headgate.namespace.pool_limits import NEWER
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pools import PoolStore, is_odd
from tests.sdk.crew import Crew
from tests.sdk.observing import GUARD
from tests.support.faultproxy import FaultProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

LIMIT = 3000
SLICES = 4
ONE = bytes(80)  # about 100 with its envelope


async def is_full(client: headgate.Client, pool: str = "orders#0") -> bool:
    """Return whether a queue is full, and all slices have heard; one that has not grants what is settled there."""
    store, address = PoolStore(client.store.server), PoolAddress.of(client.namespace, pool)
    heard = all(is_odd(one.full) for one in await store.members(address) if one.held)
    return heard and is_odd(int((await store.fields(address)).get("full", 0)))


class Sending:
    """Sessions send one message after the other, for ever; ``count`` of them have a receipt."""

    def __init__(self, *producers: headgate.Producer, body: bytes = ONE) -> None:
        self.count = 0
        self._tasks = [asyncio.ensure_future(self._send(producer, body)) for producer in producers]

    async def _send(self, producer: headgate.Producer, body: bytes) -> None:
        while True:
            await producer.send(body, timeout=2 * GUARD)
            self.count += 1
            await asyncio.sleep(0.001)

    async def goes_on(self, before: int) -> None:
        """Wait until more have a receipt."""
        await wait_until(lambda: self.count > before, timeout=GUARD)

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            assert isinstance(result, asyncio.CancelledError), result


async def settle(consumer: headgate.Consumer, count: int) -> None:
    for _ in range(count):
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept(confirm=True)


async def is_held_up(client: headgate.Client, sessions: int, pool: str = "orders#0") -> bool:
    """Return whether a queue is full, so many wait, and are told why."""
    if not await is_full(client, pool):
        return False
    explained = await client.explain("orders")
    return explained.cause == "hysteresis" and explained.blocked == sessions


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
        sending = Sending(*[await session.producer("orders", window=100) for session in (a, b)])
        await wait_until(lambda: is_held_up(client, 2, pool), timeout=GUARD)
        assert "it was full and serves again at" in str(await client.explain("orders"))
        sent = sending.count
        await settle(consumer, sent - level - 1)
        assert sending.count == sent
        await settle(consumer, 1)
        await sending.goes_on(sent)
        await sending.end()


async def blocked(client: headgate.Client, count: int) -> bool:
    return (await client.explain("orders")).blocked == count


async def test_settings_change_while_it_is_full(client: headgate.Client, other: headgate.Client) -> None:
    """Whoever waits goes by the level and the limit that there are, with more slices and fewer."""
    base: dict[str, Any] = {"limit": LIMIT, "resume_at": "10%", "enforce": "default"}
    changes: list[dict[str, Any]] = [
        {"resume_at": "90%"}, {"resume_at": "default"}, {"limit": 6000}, {"slices": 12, "resume_at": "95%"},
        {"slices": 1, "resume_at": "90%"}, {"enforce": "off"},
    ]  # fmt: skip
    await client.apply("orders", kind="queue", slices=SLICES)
    async with other.session("in") as into, client.session("a") as a:
        consumer = await into.consumer("orders", window=4)
        await client.apply("orders", **base)
        sending = Sending(await a.producer("orders", window=100))
        for change in changes:
            await client.apply("orders", **base)
            await wait_until(lambda: is_held_up(client, 1), timeout=GUARD)
            before = sending.count
            await settle(consumer, 8)
            assert sending.count == before, change
            await client.apply("orders", **change)
            await sending.goes_on(before)
        await client.apply("orders", **base)
        await wait_until(lambda: is_held_up(client, 1), timeout=GUARD)
        before = sending.count
        await consumer.close()
        await client.purge("orders")
        await sending.goes_on(before)
        await sending.end()


@pytest.mark.parametrize("level", ["30%", "default"])
async def test_messages_that_expire_make_room_where_nobody_calls(
    client: headgate.Client, other: headgate.Client, level: str
) -> None:
    """Mutant: a slice that is asked looks for leases that ended alone."""
    await client.apply("orders", kind="queue", limit=LIMIT, slices=SLICES, resume_at=level)
    async with client.session("before") as session:
        producer = await session.producer("orders", window=100)
        for _ in range(LIMIT // 100):
            await producer.send(ONE, ttl="1s", timeout=GUARD)
    async with other.session("a") as a, other.session("b") as b:  # one of them at least is at another slice
        producers = [await session.producer("orders", window=100) for session in (a, b)]
        await asyncio.gather(*[send_many(producer, 10) for producer in producers])


async def is_refused(producer: headgate.Producer) -> bool:
    try:
        await producer.send(ONE, timeout=GUARD)
    except DestinationFull:
        return True
    return False


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
        went = 0  # of a slice that had not heard yet that all are full, and so lets go what is settled there
        for producer in (first, second):
            while not await is_refused(producer):
                went += 1
                assert went < sent // 8
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


async def test_lost_replies_keep_nobody_waiting(
    client: headgate.Client, redis_url: str, cleanup_namespace: str
) -> None:
    await client.apply("orders", kind="queue", limit=LIMIT, slices=3, resume_at="30%")
    async with (
        FaultProxy(redis_url) as proxy,
        headgate.connect(proxy.url, namespace=cleanup_namespace) as shaky,
        client.session("in") as into,
        AsyncExitStack() as stack,
    ):
        consumer = await into.consumer("orders", window=4)
        sessions = [await stack.enter_async_context(shaky.session(f"s{number}")) for number in range(4)]
        producers = [await session.producer("orders", window=300) for session in sessions]
        proxy.lose_every(11)
        sending = [asyncio.ensure_future(send_many(producer, 60)) for producer in producers]
        for _ in range(3):
            await wait_until(lambda: is_full(client), timeout=GUARD)
            await settle(consumer, 60)
        assert proxy.lost > 0
        await settle(consumer, 60)
        await asyncio.gather(*sending)


async def send_many(producer: headgate.Producer, count: int) -> None:
    for _ in range(count):
        await producer.send(ONE, timeout=GUARD)


@pytest.fixture
async def cluster(cluster_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        yield client


async def test_killed_senders_keep_nobody_waiting(cluster: headgate.Client, cluster_url: str) -> None:
    """Whoever is first in line, and has all slices asked, is killed with -9 while the queue is full."""
    await cluster.apply("orders", kind="queue", limit=1000, slices=6, resume_at=0)
    async with cluster.session("in") as into:
        consumer = await into.consumer("orders", window=4)
        async with Crew("sliced", cluster_url, cluster.namespace, "orders", 1, 6) as crew:
            for _ in range(2):
                await wait_until(lambda: is_full(cluster), timeout=GUARD)
                await crew.replace_one()
                await settle(consumer, 30)
        await consumer.close()
    await cluster.purge("orders")
    async with cluster.session("late") as late:
        await (await late.producer("orders")).send(ONE, timeout=GUARD)


async def test_what_older_nodes_refuse_is_named_only_where_it_is_set_or_taken_away(client: headgate.Client) -> None:
    """Mutant: a client behind a node that knows no `resume_at` has none of its slices' pools set, whatever it uses."""
    named: set[str] = set()
    put = PoolStore.set

    async def seen(self: PoolStore, pool: PoolAddress, settings: Mapping[str, str], **more: Any) -> Any:
        named.update(NEWER & set(settings))
        return await put(self, pool, settings, **more)

    async def use(**settings: Any) -> set[str]:
        named.clear()
        await client.apply("orders", kind="queue", limit=LIMIT, slices=SLICES, **settings)
        await (await client.session("a").producer("orders")).close()
        return named

    with patch.object(PoolStore, "set", seen):
        await client.set_pool("memory", limit=1000)
        assert named == set()
        assert await use() == set()
        assert await use(resume_at="50%") == {"resume_bytes"}
        assert await use(resume_at="default") == {"resume_bytes"}
