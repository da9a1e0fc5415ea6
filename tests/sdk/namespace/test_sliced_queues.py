"""A queue over several slots: one limit to the byte, order of each session, consumers at all of it, more and fewer."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import pytest

import headgate
from headgate import CreditTimeout, InvalidName, PolicyError, policy
from headgate.consuming.feed import Feed
from headgate.consuming.slices import Slices
from headgate.core import sharing
from headgate.core.names import is_slice, slice_name
from headgate.redis.keys import Address, PoolAddress, parse_key, slot_of
from headgate.redis.stores.pools import PoolStore, Slice
from headgate.redis.stores.sliced_reads import every_slice
from headgate_coordinator.operate import limits
from tests.sdk.crew import Crew
from tests.sdk.observing import GUARD, field, look
from tests.support.faultproxy import FaultProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def held(client: headgate.Client, name: str, slices: int) -> int:
    """Return the least that the slices of a queue can have held together; each is within what it was lent.

    Totals only grow: between the two rounds each held at least what it was granted before less what it returned after.
    """
    pool = "orders%.0"

    async def one(number: int) -> Slice:
        address = Address.of(client.namespace, slice_name(name, number))
        found = await PoolStore(client.store.server).slice(address, pool)
        assert found.used <= found.held, f"slice {number} uses {found.used} of {found.held}"
        return found

    before = [await one(number) for number in range(slices)]
    after = [await one(number) for number in range(slices)]
    return sum(one.granted - other.returned for one, other in zip(before, after, strict=True))


async def peak(client: headgate.Client) -> int:
    """Return the most that all slices together ever had of the limit."""
    fields = await PoolStore(client.store.server).fields(PoolAddress.of(client.namespace, "orders#0"))
    return int(fields["peak_bytes"])


class Received:
    """What consumers got, by the session that sent it, in the order in which it came."""

    def __init__(self) -> None:
        self.by_session: dict[str, list[int]] = {}
        self.ids: Counter[str] = Counter()

    @property
    def count(self) -> int:
        return sum(map(len, self.by_session.values()))

    def more(self, count: int) -> Callable[[], bool]:
        """Return what says whether so many more have come, and one."""
        wanted = self.count + count
        return lambda: self.count > wanted

    async def consume(self, consumer: headgate.Consumer) -> None:
        async for message in consumer:
            assert message.destination == "orders"
            if message.delivery_count == 0:
                self.by_session.setdefault(message.headers["from"], []).append(int(message.body))
                self.ids[message.id] += 1
            await message.accept()

    def in_order(self) -> bool:
        return all(before < after for numbers in self.by_session.values() for before, after in pairwise(numbers))


async def send(session: headgate.Session, count: int, *, begin: int = 0) -> None:
    await send_by(await session.producer("orders", window=300), session.id, count, begin=begin)


async def send_by(producer: headgate.Producer, name: str, count: int, *, begin: int = 0) -> None:
    for number in range(begin, begin + count):
        await producer.send(f"{number}", headers={"from": name}, timeout=GUARD)


async def test_slices_are_one_queue_to_everybody(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("orders", kind="queue", limit=100_000, slices=4)
    received = Received()
    async with other.session("in") as into:
        consumer = await into.consumer("orders", window=50)
        sessions = [client.session(f"s{number}") for number in range(8)]
        producers = [await session.producer("orders") for session in sessions]
        assert [producer.destination for producer in producers] == ["orders"] * 8
        numbers = (parse_key(account.address.key) for account in (producer._account for producer in producers))
        placed = Counter(parsed[1] for parsed in numbers if parsed)
        assert placed == {"orders": 2, "orders#1": 2, "orders#2": 2, "orders#3": 2}, "each in turn"
        consuming = asyncio.ensure_future(received.consume(consumer))
        await asyncio.gather(*(send(session, 40) for session in sessions))
        await wait_until(lambda: received.count == 320, timeout=GUARD)
        assert received.in_order()
        assert max(received.ids.values()) == 1, "no two messages have one id"
        await consumer.close()
        await consuming
        receipts = await asyncio.gather(*(producer.send("x" * 100) for producer in producers))
        assert await client.destinations() == ["orders"]
        told = await client.explain("orders")
        assert told.limits[0].pending == sum(receipt.size for receipt in receipts)
        assert told.limits[0].limit == 100_000
        assert (await client.recount("orders")).equal
        browsed = [message.id async for message in client.browse("orders")]
        assert sorted(browsed) == sorted(receipt.id for receipt in receipts)
        assert [message.id async for message in client.browse("orders", after=browsed[4])] == browsed[5:]
        assert [message.id async for message in client.browse("orders", limit=3)] == browsed[:3]
        assert await client.purge("orders") == 8
        assert (await look(client, "orders")).fields["pending_bytes"] == "0"
        assert await client.pools() == [], "their pool is nobody's to set"
        await asyncio.gather(*(session.close() for session in sessions))
    await client.remove("orders")
    assert await every_slice(client.store.server, client.namespace) == []


async def test_the_limit_is_of_all_slices_and_credit_goes_where_it_is_asked_for(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", limit=1000, slices=4)
    async with client.session("a") as a, client.session("b") as b, client.session("in") as into:
        first, second = await a.producer("orders", window=10), await b.producer("orders", window=10)
        await first.send(b"x" * 600, timeout=GUARD)  # more than a part for each slice would be
        await second.send(b"x" * 300, timeout=GUARD)
        with pytest.raises(CreditTimeout) as caught:
            await second.send(b"x" * 300, timeout=1)
        assert "pool" not in str(caught.value), "the limit is the queue's"
        assert "orders" in str(caught.value)
        waiting = asyncio.ensure_future(second.send(b"x" * 500, timeout=GUARD))
        consumer = await into.consumer("orders", window=1)
        message = await consumer.receive(timeout=GUARD)
        while message is not None and message.size < 600:
            await message.accept()
            message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept()
        await waiting
        assert await held(client, "orders", 4) <= 1000
        assert await peak(client) <= 1000


async def test_what_there_is_counts_when_a_queue_gets_slices(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", limit=1000)
    async with client.session("a") as a, client.session("b") as b:
        await (await a.producer("orders", window=10)).send(b"x" * 700)
        await client.apply("orders", slices=4)
        (await a.producer("orders"))
        late = [await b.producer("orders", window=10)]
        with pytest.raises(CreditTimeout):
            await late[0].send(b"x" * 400, timeout=1)
        await late[0].send(b"x" * 200, timeout=GUARD)
        assert await held(client, "orders", 4) <= 1000
        await client.apply("orders", limit=2000)
        await late[0].send(b"x" * 900, timeout=GUARD)
        assert await peak(client) <= 2000


async def test_more_and_fewer_while_it_runs(client: headgate.Client, other: headgate.Client) -> None:
    """A consumer that was there before is at each new slice, and at those that get no new sessions any more."""
    received = Received()
    await client.apply("orders", kind="queue", limit=20_000)
    async with other.session("in") as into:
        consumer = await into.consumer("orders", window=20)
        consuming = asyncio.ensure_future(received.consume(consumer))
        sessions, total = list[headgate.Session](), 0
        for slices in (1, 5, 2, 12, 1):
            await client.apply("orders", slices=slices)
            sessions += [client.session(f"n{slices}-{number}") for number in range(3)]
            await asyncio.gather(*(send(session, 25, begin=total) for session in sessions))
            total += 25
        expected = sum(25 * (5 - at // 3) for at in range(15))
        await wait_until(lambda: received.count == expected, timeout=GUARD)
        assert received.in_order()
        assert consumer.held_messages <= 20
        assert await held(client, "orders", 12) <= 20_000
        assert await peak(client) <= 20_000
        await consumer.close()
        await consuming
        await asyncio.gather(*(session.close() for session in sessions))


async def test_a_consumer_that_waits_hears_of_each_slice(client: headgate.Client) -> None:
    """Whoever waits is woken by the slice where something came, whichever that is, and holds one window in all."""
    await client.apply("orders", kind="queue", slices=3)
    sessions = [client.session(f"s{number}") for number in range(3)]
    async with client.session("in") as into:
        consumer = await into.consumer("orders", window=2)
        producers = [await session.producer("orders") for session in sessions]
        for producer in [*producers, *reversed(producers)]:
            getting = asyncio.ensure_future(consumer.receive(timeout=GUARD))
            await asyncio.sleep(0)
            await producer.send("one")
            message = await getting
            assert message is not None
            await message.accept(confirm=True)
        await asyncio.gather(*(producer.send(f"{number}") for producer in producers for number in range(4)))
        messages = [await consumer.receive(timeout=GUARD) for _ in range(2)]
        assert await consumer.receive(timeout=0.3) is None
        assert consumer.held_messages == 2, "one window for all slices"
        await consumer.configure(window=5)
        messages += [await consumer.receive(timeout=GUARD) for _ in range(3)]
        assert consumer.held_messages == 5
        for message in messages:
            assert message is not None
            await message.accept()
        for _ in range(7):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept(confirm=True)
        assert await consumer.receive(timeout=0) is None
    await asyncio.gather(*(session.close() for session in sessions))


async def test_a_consumer_has_one_name_at_all_slices_whichever_comes_there_first(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever looks at all slices together takes consumers of one name for one."""
    start, came, second = Feed.start, list[Feed](), asyncio.Event()

    async def start_second_first(feed: Feed) -> None:
        if is_slice(feed.address.name):
            came.append(feed)
            if len(came) == 1:
                await second.wait()
        await start(feed)
        if len(came) == 2:
            second.set()

    monkeypatch.setattr(Feed, "start", start_second_first)
    await client.apply("orders", kind="queue", limit=10_000, slices=2)
    async with client.session("in") as into:
        consumers = await asyncio.gather(*(into.consumer("orders") for _ in range(2)))
        assert len(came) == 2
        for consumer in consumers:
            assert isinstance(supply := consumer._supply, Slices)
            assert [feed.id for feed in supply.feeds] == [consumer.id, consumer.id]


