"""A message above the limit goes over slices, too: alone, in its turn, whoever else sends at which slice."""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest

import headgate
from headgate import Closed, CreditTimeout, MessageTooLarge
from headgate.core.names import slice_name
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pools import PoolStore
from headgate.redis.stores.sliced_reads import every_slice
from tests.sdk.crew import Crew
from tests.sdk.observing import GUARD, look
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

LIMIT = 1000
SLICES = 4


async def levels(client: headgate.Client, name: str, slices: int) -> list[int]:
    """Return what is pending and leased at each slice, one after the other."""
    found = []
    for number in range(slices):
        key = Address.of(client.namespace, slice_name(name, number)).shared[0]
        counters = await client.store.server.command(key, "HMGET", key, "pending_bytes", "leased_bytes")
        found.append(sum(int(text or 0) for text in counters))
    return found


class Received:
    """What a consumer got, by sender; checks of each message above the limit that nothing is beside it."""

    def __init__(self, client: headgate.Client, *, limit: int = LIMIT, slices: int = SLICES) -> None:
        self.count, self.large = Counter[str](), Counter[str]()
        self.beside: list[list[int]] = []
        self._client, self._limit, self._slices = client, limit, slices

    def more(self, count: int) -> Callable[[], bool]:
        """Return what says whether so many more large ones have come, and one, or one was not alone."""
        wanted = self.large.total() + count
        return lambda: bool(self.beside) or self.large.total() > wanted

    async def consume(self, consumer: headgate.Consumer) -> None:
        async for message in consumer:
            sender = message.headers["from"]
            if message.size > self._limit:
                # It is pending until it is accepted, so whatever is seen in between was there beside it.
                found = sorted(await levels(self._client, "orders", self._slices))
                if found != [0] * (self._slices - 1) + [message.size]:
                    self.beside.append(found)
                self.large[sender] += 1
            self.count[sender] += 1
            with suppress(Closed):  # the test closes the consumer while a large one is looked at: it goes back
                await message.accept()


async def send(session: headgate.Session, size: int) -> None:
    producer = await session.producer("orders", window=300)
    while True:
        await producer.send(bytes(size), headers={"from": session.id}, timeout=GUARD)


async def ended(*tasks: "asyncio.Future[None]") -> None:
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


@pytest.mark.parametrize(
    ("kind", "messages"), [("queue", "unlimited"), pytest.param("topic", 3, marks=pytest.mark.whole)]
)
async def test_all_have_their_turns_and_nothing_is_beside_a_large_one(
    client: headgate.Client, other: headgate.Client, kind: str, messages: int | str
) -> None:
    """Mutants: who needs all that there is is behind whoever needs less; the others go on with what they have."""
    settings: dict[str, Any] = {"kind": kind, "limit_messages": messages, "oversize": "allow-one"}
    await client.apply("orders", limit=LIMIT, slices=SLICES, **settings)
    received, sizes = Received(client), (3000, 2000, 100, 50, 400)
    sessions = [client.session(f"s{number}") for number in range(len(sizes))]
    async with other.session("in") as into:
        consumer = await into.consumer("orders", window=10)
        consuming = asyncio.ensure_future(received.consume(consumer))
        sending = [asyncio.ensure_future(send(session, size)) for session, size in zip(sessions, sizes, strict=True)]

        def have_had_turns() -> bool:
            return bool(received.beside) or all(received.count[session.id] >= 4 for session in sessions)

        try:
            await wait_until(have_had_turns, timeout=GUARD, description="everybody's turns")
        finally:
            await ended(*sending)
            await consumer.close()
            await consuming
    assert received.beside == []
    assert set(received.large) == {session.id for session in sessions[:2]}
    assert int((await look(client, "orders")).fields["peak_bytes"]) > 3000
    await asyncio.gather(*(session.close() for session in sessions))


