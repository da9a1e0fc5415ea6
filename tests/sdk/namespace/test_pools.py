"""Limits that destinations share, with clients and processes: never exceeded, nobody starves, nothing stays behind."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from importlib.resources.abc import Traversable
from typing import Any
from unittest.mock import patch

import pytest

import headgate
from headgate import (
    CoordinatorUnavailable,
    CreditTimeout,
    DestinationFull,
    InvalidValue,
    MessageTooLarge,
    PolicyError,
)
from headgate.redis import scripts
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pools import PoolStore, Slice
from tests.sdk.crew import Crew
from tests.sdk.observing import GUARD, drain, field
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def state(client: headgate.Client, name: str = "memory") -> headgate.PoolState:
    return next(pool for pool in await client.pools() if pool.name == name)


async def slices(client: headgate.Client, names: Sequence[str], pool: str = "memory") -> int:
    """Return the least that destinations can have held of a pool together; each is within its slice.

    Totals only grow: between the two rounds each held at least what it was granted before less what it returned after.
    """

    async def look(name: str) -> Slice:
        held = await PoolStore(client.store.server).slice(Address.of(client.namespace, name), pool)
        assert held.used <= held.held, f"{name} uses {held.used} of a slice of {held.held}"
        return held

    before = [await look(name) for name in names]
    after = [await look(name) for name in names]
    return sum(one.granted - other.returned for one, other in zip(before, after, strict=True))


async def peak(client: headgate.Client, pool: str = "memory") -> int:
    fields = await PoolStore(client.store.server).fields(PoolAddress.of(client.namespace, pool))
    return int(fields["peak_bytes"])


async def test_two_that_hold_a_part_each_and_wait_for_the_rest_are_both_served(client: headgate.Client) -> None:
    """Mutant: who waits alone at its destination keeps what it has in hand, and so does the other."""
    await client.set_pool("memory", limit=1000)
    async with client.session("a") as a, client.session("b") as b, client.session("in") as into:
        producers = []
        for session, name in ((a, "orders"), (b, "returns")):
            await client.apply(name, kind="queue", pools="memory")
            producers.append(await session.producer(name, window=300))
            await producers[-1].send(b"x" * 100, timeout=GUARD)
            await drain(await into.consumer(name), 1)
        await wait_until(lambda: both_hold(client), timeout=GUARD)
        sending = [asyncio.ensure_future(producer.send(b"x" * 800, timeout=GUARD)) for producer in producers]
        consumers = [await into.consumer(name, window=1) for name in ("orders", "returns")]
        await asyncio.gather(*(drain(consumer, 1) for consumer in consumers), *sending)


async def both_hold(client: headgate.Client) -> bool:
    """Return whether some credit is in hand at each of two destinations."""
    return all([await field(client, name, "leased_bytes") > 0 for name in ("orders", "returns")])


async def all_back(client: headgate.Client, names: Sequence[str], pool: str = "memory") -> None:
    """Purge, and see every byte go back to the pool.

    The dead have places in lines too: what one gives back may serve another of them, until its place and lease end.
    """
    for name in names:
        await client.purge(name)

    async def back() -> bool:
        for name in names:
            await client.store.reap(Address.of(client.namespace, name))
            await client._pools.give_back(Address.of(client.namespace, name), pool)
        found = await state(client, pool)
        return found.granted == found.used == found.waiting == 0

    await wait_until(back, timeout=GUARD, description="everything is back")
    assert await slices(client, names, pool) == 0


async def test_the_limits_of_a_system_usage(client: headgate.Client) -> None:
    """ActiveMQ's own example: memory 64 mb, store 100 gb, temp 10 gb."""
    await client.set_pool("memory", limit="64MiB")
    await client.set_pool("store", limit="100GiB")
    await client.set_pool("temp", percent=50, total="20GiB")
    await client.apply("orders", pools="memory store")
    await client.apply("scratch", pools="memory temp")
    async with client.session("s") as session:
        for name in ("orders", "scratch"):
            await (await session.producer(name)).send(b"x" * 1000)
    pools = {pool.name: pool for pool in await client.pools()}
    assert {name: pool.limit for name, pool in pools.items()} == {
        "memory": 64 << 20,
        "store": 100 << 30,
        "temp": 10 << 30,
    }
    assert pools["temp"].percent == "50 % of 21474836480 bytes"
    used = {name: pool.used for name, pool in pools.items()}
    assert used["memory"] == used["store"] + used["temp"] == 2 * 1004
    assert {name: pool.members for name, pool in pools.items()} == {"memory": 2, "store": 1, "temp": 1}


