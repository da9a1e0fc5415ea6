"""A queue over several slots has one limit in messages, beside the one in bytes, to the message."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from typing import Any
from unittest.mock import AsyncMock

import pytest

import headgate
from headgate import CreditTimeout
from headgate.core.names import slice_name
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pools import PoolDraw, PoolStore, Slice
from headgate.redis.stores.sliced_reads import every_slice
from tests.sdk.crew import Crew
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
POOL = "orders%.m"


async def held(client: headgate.Client, slices: int, name: str = "orders") -> int:
    """Return the fewest that the slices can have held together; each is within what it was lent."""

    async def one(number: int) -> Slice:
        address = Address.of(client.namespace, slice_name(name, number))
        found = await PoolStore(client.store.server).slice(address, f"{name}%.m")
        assert found.used <= found.held, f"slice {number} uses {found.used} of {found.held}"
        return found

    before = [await one(number) for number in range(slices)]
    after = [await one(number) for number in range(slices)]
    return sum(one.granted - other.returned for one, other in zip(before, after, strict=True))


async def pool(client: headgate.Client, name: str = "orders") -> dict[str, str]:
    return await PoolStore(client.store.server).fields(PoolAddress.of(client.namespace, f"{name}#m"))


async def test_the_limit_is_of_all_slices_and_goes_where_it_is_asked_for(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", limit=3000, limit_messages=10, slices=4)
    async with client.session("a") as a, client.session("b") as b, client.session("in") as into:
        first, second = await a.producer("orders"), await b.producer("orders")
        for _ in range(7):  # more than a part for each slice would be
            await first.send(b"x", timeout=GUARD)
        for _ in range(3):
            await second.send(b"x", timeout=GUARD)
        with pytest.raises(CreditTimeout, match="the limit of 10 messages is reached") as caught:
            await second.send(b"x", timeout=1)
        assert "pool" not in str(caught.value), "the limit is the queue's"
        told = await client.explain("orders")
        assert (told.limits[1].limit, told.limits[1].pending) == (10, 10)
        assert "raise limit_messages to 11" in str(told)
        consumer = await into.consumer("orders", window=1)
        waiting = asyncio.ensure_future(second.send(b"x" * 2000, timeout=GUARD))
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept()
        await waiting
        with pytest.raises(CreditTimeout, match="the limit of 10 messages is reached"):
            await first.send(b"x", timeout=0.5)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept()
        with pytest.raises(CreditTimeout, match="the limit of 3000 bytes is reached"):
            await first.send(b"x" * 1500, timeout=0.5)
        await first.send(b"x", timeout=GUARD)
        assert await held(client, 4) <= 10
        assert int((await pool(client))["peak_bytes"]) <= 10
    await client.remove("orders")
    assert not await pool(client)
    assert await every_slice(client.store.server, client.namespace) == []


async def test_a_first_limit_in_messages_takes_credit_without_one_back_at_once(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session has credit for thousands at its slice. Mutant: a quarter of what is left is asked for each time."""
    returned = list[int]()
    draw = PoolStore.draw

    async def drawn(self: PoolStore, pool: PoolAddress, member: str, held: Slice, **more: Any) -> PoolDraw:
        if pool.name == "orders#m" and held.returned and held.returned not in returned:
            returned.append(held.returned)
        return await draw(self, pool, member, held, **more)

    monkeypatch.setattr(PoolStore, "draw", drawn)
    await client.apply("orders", kind="queue", limit=6000, slices=3)
    async with client.session("a") as a, client.session("b") as b:
        first, second = await a.producer("orders"), await b.producer("orders")
        sends = [asyncio.ensure_future(first.send(b"x" * 990, timeout=GUARD)) for _ in range(5)]
        sends += [asyncio.ensure_future(second.send(b"x" * 990, timeout=GUARD)) for _ in range(15)]

        async def both_wait() -> bool:
            return (await client.explain("orders")).blocked >= 2

        await wait_until(both_wait, timeout=GUARD)
        await client.apply("orders", limit="1MB", limit_messages=30)
        await asyncio.gather(*sends)
        assert len(returned) <= 6, f"it gave back step by step: {returned}"


