"""A queue over several slots, over a node: AMQP clients, and SDKs behind it, know of one queue."""

import asyncio
from functools import partial
from typing import Any

import pytest

import headgate
from headgate.amqp.link import Link
from headgate.policy import loads
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.stores.pools import PoolStore
from headgate.redis.stores.sliced_reads import every_slice
from tests.amqp.client import Peer, read
from tests.amqp.nodes import NodeProcess
from tests.remote.grants import B, C, M, P
from tests.remote.people import node_with, sdk_as
from tests.sdk.namespace.test_sliced_oversize import levels
from tests.sdk.namespace.test_sliced_resume import Sending, is_held_up, settle
from tests.sdk.observing import GUARD, field
from tests.support.waiting import wait_until


async def test_amqp_clients_receive_from_all_slices_those_included_that_come_later(
    node: NodeProcess, client: headgate.Client
) -> None:
    got: dict[str, list[int]] = {}

    def take(link: Link, message: bytes, delivery: Any) -> None:
        name, _, number = read(message).partition(" ")
        got.setdefault(name, []).append(int(number))
        link.settle(delivery)

    def all_came(count: int) -> bool:
        return sum(map(len, got.values())) == count

    await client.apply("orders", kind="queue", limit="64kB")
    peer = await Peer.connect(node.port)
    await peer.receiver("orders", take, credit=500)
    sessions = list[headgate.Session]()
    for slices in (1, 4):
        await client.apply("orders", slices=slices)
        sessions += [client.session(f"s{slices}-{number}") for number in range(4)]
        for at, session in enumerate(sessions):
            producer = await session.producer("orders")
            before = len(got.get(f"{at}", ()))
            for number in range(before, before + 10):
                await producer.send(f"{at} {number}", timeout=GUARD)
        count = 40 if slices == 1 else 120
        await wait_until(partial(all_came, count), timeout=GUARD)
    assert all(numbers == sorted(numbers) for numbers in got.values()), "each session's in order"
    sending = await peer.sender("orders")
    for number in range(5):
        assert (await peer.send(sending, f"amqp {number}"))[0] == "accepted"
    await wait_until(lambda: got.get("amqp") == [0, 1, 2, 3, 4], timeout=GUARD)
    await peer.close()
    for session in sessions:
        await session.close()
    assert await field(client, "orders", "pending_bytes") == 0


async def test_an_sdk_behind_a_node_sends_to_its_slice_and_receives_from_all(
    node: NodeProcess, client: headgate.Client
) -> None:
    await client.apply("orders", kind="queue", limit=5000, slices=3)
    url = f"amqp://127.0.0.1:{node.port}"
    async with (
        headgate.connect(url, namespace=client.namespace) as behind,
        behind.session("in") as into,
    ):
        consumer = await into.consumer("orders", window=5)
        sessions = [behind.session(f"s{number}") for number in range(3)]
        for session in sessions:
            producer = await session.producer("orders", window=100)
            for number in range(5):
                await producer.send(f"{number}" + "x" * 500, timeout=GUARD)
                message = await consumer.receive(timeout=GUARD)
                assert message is not None
                assert message.destination == "orders"
                await message.accept(confirm=True)
        assert len(await every_slice(client.store.server, client.namespace)) == 3
        assert [message.id async for message in behind.browse("orders")] == []
        told = await behind.explain("orders")
        assert told.limits[0].limit == 5000
        for session in sessions:
            await session.close()