async def test_who_waits_for_a_pool_is_told_who_holds_it(client: headgate.Client) -> None:
    """Mutants: the pool is not read; its members are not; a pool that nobody made counts as exhausted."""
    await client.set_pool("memory", limit=2000)
    for name in ("orders", "billing", "mail"):
        await client.apply(name, pools="memory")
    await client.apply("typo", pools="memroy")
    async with client.session("s") as session:
        for name, size in (("orders", 1200), ("billing", 500)):
            await (await session.producer(name, window=10)).send(b"x" * size)
        mail, typo = await session.producer("mail", window=10), await session.producer("typo")
        with pytest.raises(
            CreditTimeout, match=r"pool memory is exhausted.*others hold \d+: orders 1\d\d\d, billing \d+"
        ):
            await mail.send(b"y" * 900, timeout=2)  # for why it waits is asked for meanwhile
        with pytest.raises(CreditTimeout, match=r"pool memroy does not exist.*create pool memroy, or correct"):
            await typo.send(b"y", timeout=2)
        waiting = asyncio.ensure_future(mail.send(b"y" * 900, timeout=GUARD))

        async def explained() -> bool:
            found = await client.explain("mail")
            return found.cause == "pool" and bool(found.pools)

        await wait_until(explained, timeout=GUARD, description="mail waits for the pool")
        (pool,) = (await client.explain("mail")).pools
        assert (pool.name, pool.exists, pool.limit) == ("memory", True, 2000)
        assert [name for name, _ in pool.holders] == ["orders", "billing"]
        assert "pool memory: " in str(await client.explain("mail"))
        assert [name for name, _ in (await state(client)).holders][:2] == ["orders", "billing"]
        await client.purge("orders")
        await asyncio.wait_for(waiting, GUARD)


async def test_a_destination_with_slices_is_one_among_the_holders_of_its_pool(client: headgate.Client) -> None:
    """Mutant: each slice is a holder, under a name that nobody gave."""
    await client.set_pool("memory", limit=3000)
    await client.apply("orders", kind="queue", pools="memory", slices=4)
    await client.apply("billing", kind="queue", pools="memory")
    async with AsyncExitStack() as stack:  # a session for each slice, and one
        first, *others = [await stack.enter_async_context(client.session(f"s{n}")) for n in range(5)]
        billing = await first.producer("billing", window=1)
        for session in others:
            await (await session.producer("orders", window=1)).send(b"x" * 397, timeout=GUARD)
        waiting = asyncio.ensure_future(billing.send(b"y" * 2500, timeout=2 * GUARD))

        async def named() -> list[str]:
            return [name for pool in (await client.explain("billing")).pools for name, _ in pool.holders]

        await wait_until(named, timeout=GUARD, description="billing waits for the pool")
        assert await named() == ["orders"]
        pool = await state(client)
        assert {name for name, _ in pool.holders} <= {"orders", "billing"}
        assert (pool.members, dict(pool.holders)["orders"] >= 1600) == (len(pool.holders), True)
        assert sum(held for _, held in pool.holders) == pool.granted
        waiting.cancel()


