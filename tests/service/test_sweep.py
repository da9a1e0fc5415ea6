"""What nobody calls any more is swept by nodes: here limiters, whose holds have leases of their own."""

from pathlib import Path

import pytest

import headgate
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate.redis.stores.limiters import HoldCall, LimiterStore
from headgate.redis.stores.nodes import PARTS
from headgate.redis.stores.sliced_reads import every_slice
from headgate_coordinator.fleet.node_facts import NodeFacts
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.fleet.reply_queues import reply_queue
from headgate_coordinator.service.sweep import Sweep, SweepTurn, within
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_a_round_ends_holds_that_nobody_renews_and_deletes_keys_that_are_whole(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutants: a round looks at leases alone, and a key that was refilling stays; it does not look at limiters."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        limits = {"slots": {"at_once": 9}, "tokens": {"rate": "100/s"}}
        await client.apply("llm", kind="limiter", limits=limits, key_limits={"tokens": {"rate": "20/s"}})
        store, address = LimiterStore(client.store.server), Address.of(cleanup_namespace, "llm")
        calls = [
            HoldCall("admit", "dead~1.1", "held", "slots=9", 1000),
            HoldCall("admit", "dead~1.2", "refilling", "tokens=20", 1000),
            HoldCall("release", "dead~1.2"),
        ]
        answers = await store.admit(address, "dead~1", seq=1, epoch=0, calls=calls)
        assert answers.answers == ("held", "held", "ok")
        sweep = Sweep(client, NodeRegistry(client), "this", set)

        async def nothing_is_left() -> bool:
            await sweep.round()
            levels = await store.levels(address, most=100)
            return levels is not None and (levels.holds, levels.keys) == ({}, 0)

        await wait_until(nothing_is_left, timeout=GUARD)
        levels = await store.levels(address, most=100)
        assert levels is not None
        assert levels.limits[0].split()[5] == "0", "the slots are free again"


async def test_a_round_ends_turns_of_keys_at_a_gate_that_nobody_renews(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: a round looks at the gate alone."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply("db", kind="gate", limit=9)
        store, address = LimiterStore(client.store.server), Address.of(cleanup_namespace, "db").by_key
        call = HoldCall("admit", "dead~1.1", "tenant", "bytes=9,calls=1", 1000)
        assert (await store.admit(address, "dead~1", seq=1, epoch=0, calls=[call])).answers == ("held",)
        sweep = Sweep(client, NodeRegistry(client), "this", set)

        async def nothing_is_left() -> bool:
            await sweep.round()
            levels = await store.levels(address, most=100)
            return levels is not None and (levels.holds, levels.keys) == ({}, 0)

        await wait_until(nothing_is_left, timeout=GUARD)
        await client.remove("db")


async def test_a_round_ends_leases_at_a_spool_store_that_nobody_calls(
    redis_url: str, cleanup_namespace: str, tmp_path: Path
) -> None:
    """Mutant: a round looks at destinations alone."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.set_store("disk", f"file://{tmp_path}", limit="1MiB")
        address = Address.of_store(cleanup_namespace, "disk")
        await client.store.acquire(address, Account("dead~1", 1, 0, want=10, want_m=1), ttl_ms=1000)
        (store,) = await client.stores()
        assert store.leased == 10
        sweep = Sweep(client, NodeRegistry(client), "this", set)

        async def nothing_is_leased() -> bool:
            await sweep.round()
            (store,) = await client.stores()
            return store.leased == 0

        await wait_until(nothing_is_leased, timeout=GUARD)


async def test_parts_of_the_sweep_are_shared_by_nodes_and_all_are_looked_at(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutant: a node looks at all destinations, whichever parts fell to it."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        names = [f"q{number}" for number in range(64)]
        parts = list(range(PARTS))
        ours, theirs = within(parts[:3], names), within(parts[3:], names)
        assert sorted(ours + theirs) == sorted(names)
        assert ours
        assert theirs
        for name in (ours[0], theirs[0]):
            await client.apply(name, kind="queue", limit="1KiB")
            address = Address.of(cleanup_namespace, name)
            await client.store.acquire(address, Account("dead~1", 1, 0, want=10, want_m=1), ttl_ms=1000)
        sweep = Sweep(client, NodeRegistry(client), "this", set)

        async def held(name: str) -> int:
            snapshot = await client.store.snapshot(Address.of(cleanup_namespace, name), waiters=0, consumers=0)
            assert snapshot
            return int(snapshot.fields["leased_bytes"])

        async def ours_is_swept() -> bool:
            await sweep.round(parts[:3])
            return not await held(ours[0])

        await wait_until(ours_is_swept, timeout=GUARD)
        assert await held(theirs[0]) > 0, "that one is another node's"


async def test_a_reply_queue_of_a_dead_node_goes_after_two_rounds_of_whoever_saw_it(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Its part may be another node's by then. Mutant: only those of the parts at hand are looked at again."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        registry = NodeRegistry(client)
        await registry.beat(NodeFacts("alive~1", "node:5672", "", 0.0, "ready"), 0.0)
        dead, alive = reply_queue("gone~1"), reply_queue("alive~1")
        for name in (dead, alive):
            await client.apply(name, kind="queue")
        sweep = Sweep(client, registry, "this", set)
        await sweep.round()
        assert {dead, alive} == set(await every_slice(client.store.server, client.namespace))
        await sweep.round(())
        assert await every_slice(client.store.server, client.namespace) == [alive]


async def test_a_turn_is_taken_once() -> None:
    turn = SweepTurn()
    turn.add([1, 2])
    turn.add([2, 3])
    assert sorted(turn.take()) == [1, 2, 3]
    assert not turn.take()


async def test_a_round_goes_on_until_no_lease_of_a_destination_is_over(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: a round sweeps once, and the sessions of a cluster that died are looked at for minutes."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client, client.session() as session:
        await (await session.producer("orders")).send(b"x", timeout=GUARD)
        left = [7000, 0, 0, 0]

        async def reap(_: Address) -> tuple[str, int]:
            return "OK", left.pop()

        monkeypatch.setattr(client.store, "reap", reap)
        await Sweep(client, NodeRegistry(client), "this", set).round()
        assert left == []