async def test_a_limit_below_the_number_of_slices_serves_all_of_them(client: headgate.Client) -> None:
    """A message at a time passes from slice to slice, whoever has what another waits for."""
    await client.apply("orders", kind="queue", limit_messages=1, slices=3)
    async with client.session("in") as into:
        consumer, sessions = await into.consumer("orders", window=1), [client.session(f"s{at}") for at in range(3)]
        producers = [await session.producer("orders") for session in sessions]
        sending = asyncio.gather(*(one.send(b"x", timeout=GUARD) for one in producers for _ in range(3)))
        for _ in range(9):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept()
        await sending
        await asyncio.gather(*(session.close() for session in sessions))
    assert int((await pool(client))["peak_bytes"]) == 1


async def test_what_there_is_counts_as_the_limit_comes_and_it_may_go_and_come_again(client: headgate.Client) -> None:
    """Mutant: a pool stays as it was, or does not ask, and lends what is in use already."""
    await client.apply("orders", kind="queue", slices=3)
    for messages, limit in ((6, 8), (5, 12)):
        async with client.session() as session:
            producer = await session.producer("orders")
            for _ in range(messages):
                await producer.send(b"x", timeout=GUARD)
        await client.apply("orders", limit_messages=limit)
        async with client.session() as session:
            producer = await session.producer("orders")
            for _ in range(limit - messages if messages == 6 else 0):
                await producer.send(b"x", timeout=GUARD)
            with pytest.raises(CreditTimeout):
                await producer.send(b"x", timeout=0.5)
        if messages == 6:
            await client.apply("orders", limit_messages="unlimited")
            assert not await pool(client), "its slices are not counted while there is no limit"
    assert (await client.explain("orders")).limits[1].pending == 13
    async with client.session("out") as out, client.session("in") as into:
        consumer = await into.consumer("orders", window=2)
        for _ in range(2):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept(confirm=True)
        await (await out.producer("orders")).send(b"x", timeout=GUARD)


async def test_a_slice_that_lost_the_limit_gets_it_before_it_is_counted(client: headgate.Client) -> None:
    """Mutant: the pool takes it for empty, and goes by that."""
    await client.apply("orders", kind="queue", limit_messages=8, slices=3)
    second = Address.of(client.namespace, "orders#1")
    async with client.session("a") as a, client.session("b") as b:
        one, other = await a.producer("orders"), await b.producer("orders")
        await one.send(b"x", timeout=GUARD)
        await other.send(b"x", timeout=GUARD)
        assert other._account.address == second
        await client.store.apply(second, {"limit_messages": "unlimited"}, mode="change", ttl_ms=0)
        for _ in range(6):
            await other.send(b"x", timeout=GUARD)
        store, address = PoolStore(client.store.server), PoolAddress.of(client.namespace, "orders#m")
        await store.set(address, {}, mode="remove")
        code, epoch, *_ = await store.set(address, {"limit_bytes": "8"})
        assert code == "CREATED"
        assert await client._pools.rebuild(address, epoch)
        assert (await store.slice(second, POOL)).used >= 6
        async with client.session("c") as c:
            with pytest.raises(CreditTimeout):
                await (await c.producer("orders")).send(b"x", timeout=0.5)


@pytest.mark.parametrize("dies", [False, True])
async def test_a_slice_is_never_used_with_settings_that_its_destination_had_before(
    client: headgate.Client, other: headgate.Client, monkeypatch: pytest.MonkeyPatch, *, dies: bool
) -> None:
    """They may change as it is made, by a process that dies then. Mutants: nobody looks; at the limit alone."""
    await client.apply("orders", kind="queue", slices=3, message_ttl="1h")
    part, make = Address.of(client.namespace, "orders#1"), other.store.apply

    async def slowly(address: Address, *arguments: Any, **options: Any) -> tuple[str, str]:
        monkeypatch.undo()  # it has read the settings
        await client.apply("orders", limit_messages=2, message_ttl="default", max_attempts=3)
        await client.block("orders", "at night")
        made = await make(address, *arguments, **options)
        assert made[0] == "CREATED"
        if dies:
            raise headgate.CoordinatorUnavailable("as if killed")
        return made

    monkeypatch.setattr(other.store, "apply", slowly)
    with pytest.raises(headgate.CoordinatorUnavailable) if dies else contextlib.nullcontext():
        await other._registry.ensure(part, ("queue",), recover=False)
    async with client.session("a") as a, client.session("b") as b:
        await (await a.producer("orders")).close()
        producer = await b.producer("orders")
        assert producer._account.address == part
        names = ("limit_messages", "messages_pool", "message_ttl_ms", "max_attempts", "stopped")
        fields = await client.store.server.command(part.shared[0], "HMGET", part.key, *names)
        assert fields == [b"2", POOL.encode(), None, b"3", b"at night"]
        await client.unblock("orders")
        for _ in range(2):
            await producer.send(b"x", timeout=GUARD)
        with pytest.raises(CreditTimeout):
            await producer.send(b"x", timeout=0.5)