async def test_a_full_pool_blocks_all_of_its_destinations_until_one_is_consumed(client: headgate.Client) -> None:
    await client.set_pool("memory", limit=1000)
    for name in ("a", "b"):
        await client.apply(name, pools="memory")
    async with client.session("s") as session:
        a, b = await session.producer("a", window=1000), await session.producer("b", window=1000)
        for _ in range(3):
            await a.send(b"x" * 300)
        with pytest.raises(CreditTimeout):
            await b.send(b"y" * 300, timeout=0.3)
        blocked = asyncio.ensure_future(b.send(b"y" * 300, timeout=GUARD))
        await drain(await session.consumer("a"), 1)
        await asyncio.wait_for(blocked, GUARD)
        assert (await state(client)).used <= 1000
    assert await peak(client) <= 1000


@contextmanager
def places_are_kept() -> Iterator[None]:
    """Have a pool keep the place of a member for ten minutes instead of three seconds after it last asked."""
    real = scripts.expand

    def expand(root: Traversable, path: str, **more: Any) -> str:
        return real(root, path, **more).replace("STALE_MEMBER_MS = 3000", "STALE_MEMBER_MS = 600000")

    scripts.script.cache_clear()
    with patch.object(scripts, "expand", expand):
        yield
    scripts.script.cache_clear()


async def test_who_gave_up_leaves_neither_a_place_nor_a_debt_to_who_still_waits(client: headgate.Client) -> None:
    """Of those who waited before it, one made it owe and one still stood in line; their sessions live on."""
    await client.set_pool("memory", limit=600)
    for name in "abc":
        await client.apply(name, pools="memory")
    with places_are_kept():
        async with client.session("s") as session:
            producers = {name: await session.producer(name, window=100) for name in "abc"}
            for name in "ab":
                for _ in range(3):
                    await producers[name].send(b"x" * 96, timeout=GUARD)
            for name in "ac":
                with pytest.raises(CreditTimeout):
                    await producers[name].send(b"x" * 96, timeout=0.5)
            blocked = asyncio.ensure_future(producers["b"].send(b"x" * 96, timeout=GUARD))

            async def alone() -> bool:
                return (await state(client)).waiting == 1 and await field(client, "b", "blocked") == 1

            await wait_until(alone, description="only b is in line")
            await drain(await session.consumer("a"), 1)
            await asyncio.wait_for(blocked, GUARD)
    assert await peak(client) <= 600


async def test_a_message_larger_than_the_pool_is_refused_and_the_pool_named(client: headgate.Client) -> None:
    await client.set_pool("memory", limit=1000, reserve=100)
    await client.apply("orders", pools="memory")
    async with client.session("s") as session:
        with pytest.raises(MessageTooLarge, match="whose pool 'memory' has 900 bytes") as caught:
            await (await session.producer("orders")).send(b"x" * 950, timeout=GUARD)
        assert (caught.value.pool, caught.value.limit) == ("memory", 900)


async def test_the_reserve_serves_the_reserved_when_everything_is_full(client: headgate.Client) -> None:
    await client.set_pool("memory", limit=1000, reserve=200)
    await client.apply("orders", pools="memory")
    await client.apply("admin", pools="memory", reserved="yes")
    async with client.session("s") as session:
        orders, admin = await session.producer("orders", window=100), await session.producer("admin", window=100)
        with suppress(CreditTimeout):
            while True:
                await orders.send(b"x" * 90, timeout=0.3)
        await admin.send(b"x" * 90, timeout=GUARD)
        assert (await state(client)).used <= 1000