async def test_calls_of_a_gate_above_its_limit_go_alone(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("calls", kind="gate", limit=LIMIT, slices=SLICES, oversize="allow-one")
    async with client.session("a") as a, other.session("b") as b:
        first, second = await a.gate("calls", window=10), await b.gate("calls", window=10)
        async with first.admit(300, timeout=GUARD):
            with pytest.raises(CreditTimeout):
                await second.admit(3000, timeout=0.3).__aenter__()
            with pytest.raises(CreditTimeout):
                await first.admit(800, timeout=0.3).__aenter__()
        async with second.admit(3000, timeout=GUARD):
            assert sorted(await levels(client, "calls", SLICES)) == [0, 0, 0, 3000]
            with pytest.raises(CreditTimeout):
                await first.admit(1, timeout=0.3).__aenter__()
            turn = asyncio.ensure_future(first.admit(2000, timeout=GUARD).__aenter__())
            await wait_until(lambda: waits(client, "calls"), timeout=GUARD)
        await turn
        assert sorted(await levels(client, "calls", SLICES)) == [0, 0, 0, 2000]


@pytest.mark.parametrize("slices", [1, SLICES])
async def test_no_calls_of_a_gate_go_by_what_one_above_its_limit_had(client: headgate.Client, slices: int) -> None:
    """Mutants: what it had stays in hand, for several; so does what came as it gave up."""
    await client.apply("calls", kind="gate", limit=LIMIT, slices=slices, oversize="allow-one")
    async with client.session() as session:
        gate = await session.gate("calls")

        async def one_of_two_goes() -> None:
            async with gate.admit(900, timeout=GUARD):
                assert gate.try_admit(900) is None
                with pytest.raises(CreditTimeout):
                    await gate.admit(900, timeout=0.1).__aenter__()

        async with gate.admit(3000, timeout=GUARD):
            pass
        await one_of_two_goes()
        gave_up = asyncio.ensure_future(gate.admit(3000, timeout=GUARD).__aenter__())
        await wait_until(lambda: all_is_lent(client, slices), timeout=GUARD)
        gave_up.cancel()
        await asyncio.wait([gave_up])
        if not gave_up.cancelled():
            gave_up.result().release()
        await one_of_two_goes()


async def all_is_lent(client: headgate.Client, slices: int) -> bool:
    return max(await levels(client, "calls", slices)) == 3000


async def waits(client: headgate.Client, name: str) -> bool:
    return (await client.explain(name)).blocked > 0


async def test_settings_change_while_one_waits(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("orders", kind="queue", limit=LIMIT, slices=SLICES, oversize="allow-one")
    async with client.session("a") as a, other.session("b") as b, other.session("in") as into:
        large, small = await a.producer("orders", window=10), await b.producer("orders", window=10)
        await small.send(bytes(200), timeout=GUARD)
        one = asyncio.ensure_future(large.send(bytes(3000), timeout=GUARD))
        await wait_until(lambda: waits(client, "orders"), timeout=GUARD)
        told = await client.explain("orders")
        assert told.cause == "oversize", told
        assert "goes alone once nothing else is pending" in str(told)
        await client.apply("orders", oversize="default")
        with pytest.raises(MessageTooLarge):
            await one
        with pytest.raises(MessageTooLarge):
            await large.send(bytes(3000), timeout=GUARD)
        await client.apply("orders", oversize="allow-one")
        two = asyncio.ensure_future(large.send(bytes(3000), timeout=GUARD))
        await wait_until(lambda: waits(client, "orders"), timeout=GUARD)
        await client.apply("orders", limit=10_000)  # now it is one as others
        await two
        await client.apply("orders", limit=LIMIT)
        three = asyncio.ensure_future(large.send(bytes(3000), timeout=GUARD))
        await wait_until(lambda: waits(client, "orders"), timeout=GUARD)
        await client.apply("orders", slices=12)
        assert not three.done()
        consumer = await into.consumer("orders")
        sizes = list[int]()
        for _ in range(3):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            sizes.append(message.size)
            await message.accept()
        assert sorted(size // 1000 for size in sizes) == [0, 3, 3]
        await three
        await client.apply("orders", slices=1)
        await large.send(bytes(3000), timeout=GUARD)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept()


@pytest.fixture
async def cluster(cluster_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.mark.soak  # histories of `large ones of a cluster` have it in `make test`
@pytest.mark.parametrize("seed", range(1, 21))
async def test_no_kill_at_any_moment_has_anything_beside_it_or_leaks(
    cluster: headgate.Client, cluster_url: str, seed: int
) -> None:
    """Processes whose messages are above the limit, and below it, are killed with -9, again and again."""
    dice, limit, slices = random.Random(seed), 150, 6
    await cluster.apply("orders", kind="queue", limit=limit, slices=slices, oversize="allow-one")
    received = Received(cluster, limit=limit, slices=slices)
    async with cluster.session("in") as session:
        consumer = await session.consumer("orders", window=2)
        consuming = asyncio.ensure_future(received.consume(consumer))
        async with Crew("sliced", cluster_url, cluster.namespace, "orders", 1, 3) as crew:
            for _ in range(4):
                await wait_until(received.more(dice.randrange(8)), timeout=120)
                await crew.replace_one()
        await consumer.close()
        await consuming
    assert received.beside == []
    assert received.count.total() > received.large.total() > 0
    await cluster.purge("orders")

    async def back() -> bool:
        for name in await every_slice(cluster.store.server, cluster.namespace):
            address = Address.of(cluster.namespace, name)
            await cluster.store.reap(address)
            await cluster._pools.give_back(address, "orders%.0")
        fields = await PoolStore(cluster.store.server).fields(PoolAddress.of(cluster.namespace, "orders#0"))
        return fields["granted_bytes"] == "0"

    await wait_until(back, timeout=GUARD, description="everything is back")