async def test_a_blocked_sender_learns_that_another_slice_does_not_answer(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.apply("orders", kind="queue", limit=1000, slices=2)
    async with client.session("first") as first, client.session("second") as second:
        producers = [await session.producer("orders", window=100) for session in (first, second)]
        for producer in producers:
            await producer.send(bytes(400), timeout=GUARD)
        read = client.store._snapshot

        async def away(address: Address, *arguments: Any) -> Any:
            if address.name == "orders":
                raise headgate.CoordinatorUnavailable("nobody is there")
            return await read(address, *arguments)

        monkeypatch.setattr(client.store, "_snapshot", away)
        with pytest.raises(CreditTimeout, match="a master of these does not answer"):
            await producers[1].send(bytes(400), timeout=1.5)


async def test_who_waits_for_a_settlement_is_not_kept_by_what_is_worked_on_beside_it(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "LINGER_SHARED", 60.0)
    await client.apply("orders", kind="queue", slices=2)
    async with client.session("in") as into, client.session("out") as out:
        producer = await out.producer("orders")
        await asyncio.gather(*(producer.send(f"{number}") for number in range(6)))
        consumer = await into.consumer("orders", window=100)
        messages = [await consumer.receive(timeout=GUARD) for _ in range(6)]
        first, second, third, *_ = (message for message in messages if message is not None)
        async with asyncio.timeout(GUARD):
            await first.accept(confirm=True)
            await second.accept()
            await consumer.flush()
            await third.release()
            again = await consumer.receive()
        assert again is not None
        assert again.id == third.id


async def test_lost_replies_neither_overdraw_nor_repeat(
    client: headgate.Client, redis_url: str, cleanup_namespace: str
) -> None:
    await client.apply("orders", kind="queue", limit=3000, slices=3)
    received = Received()
    async with (
        FaultProxy(redis_url) as proxy,
        headgate.connect(proxy.url, namespace=cleanup_namespace) as shaky,
        shaky.session("in") as into,
    ):
        consumer = await into.consumer("orders", window=10)
        consuming = asyncio.ensure_future(received.consume(consumer))
        sessions = [shaky.session(f"s{number}") for number in range(5)]
        producers = [await session.producer("orders", window=300) for session in sessions]
        proxy.lose_every(11)
        async with asyncio.timeout(2 * GUARD):
            await asyncio.gather(*(send_by(one, f"{at}", 60) for at, one in enumerate(producers)))
        assert proxy.lost > 0
        proxy.pass_through()
        await wait_until(lambda: len({*received.ids}) == 300, timeout=GUARD)
        assert received.in_order()
        assert await held(client, "orders", 3) <= 3000
        await consumer.close()
        await consuming
        await asyncio.gather(*(session.close() for session in sessions))
    assert await peak(client) <= 3000


@pytest.fixture
async def cluster(cluster_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 21))])
async def test_no_kill_at_any_moment_overdraws_the_limit_or_leaks_of_it(
    cluster: headgate.Client, cluster_url: str, seed: int
) -> None:
    """Processes that fight for a limit over the slices of three masters are killed with -9, again and again."""
    dice, limit, received = random.Random(seed), 1500, Received()
    await cluster.apply("orders", kind="queue", limit=limit, slices=6)
    async with cluster.session("in") as session:
        consumer = await session.consumer("orders", window=2)
        consuming = asyncio.ensure_future(received.consume(consumer))
        async with Crew("sliced", cluster_url, cluster.namespace, "orders", 1, 3) as crew:
            for _ in range(4):
                await wait_until(received.more(dice.randrange(30)), timeout=120)
                assert await held(cluster, "orders", 6) <= limit, "more than there is"
                await crew.replace_one()
        assert received.in_order()
        await consumer.close()
        await consuming
    assert await peak(cluster) <= limit
    await cluster.purge("orders")

    async def back() -> bool:
        for name in await every_slice(cluster.store.server, cluster.namespace):
            address = Address.of(cluster.namespace, name)
            await cluster.store.reap(address)
            await cluster._pools.give_back(address, "orders%.0")
        return await held(cluster, "orders", 6) == 0

    await wait_until(back, timeout=GUARD, description="everything is back")


