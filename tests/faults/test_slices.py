"""A queue over slots of three masters, killed again and again with processes that send: limit and order hold."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial
from itertools import pairwise

import pytest

import headgate
from headgate._util.reconnect import until_answered
from headgate.core.names import slice_name, slices_pool
from headgate.credit.account import CreditAccount
from headgate.redis.keys import SLOTS, Address, PoolAddress, slot_of
from headgate.redis.replies import Recount
from headgate.redis.stores.pools import PoolStore, Slice, is_odd
from headgate_coordinator.deadlock.tickets import give_ticket
from tests.faults.deployments import Replicated, ask, is_linked, is_master
from tests.faults.traffic import GUARD
from tests.sdk.crew import Crew
from tests.support.cluster import RedisCluster3
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
POOL, SLICES, LIMIT = "orders%.0", 6, 3000
OF_MESSAGES, MOST = "orders%.m", 20
LARGEST = 300
"""Bytes that no message of the crew is larger than."""
PAUSE = 0.02
"""Seconds from a look at all slices to the next: others want the processor, and what moves needs some to be over."""


async def read(client: headgate.Client, pool: str) -> list[Slice]:
    """Return what each slice holds; waits while a master is away."""
    store, found = PoolStore(client.store.server), list[Slice]()
    for number in range(SLICES):
        address = Address.of(client.namespace, slice_name("orders", number))
        while len(found) == number:
            with suppress(headgate.CoordinatorUnavailable):
                found.append(await store.slice(address, pool))
    return found


async def at_rest(client: headgate.Client, pool: str = POOL) -> list[int]:
    """Return what is pending and leased at each slice, at a moment when nothing moves."""
    before, after = await read(client, pool), await read(client, pool)
    while before != after:
        await asyncio.sleep(PAUSE)
        before, after = after, await read(client, pool)
    return [one.used for one in after]


async def used(client: headgate.Client, pool: str = POOL) -> int:
    """Return what is pending and leased at all slices together."""
    return sum(await at_rest(client, pool))


async def kill_masters(
    cluster: Replicated, dice: random.Random, crew: Crew, judge: Callable[[], Awaitable[None]], *, back: bool = False
) -> None:
    """Kill two of the masters, one after the other, some with a process of the crew; judge before and after each.

    With ``back`` the replica that took over from each is killed too, once the first is there again with its old state.
    """
    pairs = list(zip(cluster.masters, cluster.replicas, strict=True))
    dice.shuffle(pairs)
    for master, replica in pairs[:2]:
        for away, other in ((master, replica), (replica, master))[: 1 + back]:
            await judge()
            await wait_until(partial(is_linked, other), timeout=GUARD)
            away.kill9()
            if dice.random() < 0.5:
                crew.kill_one()
            await wait_until(partial(is_master, other), timeout=GUARD)
            if back:
                await asyncio.to_thread(away.restart)
            await judge()


class Seen:
    """What a consumer got: in the order of each session, and how many came again although they had been accepted."""

    def __init__(self) -> None:
        self.numbers: dict[str, list[int]] = {}
        self.again = self.messages_again = 0
        self.count = 0
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    async def consume(self, consumer: headgate.Consumer) -> None:
        while not consumer.is_closed:
            with suppress(headgate.CoordinatorUnavailable, headgate.SessionExpired):
                async for message in consumer:
                    sender, number = message.headers["from"], int(message.body)
                    known = self.numbers.setdefault(sender, [])
                    if number in known:
                        self.again += message.size
                        self.messages_again += 1
                    else:
                        known.append(number)
                    self.count += 1
                    await self.goes_on.wait()
                    await message.accept()

    async def more(self, count: int) -> None:
        """Wait until so many more have come, and one."""
        until = self.count + count
        await wait_until(lambda: self.count > until, timeout=GUARD)


@pytest.mark.longest
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 21))])
async def test_no_kill_of_masters_and_senders_overdraws_the_limit(
    cluster: Replicated, cleanup_namespace: str, seed: int
) -> None:
    dice, seen, kind = random.Random(seed), Seen(), "queue" if seed % 2 else "topic"
    in_messages = seed % 3 == 1
    async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client, client.session("in") as session:
        most = MOST if in_messages else "unlimited"
        await client.apply("orders", kind=kind, limit=LIMIT, limit_messages=most, slices=SLICES)
        subscription = "all" if kind == "topic" else None
        consumer = await session.consumer("orders", window=5, subscription=subscription, durable=kind == "topic")
        consuming = asyncio.ensure_future(seen.consume(consumer))
        async with Crew("sliced", cluster.url, client.namespace, "orders", 1, 3) as crew:

            async def judge() -> None:
                """See what there is while everybody stands still. What a failover brought back is beyond the limit."""
                await seen.more(dice.randrange(20, 60))
                seen.goes_on.clear()
                with crew.still():
                    assert await used(client) <= LIMIT + seen.again
                    if in_messages:
                        assert await used(client, OF_MESSAGES) <= MOST + seen.messages_again
                seen.goes_on.set()

            await kill_masters(cluster, dice, crew, judge)
        consuming.cancel()
        assert all(one < other for numbers in seen.numbers.values() for one, other in pairwise(numbers))
        counted: Recount = await until_answered(lambda _: None)(client.recount, "orders")  # a busy machine is slow
        assert counted.equal


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
async def test_no_kill_of_masters_and_senders_has_anything_beside_what_goes_alone(
    cluster: Replicated, cleanup_namespace: str, seed: int
) -> None:
    dice, seen, limit = random.Random(seed), Seen(), 150  # a third of what they send is above it
    async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client, client.session("in") as session:
        await client.apply("orders", kind="queue", limit=limit, slices=SLICES, oversize="allow-one")
        consumer = await session.consumer("orders", window=5)
        consuming = asyncio.ensure_future(seen.consume(consumer))
        async with Crew("sliced", cluster.url, client.namespace, "orders", 1, 3) as crew:

            async def judge() -> None:
                """See what there is while everybody stands still. What a failover brought back may be beside it."""
                await seen.more(dice.randrange(10, 30))
                seen.goes_on.clear()
                with crew.still():
                    levels = await at_rest(client)
                    assert sum(levels) <= limit + seen.again or sum(levels) - max(levels) <= seen.again, levels
                seen.goes_on.set()

            await kill_masters(cluster, dice, crew, judge, back=seed % 2 == 1)
        consuming.cancel()


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
async def test_no_kill_of_masters_and_senders_keeps_a_full_queue_from_resuming(
    cluster: Replicated, cleanup_namespace: str, seed: int
) -> None:
    dice, seen, kind = random.Random(seed), Seen(), "queue" if seed % 2 else "topic"
    level = f"{dice.choice((0, 10, 50))}%"
    async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client, client.session("in") as session:
        await client.apply("orders", kind=kind, limit=LIMIT, slices=SLICES, resume_at=level)
        subscription = "all" if kind == "topic" else None
        consumer = await session.consumer("orders", window=5, subscription=subscription, durable=kind == "topic")
        consuming = asyncio.ensure_future(seen.consume(consumer))
        pool = PoolAddress.of(client.namespace, slices_pool("orders"))
        async with Crew("sliced", cluster.url, client.namespace, "orders", 1, 12) as crew:

            async def judge() -> None:
                """See that it was full, and resumes again and again, and that it stays within its limit."""
                times = int((await client.parts.pools.store.fields(pool)).get("full", 0))
                await seen.more(dice.randrange(40, 120))
                seen.goes_on.clear()
                await wait_until(lambda: is_full(client, pool), timeout=GUARD)
                with crew.still():
                    assert await used(client) <= LIMIT + seen.again
                seen.goes_on.set()
                await wait_until(lambda: turned(client, pool, times + 2), timeout=GUARD)

            await kill_masters(cluster, dice, crew, judge, back=seed % 2 == 1)
        consuming.cancel()


async def turned(client: headgate.Client, pool: PoolAddress, times: int) -> bool:
    with suppress(headgate.CoordinatorUnavailable):
        return int((await client.parts.pools.store.fields(pool)).get("full", 0)) >= times
    return False


async def is_full(client: headgate.Client, pool: PoolAddress) -> bool:
    with suppress(headgate.CoordinatorUnavailable):
        return is_odd(int((await client.parts.pools.store.fields(pool)).get("full", 0)))
    return False


async def lent_at_most(client: headgate.Client) -> int:
    """Return what the pool of the slices has lent at the most, as far as its master knows."""
    return int(
        (await client.parts.pools.store.fields(PoolAddress.of(client.namespace, slices_pool("orders"))))["peak_bytes"]
    )


async def give_tickets(client: headgate.Client) -> None:
    """Give a ticket to whoever waits first, at each slice in turn, as if it were in a deadlock; for ever."""
    addresses = [Address.of(client.namespace, slice_name("orders", number)) for number in range(SLICES)]
    while True:
        for address in addresses:
            with suppress(headgate.CoordinatorUnavailable):
                snapshot = await client.store.snapshot(address, alone=True)
                for session, record in snapshot.waiters[:1] if snapshot else ():
                    await give_ticket(client.parts.pools, address, session, since=int(record["since"]))
        await asyncio.sleep(PAUSE)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
async def test_no_kill_of_masters_and_of_who_gives_tickets_has_two_above_the_limit(
    cluster: Replicated, cleanup_namespace: str, seed: int
) -> None:
    dice, seen, limit, above = random.Random(seed), Seen(), 600, 0
    async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client, client.session("in") as session:
        await client.apply("orders", kind="queue", limit=limit, slices=SLICES)
        working = [asyncio.ensure_future(seen.consume(await session.consumer("orders", window=5)))]
        async with headgate.connect(cluster.url, namespace=cleanup_namespace) as other:
            working += [asyncio.ensure_future(give_tickets(one)) for one in (client, other)]
            async with Crew("sliced", cluster.url, client.namespace, "orders", 1, 3) as crew:

                async def judge() -> None:
                    """See what there is while everybody stands still, in the midst of giving one too."""
                    nonlocal above
                    await seen.more(dice.randrange(20, 60))
                    seen.goes_on.clear()
                    working[1].cancel()
                    working[2].cancel()
                    with crew.still():
                        levels = await at_rest(client)
                        assert sum(levels) <= limit + LARGEST + seen.again, levels
                        above = max(above, await lent_at_most(client))
                    working[1:] = [asyncio.ensure_future(give_tickets(one)) for one in (client, other)]
                    seen.goes_on.set()

                await kill_masters(cluster, dice, crew, judge, back=seed % 2 == 1)
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
    assert above > limit, "some were above it"


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(3))
async def test_no_kill_of_masters_and_holders_overdraws_the_limit_of_a_gate(
    cluster: Replicated, cleanup_namespace: str, seed: int
) -> None:
    dice = random.Random(seed)
    async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client:
        await client.apply("orders", kind="gate", limit=LIMIT, slices=SLICES)
        async with Crew("admits", cluster.url, client.namespace, "orders", 1) as crew:

            async def judge() -> None:
                await asyncio.sleep(dice.random())
                with crew.still():
                    assert await used(client) <= LIMIT

            await kill_masters(cluster, dice, crew, judge)
        async with client.session("last") as last, (await last.gate("orders", window=5)).admit(LIMIT, timeout=GUARD):
            assert await used(client) <= LIMIT, "nothing stays with the dead"


def node_of(key: str) -> int:
    """Return which of three masters has a key."""
    return slot_of(key[key.index("{") + 1 : key.index("}")]) * 3 // SLOTS


def spread(namespace: str) -> tuple[str, list[int]]:
    """Return a name for a queue with three slices, and their masters; the third lends to them."""
    for name in map("orders-{}".format, range(1000)):
        nodes = [node_of(Address.of(namespace, slice_name(name, number)).key) for number in range(3)]
        if node_of(PoolAddress.of(namespace, slices_pool(name)).key) == nodes[2] and len(set(nodes)) == 3:
            return name, nodes
    raise AssertionError("none lies so")


async def send(session: headgate.Session, name: str, count: int) -> int:
    """Send; returns the slice where it went."""
    producer = await session.producer(name)
    receipts = [
        await producer.send(f"{number}", headers={"from": session.id}, timeout=GUARD) for number in range(count)
    ]
    slices = {receipt.slice for receipt in receipts}
    assert len(slices) == 1
    return slices.pop()


async def test_where_masters_are_away_the_slices_of_others_serve_whoever_comes(cleanup_namespace: str) -> None:
    with RedisCluster3.start() as cluster:
        for node in cluster.nodes:
            ask(node, "CONFIG", "SET", "cluster-require-full-coverage", "no")
            ask(node, "CONFIG", "SET", "cluster-node-timeout", "600000")  # nobody says that they are away
        async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client, AsyncExitStack() as stack:

            async def sent(by: str, count: int, *, resume: str = "") -> int:
                session = await stack.enter_async_context(client.session(by, resume=resume))
                return await send(session, queue, count)

            queue, nodes = spread(client.namespace)
            await client.apply(queue, kind="queue", limit=10_000, slices=3)
            assert await sent("first", 1) == 0
            cluster.nodes[nodes[1]].kill9()
            assert {await sent(f"s{number}", 5) for number in range(4)} == {0, 2}
            seen, into = Seen(), await stack.enter_async_context(client.session("in"))
            consuming = asyncio.ensure_future(seen.consume(await into.consumer(queue, window=5)))
            await wait_until(lambda: seen.count == 21, timeout=GUARD)
            consuming.cancel()
            cluster.nodes[nodes[0]].kill9()
            assert await sent("knows where they are", 2) == 2
            with pytest.raises(headgate.CoordinatorUnavailable):
                await sent("stored at the first", 1, resume="me")


async def test_a_master_that_hangs_is_no_trouble_to_those_who_wait_at_other_slices(cleanup_namespace: str) -> None:
    """Mutant: who cannot be told why it waits, for that is asked of all slices, takes its own master for lost too."""
    with RedisCluster3.start() as cluster:
        for node in cluster.nodes:
            ask(node, "CONFIG", "SET", "cluster-node-timeout", "600000")  # nobody says that one is away
        async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client, AsyncExitStack() as stack:
            queue, nodes = spread(client.namespace)
            await client.apply(queue, kind="queue", limit=300, slices=3)
            first = await stack.enter_async_context(client.session("first"))
            await send(first, queue, 1)
            producers, waiting = list[headgate.Producer](), list[asyncio.Future[headgate.Receipt]]()
            for number in range(9):
                session = await stack.enter_async_context(client.session(f"s{number}"))
                producers.append(producer := await session.producer(queue, window=200))
                waiting.append(asyncio.ensure_future(producer.send(b"x" * 200, timeout=2 * GUARD)))
            await wait_until(lambda: sum(one.is_blocked for one in producers) == 8, timeout=GUARD)
            accounts = [producer._account for producer in producers]
            hangs, others = list[CreditAccount](), list[CreditAccount]()
            for account in accounts:
                (hangs if node_of(account.address.key) == nodes[1] else others).append(account)
            lost = set[str]()

            def note() -> None:
                lost.update(one.session for one in others if one.lost_since is not None)

            for account in others:
                account.steps[note] = None
            cluster.nodes[nodes[1]].sigstop()
            try:
                await wait_until(lambda: all(one.lost_since is not None for one in hangs), timeout=GUARD)
                renewed = [one.lease.use_until for one in others]
                await wait_until(
                    lambda: all(one.lease.use_until > was for one, was in zip(others, renewed, strict=True)),
                    timeout=GUARD,
                    description="they ask again",
                )
                assert not lost
            finally:
                cluster.nodes[nodes[1]].sigcont()
                for future in waiting:
                    future.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)


async def send_on(client: headgate.Client, sender: str) -> None:
    async with client.session(sender, ttl=3) as session:
        producer, number = await session.producer("orders"), 0
        while True:
            number += 1
            with suppress(headgate.HeadgateError):
                await producer.send(str(number), headers={"from": sender}, timeout=GUARD)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(6))
async def test_who_keeps_up_is_not_slow_for_a_master_that_is_lost(
    cluster: Replicated, cleanup_namespace: str, seed: int
) -> None:
    dice, seen = random.Random(seed), Seen()
    rule = {"slow_rate": 1, "slow_period": "500ms", "slow_action": "detach"}
    async with headgate.connect(cluster.url, namespace=cleanup_namespace) as client, client.session("in") as session:
        await client.apply("orders", kind="queue", limit=LIMIT, slices=SLICES, **rule)  # type: ignore[arg-type]
        consumer = await session.consumer("orders", window=5)
        working = [asyncio.ensure_future(seen.consume(consumer))]
        working += [asyncio.ensure_future(send_on(client, f"p{number}")) for number in range(SLICES)]
        pairs = list(zip(cluster.masters, cluster.replicas, strict=True))
        dice.shuffle(pairs)
        for master, replica in pairs[:2]:
            await seen.more(dice.randrange(100, 300))
            await wait_until(partial(is_linked, replica), timeout=GUARD)
            master.kill9()
            await wait_until(partial(is_master, replica), timeout=GUARD)
            await seen.more(dice.randrange(100, 300))
        async with client.session("bad") as other:
            slow = await other.consumer("orders", window=3)
            async with asyncio.timeout(GUARD):
                with pytest.raises(headgate.SlowConsumer):
                    async for _ in slow:
                        pass
            await seen.more(100)
        assert not consumer.is_slow
        for task in working:
            task.cancel()
        await asyncio.gather(*working, return_exceptions=True)
