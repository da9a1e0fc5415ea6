"""What nobody calls any more is swept by nodes: here limiters, whose holds have leases of their own."""

import pytest

import headgate
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import HoldCall, LimiterStore
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.service.sweep import Sweep
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