@pytest.mark.parametrize(
    "setting",
    [
        {"hard_limit": "1MiB"}, {"enforce": "with-consumers"},
        {"shadow": {"bytes": 5}},
    ],
    ids=lambda setting: next(iter(setting)),
)  # fmt: skip
async def test_what_a_slice_would_keep_alone_is_refused(client: headgate.Client, setting: dict[str, Any]) -> None:
    name = next(iter(setting))
    with pytest.raises(
        PolicyError, match=rf"^{name} beside slices: each slice would keep to it alone; (set|let|give|leave|try) \w"
    ):
        await client.apply("orders", kind="queue", limit="1kB", slices=2, **setting)
    await client.apply("orders", kind="queue", limit="1kB", slices=2)
    with pytest.raises(PolicyError, match=f"{name} beside slices"):
        await client.apply("orders", **setting)
    await client.apply("orders", slices=1)
    with pytest.raises(PolicyError, match=f"{name} beside slices"):
        await client.apply("orders", **setting)  # two slices drain


async def test_slices_that_do_not_answer_at_once_are_asked_again_by_whoever_lacks_room(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: a queue that has its slices fails to get them; all slices there may be are asked at once."""
    going = most = asked = 0
    ask = PoolStore.slice

    async def slow(store: PoolStore, address: Address, encoded: str, **more: Any) -> Slice:
        nonlocal going, most, asked
        number = asked = asked + 1
        going += 1
        most = max(most, going)
        try:
            await asyncio.sleep(0)
            if number == 7:
                raise headgate.CoordinatorUnavailable("busy")
            return await ask(store, address, encoded, **more)
        finally:
            going -= 1

    monkeypatch.setattr(PoolStore, "slice", slow)
    await client.apply("orders", kind="queue", limit=1000, slices=3)
    assert most <= 4
    assert asked >= 7
    for at in range(3):
        async with client.session(f"s{at}") as session:
            await send(session, 1)


async def test_what_comes_while_the_limit_is_off_counts_as_soon_as_it_is_on(client: headgate.Client) -> None:
    """Mutant: the pool of the slices stays as it was, and lends the others what one has beyond its part."""
    await client.apply("orders", kind="queue", limit=1000, slices=3)
    async with client.session("a") as a, client.session("b") as b:
        one, other = await a.producer("orders", window=1), await b.producer("orders", window=1)
        await one.send(b"x" * 300, timeout=GUARD)
        await client.apply("orders", enforce="off")
        for _ in range(4):
            await one.send(b"x" * 700, timeout=GUARD)
        await client.apply("orders", enforce="always")
        with pytest.raises(CreditTimeout):
            await other.send(b"x", timeout=0.5)
        async with client.session("in") as into:
            consumer = await into.consumer("orders")
            sending = asyncio.ensure_future(other.send(b"x" * 200, timeout=GUARD))
            for left in (2800, 2100, 1400, 700, 0):
                message = await consumer.receive(timeout=GUARD)
                assert message is not None
                await message.accept(confirm=True)
                if left > 1000:
                    assert not sending.done()
            await sending
    assert await field(client, "orders", "pending_bytes") == 203
    assert await held(client, "orders", 3) <= 1000


async def _browsed(client: headgate.Client, name: str) -> list[str]:
    return [message.id async for message in client.browse(name)]


async def test_slices_are_of_no_other_kinds_and_nobody_names_them(client: headgate.Client) -> None:
    with pytest.raises(PolicyError, match=r"^slices.* .*: a bucket has one slice"):
        await client.apply("events", kind="bucket", slices=2, rate=5)
    await client.apply("events", kind="bucket", rate=5)
    with pytest.raises(PolicyError, match=r"slices.* .*: a bucket has one slice"):
        await client.apply("events", slices=2)
    await client.remove("events")
    with pytest.raises(
        PolicyError,
        match=r"policy.toml:4: destination\[1\].slices: belongs to a queue, a topic, a gate or a limiter: a b",
    ):
        policy.loads('[[destination]]\nmatch = "door"\nkind = "bucket"\nslices = 2\n')
    await client.apply("orders", kind="queue", slices=2)
    async with client.session("s") as session:
        for by_name in (
            client.apply("orders#1", limit=5),
            client.block("orders#1", "one of them alone"),
            client.unblock("orders#1"),
            client.purge("orders#1"),
            client.recount("orders#1", repair=True),
            client.explain("orders#1"),
            client.effective("orders#1"),
            client.end_moves("orders#1"),
            client.delete_message("orders#1", "1-1"),
            client.move_message("orders#1", "1-1", "other"),
            client.move_message("other", "1-1", "orders#1"),
            _browsed(client, "orders#1"),
            session.producer("orders#1"),
            session.bucket("orders#1"),
            session.limiter("orders#1"),
            limits.look(client, "orders#1", None),
        ):
            with pytest.raises(InvalidName, match="'#1' stands for a slice; name 'orders'"):
                await by_name
        with pytest.raises(PolicyError, match=r"'\*' matches 'orders', which is a queue"):
            await session.consumer("*")
    for change in (
        client.set_pool("orders#0", limit="1GiB"),
        client.apply_pools([{"name": "orders#0", "fields": {"limit_bytes": "9"}}], version=1),
        client.remove_pool("orders#0"),
    ):
        with pytest.raises(InvalidName, match="pool 'orders#0': '#0' stands for a slice"):
            await change
    for value in (0, 49, "many"):
        with pytest.raises(headgate.InvalidValue):
            await client.apply("orders", slices=value)


def test_slices_lie_evenly_over_masters() -> None:
    """Whatever the name: the slots of 3, 6 and 12 slices are as many on each of three masters."""
    for name in ("orders", "a", "shop.eu.orders", "x" * 200):
        slots = [slot_of(Address.of("shop", slice_name(name, number)).key[4:-1]) for number in range(12)]
        for masters, counts in ((3, (3, 6, 12)), (2, (6, 12)), (6, (6, 12)), (4, (12,))):
            for count in counts:
                shares = Counter(slot * masters // 16384 for slot in slots[:count])
                assert max(shares.values()) <= count // masters + 1, (name, masters, count, shares)