async def test_at_full_usage_an_operator_lists_raises_and_purges(client: headgate.Client) -> None:
    await client.set_pool("memory", limit=500)
    for name in ("a", "b"):
        await client.apply(name, pools="memory")
    async with client.session("s") as session:
        a, b = await session.producer("a", window=500), await session.producer("b", window=500)
        for _ in range(5):
            await a.send(b"x" * 96, timeout=GUARD)
        blocked = asyncio.ensure_future(b.send(b"y" * 96, timeout=GUARD))
        assert sorted(await client.destinations()) == ["a", "b"]
        assert (await client.explain("a")).destination == "a"
        await client.set_pool("memory", limit=600)
        await asyncio.wait_for(blocked, GUARD)
        blocked = asyncio.ensure_future(b.send(b"y" * 96, timeout=GUARD))
        assert await client.purge("a") == 5
        await asyncio.wait_for(blocked, GUARD)


async def test_a_destination_that_is_removed_or_leaves_gives_its_slice_back(client: headgate.Client) -> None:
    await client.set_pool("memory", limit=500)
    for name in ("a", "b", "c"):
        await client.apply(name, pools="memory")
    async with client.session("s") as session:
        for name in ("a", "b"):
            await (await session.producer(name, window=100)).send(b"x" * 200)
        await client.remove("a")
        await client.apply("b", pools="default")
        assert (await state(client)).granted == 0
        await (await session.producer("c", window=400)).send(b"x" * 400, timeout=GUARD)


async def test_what_is_idle_goes_back_by_itself(client: headgate.Client) -> None:
    await client.set_pool("memory", limit=500)
    await client.apply("a", pools="memory")
    async with client.session("s") as session:
        await (await session.producer("a", window=100)).send(b"x" * 100)
        await drain(await session.consumer("a"), 1)

        async def back() -> bool:
            return (await state(client)).granted == 0

        await wait_until(back, timeout=GUARD)