async def test_users_with_narrow_rights_send_to_and_receive_from_slices_and_others_reach_none(
    redis_url: str, cleanup_namespace: str
) -> None:
    people = {"maker": {"orders": {P}}, "worker": {"orders": {C}}, "keeper": {"orders": {B, M}}}
    people |= {"other": {"other": {P, C, B, M}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply("orders", kind="queue", limit=1000, limit_messages=2, slices=3)
        async with sdk_as(node, "maker") as maker, sdk_as(node, "worker") as worker, worker.session() as into:
            consumer = await into.consumer("orders", window=5)
            for number in range(6):  # each has to get what the slices before hold of the limit
                async with maker.session() as session:
                    receipt = await (await session.producer("orders")).send("x" * 700, timeout=GUARD)
                    assert receipt.slice == number % 3
                    message = await consumer.receive(timeout=GUARD)
                    assert message is not None
                    await message.accept(confirm=True)
        async with sdk_as(node, "maker") as maker, maker.session() as a, maker.session() as b:
            ids = [(await (await session.producer("orders")).send("x", timeout=GUARD)).id for session in (a, b)]
        assert ids[1].startswith("1:")
        async with sdk_as(node, "keeper") as keeper, sdk_as(node, "other") as other:
            for id_ in ids:
                with pytest.raises(headgate.AccessDenied):
                    await other.delete_message("orders", id_)
                await keeper.delete_message("orders", id_)
                with pytest.raises(headgate.MessageUnavailable, match=f"message {id_} is not in 'orders'"):
                    await keeper.delete_message("orders", id_)
        async with sdk_as(node, "other") as other:
            server = other.store.server
            for name in ("orders", "orders#1"):
                key = Address.of(node.client.namespace, name).shared[0]
                with pytest.raises(headgate.AccessDenied):
                    await server.command(key, "HGETALL", key)
                with pytest.raises(headgate.AccessDenied):
                    await other.store.place(Address.of(node.client.namespace, name))
            with pytest.raises(headgate.AccessDenied):
                await PoolStore(server).fields(PoolAddress.of(node.client.namespace, "orders#0"))


async def test_an_amqp_client_sends_messages_above_the_limit(node: NodeProcess, client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", limit=1000, slices=3, oversize="allow-one")
    async with client.session() as session:
        await (await session.producer("orders", window=10)).send("x" * 600, timeout=GUARD)
        peer = await Peer.connect(node.port)
        sending = await peer.sender("orders")
        large = [asyncio.ensure_future(peer.send(sending, "x" * size)) for size in (3000, 2000)]
        consumer = await session.consumer("orders", window=5)
        for _ in range(3):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            if message.size > 1000:
                assert sorted(await levels(client, "orders", 3)) == [0, 0, message.size]
            await message.accept(confirm=True)
        assert [answer[0] for answer in await asyncio.gather(*large)] == ["accepted", "accepted"]
        await peer.close()


async def test_messages_above_the_limit_go_alone_from_users_behind_a_node(
    redis_url: str, cleanup_namespace: str
) -> None:
    people = {"maker": {"orders": {P}}, "worker": {"orders": {C}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply("orders", kind="queue", limit=1000, slices=3, oversize="allow-one")
        async with (
            sdk_as(node, "maker") as maker,
            sdk_as(node, "worker") as worker,
            worker.session() as into,
            maker.session() as a,
            maker.session() as b,
        ):
            consumer = await into.consumer("orders", window=5)
            sending = [
                asyncio.ensure_future((await session.producer("orders")).send("x" * size, timeout=GUARD))
                for session, size in ((a, 600), (b, 3000), (a, 2000), (b, 400))
            ]
            sizes = list[int]()
            for _ in sending:
                message = await consumer.receive(timeout=GUARD)
                assert message is not None
                sizes.append(message.size)
                if message.size > 1000:
                    assert sorted(await levels(node.client, "orders", 3)) == [0, 0, message.size]
                await message.accept(confirm=True)
            await asyncio.gather(*sending)
            assert sorted(size // 1000 for size in sizes) == [0, 0, 2, 3]


async def test_nobody_makes_slices_that_a_queue_does_not_have(redis_url: str, cleanup_namespace: str) -> None:
    """A queue counted once against its maker's bound, and had 47 slices that nobody saw, and nothing removed."""
    people = {"maker": {"orders": {P}, "box": {P}}, "keeper": {"orders": {M}}, "boss": {"#": {M}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply("orders", kind="queue", limit=1000, slices=3)
        for name, slice_ in (*((name, f"orders#{at}") for name in people for at in (3, 47)), ("maker", "box#1")):
            async with sdk_as(node, name) as sdk:
                part = Address.of(node.client.namespace, slice_)
                with pytest.raises(headgate.InvalidValue, match="has no slice"):
                    await sdk.store.apply(part, {"kind": "queue"}, mode="ensure", ttl_ms=1000)
        async with sdk_as(node, "maker") as maker:
            part = Address.of(node.client.namespace, "orders#2")
            await maker.store.apply(part, {"kind": "queue"}, mode="ensure", ttl_ms=1000)
        every = await every_slice(node.client.store.server, node.client.namespace)
        assert set(every) <= {"box", "orders", "orders#1", "orders#2"}


async def test_a_slice_that_was_lost_with_its_queue_is_made_again_over_a_node(
    redis_url: str, cleanup_namespace: str
) -> None:
    policy = loads('[[destination]]\nmatch = "orders"\nkind = "queue"\nlimit = "64kB"\nslices = 3\n', "sliced.toml")
    async with node_with(redis_url, cleanup_namespace, {"maker": {"orders": {P}}}) as node:
        await node.client.apply_policy(policy)
        async with sdk_as(node, "maker") as maker:
            part = Address.of(node.client.namespace, "orders#2")
            await maker.store.apply(part, {"kind": "queue"}, mode="recover", ttl_ms=1000)
            assert await field(node.client, "orders", "sliced") == 3


async def test_a_slice_is_not_removed_without_its_queue(client: headgate.Client) -> None:
    """Mutant: its messages and its part of the limit are lost, and the queue counts on it still."""
    await client.apply("orders", kind="queue", limit=1000, slices=3)
    for at in range(3):
        async with client.session(f"s{at}") as session:
            await (await session.producer("orders")).send("x", timeout=GUARD)
    with pytest.raises(headgate.InvalidName, match="'#2' stands for a slice; name 'orders'"):
        await client.remove("orders#2")
    assert len([message.id async for message in client.browse("orders")]) == 3


async def test_who_manages_a_queue_removes_it_with_its_accounts_at_pools(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutants: its accounts at pools stay, or the pool of its slices; only the first slice is gone."""
    async with node_with(redis_url, cleanup_namespace, {"keeper": {"orders": {M}}}) as node:
        await node.client.set_pool("memory", limit=10_000)
        await node.client.apply("orders", kind="queue", limit=1000, limit_messages=9, slices=3, pools="memory")
        for at in range(3):
            async with node.client.session(f"s{at}") as session:
                await (await session.producer("orders")).send("x", timeout=GUARD)
        async with sdk_as(node, "keeper") as keeper:
            await keeper.remove("orders")
        assert await node.client.destinations() == []
        store = PoolStore(node.client.store.server)
        for pool in ("orders#0", "orders#m"):
            assert await store.fields(PoolAddress.of(node.client.namespace, pool)) == {}
        assert await store.members(PoolAddress.of(node.client.namespace, "memory")) == []
        assert await every_slice(node.client.store.server, node.client.namespace) == []


async def test_what_a_queue_holds_of_pools_is_not_forgotten_while_it_is_there(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutants: its manager frees what it uses for others, and both together pass the limit; other queues' too."""
    async with node_with(redis_url, cleanup_namespace, {"keeper": {"orders": {M}}}) as node:
        await node.client.set_pool("memory", limit=10_000)
        for name in ("orders", "others"):
            await node.client.apply(name, kind="queue", limit_messages=9, slices=2, pools="memory")
            async with node.client.session() as session:
                await (await session.producer(name)).send("x" * 500, timeout=GUARD)
        async with sdk_as(node, "keeper") as keeper:
            store = PoolStore(keeper.store.server)
            for pool in ("memory", "orders#0", "orders#m"):
                for epoch in (0, 1 << 52):
                    code, served = await store.forget(PoolAddress.of(node.client.namespace, pool), "orders", epoch)
                    assert (code, served) == ("STALE", ())
            await store.set(PoolAddress.of(node.client.namespace, "orders#0"), {}, mode="remove")
            for pool, mode in (
                ("orders#0", "change"),
                ("orders#m", "change"),
                ("others#m", "remove"),
                ("memory", "remove"),
            ):
                with pytest.raises(headgate.AccessDenied, match="pool_set needs manage"):
                    await store.set(PoolAddress.of(node.client.namespace, pool), {}, mode=mode)  # type: ignore[arg-type]
            with pytest.raises(headgate.AccessDenied, match="pool_forget needs manage at 'others'"):
                await store.forget(PoolAddress.of(node.client.namespace, "memory"), "others", 1 << 52)
        direct = PoolStore(node.client.store.server)
        assert await direct.fields(PoolAddress.of(node.client.namespace, "orders#0"))
        members = await direct.members(PoolAddress.of(node.client.namespace, "memory"))
        assert {share.member for share in members} >= {"orders", "others"}


async def test_a_removal_that_died_is_finished_by_the_next(client: headgate.Client) -> None:
    """Mutant: the first slice goes first, and nobody knows of the others any more."""
    await client.apply("orders", kind="queue", limit=1000, slices=3)
    for at in range(3):
        async with client.session(f"s{at}") as session:
            await (await session.producer("orders")).send("x", timeout=GUARD)
    removed = list[str]()
    remove = client.store.remove

    async def dies(address: Address, *, everything: bool) -> Any:
        if removed:
            raise headgate.CoordinatorUnavailable("it died")
        removed.append(address.name)
        return await remove(address, everything=everything)

    client.store.remove = dies  # type: ignore[method-assign]
    with pytest.raises(headgate.CoordinatorUnavailable):
        await client.remove("orders")
    client.store.remove = remove  # type: ignore[method-assign]
    await client.remove("orders")
    assert await every_slice(client.store.server, client.namespace) == []


async def test_an_amqp_client_sends_on_once_a_full_queue_resumes(node: NodeProcess, client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", limit=3000, slices=3, resume_at="10%")
    pool = PoolAddress.of(client.namespace, "orders#0")
    async with client.session() as session:
        consumer = await session.consumer("orders", window=2)
        peer = await Peer.connect(node.port)
        sending = await peer.sender("orders")
        sent = [asyncio.ensure_future(peer.send(sending, "x" * 400)) for _ in range(20)]

        async def times() -> int:
            return int((await PoolStore(client.store.server).fields(pool)).get("full", 0))

        async def is_full() -> bool:
            return await times() % 2 == 1

        await wait_until(is_full, timeout=GUARD)
        for _ in sent:
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept(confirm=True)
        assert {answer[0] for answer in await asyncio.gather(*sent)} == {"accepted"}
        assert await times() >= 2
        await peer.close()


async def test_clients_and_users_of_nodes_wait_until_a_full_queue_resumes(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Neither may ask other slices itself: their node does."""
    people = {"maker": {"orders": {P}}, "worker": {"orders": {C}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply("orders", kind="queue", limit=3000, slices=3, resume_at="50%")
        async with (
            sdk_as(node, "maker") as maker,
            sdk_as(node, "worker") as worker,
            worker.session() as into,
            maker.session() as a,
            maker.session() as b,
        ):
            consumer = await into.consumer("orders", window=2)
            sending = Sending(*[await one.producer("orders", window=100) for one in (a, b)], body=b"x" * 200)
            await wait_until(lambda: is_held_up(node.client, 2), timeout=GUARD)
            sent = sending.count
            await settle(consumer, sent - 8)  # some 203 bytes each: seven are below the half
            assert sending.count == sent
            await settle(consumer, 1)
            await sending.goes_on(sent)
            await sending.end()