async def test_a_slice_that_is_there_serves_while_nobody_can_say_what_it_should_have(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: whoever comes there fails while the first slice is away, or where others may change it."""
    await client.apply("orders", kind="queue", slices=2)
    part, registry = Address.of(client.namespace, "orders#1"), client._registry
    await registry.ensure(part, ("queue",), recover=False)
    await client.store.apply(part, {"max_attempts": "3"}, mode="change", ttl_ms=0)
    for trouble in (headgate.CoordinatorUnavailable("nobody is there"), headgate.AccessDenied("ann may not")):
        monkeypatch.setattr("headgate.namespace.registry.agree", AsyncMock(side_effect=trouble))
        assert await registry.ensure(part, ("queue",), recover=False) == "queue"
    monkeypatch.undo()
    await registry.ensure(part, ("queue",), recover=False)
    assert "max_attempts" not in registry.fields(part), "and is mended by the next that can"


async def test_slices_of_a_gate_admit_so_many_calls_together(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("calls", kind="gate", limit_messages=3, slices=4)
    inside = most = 0

    async def work(gate: headgate.Gate) -> None:
        nonlocal inside, most
        for _ in range(8):
            async with gate.admit(timeout=GUARD):
                inside += 1
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= 1

    sessions = [owner.session(f"s{at}") for at in range(4) for owner in (client, other)]
    gates = [await session.gate("calls") for session in sessions]
    await asyncio.gather(*map(work, gates))
    assert most <= 3
    await asyncio.gather(*(session.close() for session in sessions))
    assert int((await pool(client, "calls"))["peak_bytes"]) <= 3


async def test_a_blocked_sender_learns_that_another_slice_does_not_answer(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    await client.apply("orders", kind="queue", limit_messages=4, slices=2)
    async with client.session("first") as first, client.session("second") as second:
        producers = [await session.producer("orders") for session in (first, second)]
        for producer in producers * 2:
            await producer.send(b"x", timeout=GUARD)
        read = client.store._snapshot

        async def away(address: Address, *arguments: Any) -> Any:
            if address.name == "orders":
                raise headgate.CoordinatorUnavailable("nobody is there")
            return await read(address, *arguments)

        monkeypatch.setattr(client.store, "_snapshot", away)
        with pytest.raises(CreditTimeout, match="a master of these does not answer"):
            await producers[1].send(b"x", timeout=1.5)


@pytest.fixture
async def cluster(cluster_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.mark.soak  # test_sliced_queues.py has one of bytes in `make test`
@pytest.mark.parametrize("seed", range(1, 21))
async def test_no_kill_at_any_moment_overdraws_the_limit_or_leaks_of_it(
    cluster: headgate.Client, cluster_url: str, seed: int
) -> None:
    """Processes that fight for few messages over the slices of three masters are killed with -9, again and again."""
    dice, limit, count = random.Random(seed), 7, 0
    await cluster.apply("orders", kind="queue", limit_messages=limit, slices=6)

    async def consume(consumer: headgate.Consumer) -> None:
        nonlocal count
        async for message in consumer:
            count += 1
            await message.accept()

    async with cluster.session("in") as session:
        consumer = await session.consumer("orders", window=2)
        consuming = asyncio.ensure_future(consume(consumer))
        async with Crew("sliced", cluster_url, cluster.namespace, "orders", 1, 3) as crew:
            for _ in range(3):
                until = count + dice.randrange(30)
                await wait_until(lambda until=until: count > until, timeout=120)  # type: ignore[misc]
                assert await held(cluster, 6) <= limit, "more than there is"
                await crew.replace_one()
        await consumer.close()
        await consuming
    assert int((await pool(cluster))["peak_bytes"]) <= limit
    await cluster.purge("orders")

    async def back() -> bool:
        for name in await every_slice(cluster.store.server, cluster.namespace):
            address = Address.of(cluster.namespace, name)
            await cluster.store.reap(address)
            await cluster._pools.give_back(address, POOL)
        return await held(cluster, 6) == 0

    await wait_until(back, timeout=GUARD, description="everything is back")