async def test_two_destinations_of_two_pools_get_past_each_other(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Each message needs most of both pools, so what one has of them the other lacks."""
    for pool in ("left", "right"):
        await client.set_pool(pool, limit=1000)
    await client.apply("a", pools="left right")
    await client.apply("b", pools="right left")

    async def work(one: headgate.Client, name: str) -> None:
        async with one.session(name) as session:
            producer, consumer = await session.producer(name, window=10), await session.consumer(name, window=5)
            for _ in range(15):
                sending = asyncio.ensure_future(producer.send(b"x" * 700, timeout=60))
                await drain(consumer, 1)
                await sending

    async with asyncio.timeout(60):
        await asyncio.gather(work(client, "a"), work(other, "b"))
    for pool in ("left", "right"):
        assert await peak(client, pool) <= 1000
        await all_back(client, ("a", "b"), pool)


@pytest.fixture
async def cluster(cluster_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.mark.whole  # one test in small is in lua/pools
@pytest.mark.usefixtures("patient")
async def test_a_tenant_with_many_topics_stays_within_its_limit(cluster: headgate.Client) -> None:
    """All topics of a tenant, over three masters, under one limit that holds a fraction of what they would take."""
    names = [f"topic-{number}" for number in range(120)]
    limit = 20_000
    await cluster.set_pool("memory", limit=limit)
    await asyncio.gather(*(cluster.apply(name, kind="topic", pools="memory") for name in names))
    async with cluster.session("s") as session:
        consumers = [await session.consumer(name, subscription="all", durable=True, window=4) for name in names]
        producers = [await session.producer(name, window=100) for name in names]

        async def flood(producer: headgate.Producer) -> int:
            sent = 0
            with suppress(CreditTimeout, CoordinatorUnavailable):  # a busy machine may take longer to answer
                while sent < 20:
                    await producer.send(b"x" * 396, timeout=4)
                    sent += 1
            return sent

        sent = 0
        async with asyncio.timeout(60):
            while 400 * sent < limit * 0.5:  # most of it is used, however slow the machine
                sent += sum(await asyncio.gather(*(flood(producer) for producer in producers)))
        assert 400 * sent <= limit
        full = await state(cluster)
        assert full.used <= full.granted <= limit
        assert await slices(cluster, names) <= limit
        blocked = asyncio.ensure_future(producers[-1].send(b"x" * 396, timeout=GUARD))
        taken = 0
        while not blocked.done():
            for consumer in consumers:
                if message := await consumer.receive(timeout=0):
                    await message.accept()
                    taken += 1
            await asyncio.sleep(0.01)
        assert taken > 0
        await blocked
    assert await peak(cluster) <= limit
    for name in names:
        await cluster.remove(name)
    assert (await state(cluster)).granted == 0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.soak)])
async def test_no_kill_at_any_moment_overdraws_a_pool_or_leaks_of_it(
    cluster: headgate.Client, cluster_url: str, seed: int
) -> None:
    """Processes that fight for a pool over three masters are killed with -9, again and again."""
    dice, names, limit = random.Random(seed), [f"d{number}" for number in range(6)], 1500
    await cluster.set_pool("memory", limit=limit)
    for name in names:
        await cluster.apply(name, pools="memory")
    async with cluster.session("s") as session:
        consumers = [await session.consumer(name, window=2) for name in names]
        received = wanted = 0

        async def consume(consumer: headgate.Consumer) -> None:
            nonlocal received
            async for message in consumer:
                await message.accept()
                received += 1

        def enough() -> bool:
            return received > wanted

        consuming = [asyncio.ensure_future(consume(consumer)) for consumer in consumers]
        async with Crew("spread", cluster_url, cluster.namespace, "d", 1, len(names)) as crew:
            for _ in range(5):
                wanted = received + dice.randrange(30)
                await wait_until(enough, timeout=120)
                assert await slices(cluster, names) <= limit, "more than there is"
                await crew.replace_one()
        for consumer in consumers:
            await consumer.close()
        await asyncio.gather(*consuming)
    assert await peak(cluster) <= limit
    await all_back(cluster, names)


async def test_a_percent_is_of_all_the_memory_that_redis_may_use(cleanup_namespace: str) -> None:
    with RedisServer.start(persist=False, config={"maxmemory": "100mb"}) as server:
        async with headgate.connect(server.url, namespace=cleanup_namespace) as client:
            await client.set_pool("memory", percent="70%", reserve="1MiB")
            found = await state(client)
            assert (found.limit, found.percent, found.reserve) == (70 << 20, "70 % of maxmemory", 1 << 20)
            fields = {"percent": "50", "sites": f"a={60 << 20} b={60 << 20}", "leasts": f"a={30 << 20} b={21 << 20}"}
            with pytest.raises(PolicyError, match=f"leasts .* {51 << 20} bytes together, .* limit of {50 << 20} bytes"):
                await client.apply_pools([{"name": "memory", "fields": fields}], version=1)
            assert (await state(client)).sites == ()
            await client.store.server.command(b"", "ACL", "SETUSER", "default", "-config", "+config|resetstat")
            await client.set_pool("memory", percent=50)
            assert (await state(client)).limit == 50 << 20, "from INFO, where CONFIG is forbidden"


async def test_a_percent_of_a_memory_without_end_is_refused(client: headgate.Client) -> None:
    with pytest.raises(PolicyError, match="maxmemory, and there is none; set maxmemory, give the pool a total"):
        await client.set_pool("memory", percent=70)
    assert await client.pools() == []


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({}, PolicyError, "a limit or a percent"),
        ({"limit": 10, "percent": 10}, PolicyError, "not both"),
        ({"limit": 10, "total": 10}, PolicyError, "total without percent"),
        ({"limit": 10, "reserve": 10}, PolicyError, "leaves nothing"),
        ({"percent": 0, "total": 10}, InvalidValue, "above 0 up to 100"),
        ({"percent": "101%", "total": 10}, InvalidValue, "above 0 up to 100"),
        ({"percent": 10, "total": 1}, PolicyError, "has no limit"),
        ({"limit": 0}, InvalidValue, "0 has no meaning"),
        ({"limit": "10 mibs"}, InvalidValue, "not a size"),
    ],
)
async def test_what_means_nothing_is_refused(
    client: headgate.Client, arguments: dict[str, int | str], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await client.set_pool("memory", **arguments)
    assert await client.pools() == []


async def test_the_pools_of_a_policy_are_checked_whole_and_set_by_version(client: headgate.Client) -> None:
    def entry(name: str, **fields: str) -> dict[str, object]:
        return {"name": name, "fields": fields}

    await client.set_pool("mine", limit=5)
    with pytest.raises(PolicyError, match="field 'limit' is unknown"):
        await client.apply_pools([entry("memory", limit_bytes="100"), entry("store", limit="5")], version=1)
    assert [pool.name for pool in await client.pools()] == ["mine"], "nothing was applied"
    await client.apply_pools(
        [entry("memory", limit_bytes="100"), entry("store", percent="10", total_bytes="1000")], version=2
    )
    await client.apply_pools([entry("memory", limit_bytes="200", reserve_bytes="10")], version=3, prune=True)
    assert [(pool.name, pool.limit) for pool in await client.pools()] == [("memory", 200), ("mine", 5)]
    told = entry("memory", limit_bytes="200") | {"origins": {"limit_bytes": "shop.toml:4"}}
    await client.apply_pools([told], version=3)
    assert [pool.origins for pool in await client.pools()] == [{"limit_bytes": "shop.toml:4"}, {}]
    await client.set_pool("memory", limit=100)
    assert (await state(client)).origins == {}, "set by hand"
    with pytest.raises(PolicyError, match="newer policy"):
        await client.apply_pools([entry("memory", limit_bytes="300")], version=2)


async def test_a_pool_that_redis_lost_is_made_again_and_counts_what_is_held(client: headgate.Client) -> None:
    await client.set_pool("memory", limit=500)
    for name in ("a", "b"):
        await client.apply(name, pools="memory")
    client._pools._ttl_ms = 300
    async with client.session("s") as session:
        await (await session.producer("a", window=100)).send(b"x" * 300)
        pool = PoolAddress.of(client.namespace, "memory")
        await client.store.server.command(pool.keys[0], "DEL", *pool.keys)
        b = await session.producer("b", window=100)
        with pytest.raises(CreditTimeout):
            await b.send(b"x" * 250, timeout=2)
        await b.send(b"x" * 100, timeout=GUARD)
    found = await state(client)
    assert (found.limit, found.learning) == (500, False)
    assert 404 <= found.used <= 500


@pytest.mark.parametrize("when_full", ["fail", "drop"])
async def test_those_that_do_not_wait_get_what_the_pool_has_and_no_more(
    client: headgate.Client, when_full: str
) -> None:
    await client.set_pool("memory", limit=200_000)
    names = [f"a{at}" for at in range(4)]
    for name in names:
        await client.apply(name, pools="memory", limit=90_000, when_full=when_full)
    async with client.session("s") as session:
        senders = [await session.producer(name, window=1) for name in names]

        async def sends(at: int, size: int) -> bool:
            try:
                return not (await senders[at].send(bytes(size))).dropped
            except DestinationFull:
                return False

        assert [await sends(at, 60_000) for at in range(4)] == [True, True, True, False]
        assert not await sends(0, 60_000)  # its own limit
        assert await sends(3, 15_000)
        await client.purge("a1")
        assert await sends(3, 60_000), "what another gave back is lent at once"
        assert (await state(client)).used <= 200_000
        await asyncio.gather(*(sends(at % 4, 20_000) for at in range(40)))
        assert (await state(client)).used <= 200_000
    await all_back(client, names)


async def test_a_send_that_does_not_wait_is_refused_where_its_pool_is_not_there(client: headgate.Client) -> None:
    await client.apply("a", pools="nowhere", when_full="fail")
    async with client.session("s") as session:
        with pytest.raises(DestinationFull, match="nowhere"):
            await asyncio.wait_for((await session.producer("a")).send(b"x", timeout="unlimited"), GUARD)
