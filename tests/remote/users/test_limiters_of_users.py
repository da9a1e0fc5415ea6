"""Limiters over a node: each user's holds are its own, and a narrow grant is enough to be admitted."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from headgate import AccessDenied, Hold, InvalidValue, Settings, Shed
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import HoldCall, LimiterStore
from headgate_coordinator.node.conditions import condition_of
from headgate_coordinator.node.node import Node
from tests.remote.grants import B, M, P
from tests.remote.people import node_with, sdk_as
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
LLM = Settings(kind="limiter", limits={"in_flight": {"at_once": 4}})


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    people = {
        "ann": {"llm": {P}, "db": {P}, "mail": {P}},
        "bob": {"llm": {P}},
        "eve": {"llm": {B}},
        "boss": {"#": {P, M}},
    }
    async with node_with(redis_url, cleanup_namespace, people) as node:
        await node.client.apply("llm", LLM)
        await node.client.apply("other", LLM)
        yield node


async def test_whoever_may_produce_is_admitted_there_and_nowhere_else(node: Node) -> None:
    async with sdk_as(node, "ann") as ann, ann.session("s") as session:
        llm = await session.limiter("llm", in_hand=False)
        async with llm.admit(in_flight=1) as hold:
            assert hold.id.startswith("ann~")
            assert (await llm.state())["in_flight"].taken == 1
        with pytest.raises(AccessDenied):
            await session.limiter("other")
    async with sdk_as(node, "eve") as eve, eve.session("s") as session:
        try:
            llm = await session.limiter("llm")
        except AccessDenied:
            return
        with pytest.raises(AccessDenied):
            await llm.admit(in_flight=1)
        with pytest.raises(AccessDenied):
            await llm.hold_off(60)


async def test_a_call_that_is_shed_hears_why_over_a_node_too(node: Node) -> None:
    """To a client that knows AMQP alone the same is said by a condition."""
    await node.client.apply("llm", shed={"6": 0.25})
    async with sdk_as(node, "bob") as bob, bob.session("s") as session:
        llm = await session.limiter("llm", in_hand=False)
        async with llm.admit(in_flight=1):
            with pytest.raises(Shed, match="'in_flight' is filled to 25%, where band 7 is shed") as shed:
                await llm.admit(in_flight=1, band=7, timeout=GUARD)
    assert (shed.value.band, shed.value.limit, shed.value.fill) == (7, "in_flight", 0.25)
    assert condition_of(shed.value) == ("amqp:resource-limit-exceeded", str(shed.value))


async def test_a_hold_of_another_user_is_neither_seen_nor_released(node: Node) -> None:
    async with sdk_as(node, "ann") as ann, sdk_as(node, "bob") as bob, ann.session("a") as one, bob.session("b") as two:
        hold = await (await one.limiter("llm", in_hand=False)).admit(in_flight=1)
        theirs = await two.limiter("llm", in_hand=False)
        with pytest.raises(AccessDenied, match="not yours"):
            await theirs.hold(hold.id)
        levels = await LimiterStore(bob.store.server).levels(Address.of(bob.namespace, "llm"), most=1000)
        assert levels is not None
        assert (levels.holds, levels.records, levels.line, levels.own) == ({}, {}, (), {})
        assert (await theirs.state())["in_flight"].taken == 1
        assert isinstance(await theirs.attempt(in_flight=1), Hold)
        assert not hold.lost
        async with sdk_as(node, "boss") as boss, boss.session("c") as third:
            taken = await (await third.limiter("llm")).hold(hold.id)
            await taken.renew(20)
            levels = await LimiterStore(boss.store.server).levels(Address.of(boss.namespace, "llm"), most=1000)
            assert levels is not None
            assert hold.id in levels.holds


async def test_one_user_carries_a_hold_to_another_process_of_its_own(node: Node) -> None:
    async with sdk_as(node, "ann") as here, sdk_as(node, "ann") as there:
        async with here.session("a") as one:
            name = await (await (await one.limiter("llm", in_hand=False)).admit(in_flight=2)).hand_over(ttl=30)
        async with there.session("b") as two:
            llm = await two.limiter("llm")
            (await llm.hold(name)).release()
            async with llm.admit(in_flight=4, timeout=30):
                pass


async def test_keys_of_a_gate_and_a_bucket_over_a_node(node: Node) -> None:
    """Mutants: a user without the right to produce takes a turn; another script is called for what is beside a gate."""
    await node.client.apply("db", Settings(kind="gate", limit=4, key_limits={"bytes": {"at_once": 1}}))
    await node.client.apply("mail", Settings(kind="bucket", rate="1/min", burst=2))
    async with sdk_as(node, "ann") as ann, ann.session("s") as session:
        gate, bucket = await session.gate("db"), await session.bucket("mail")
        async with gate.admit(key="t"):
            assert not await gate.attempt(key="t")
            assert (await gate.state(key="t")).key_limits["bytes"].taken == 1
        assert await bucket.try_take(key="t") is True
        assert await bucket.hold_off(60) == 60
        assert not await bucket.try_take()
        assert await gate.hold_off(60, reason="429") == 60
        assert not await gate.attempt(key="u")
        for wrong in (ann.store.remove(Address.of(ann.namespace, "db").by_key, everything=True),
                      ann.store.reap(Address.of(ann.namespace, "db").by_key)):  # fmt: skip
            with pytest.raises((AccessDenied, InvalidValue)):
                await wrong
    async with sdk_as(node, "bob") as bob:
        address = Address.of(bob.namespace, "db")
        call = HoldCall("admit", f"{bob.store.server.session_prefix}s~12345678.1", "t", "bytes=1", 5000)
        with pytest.raises(AccessDenied):
            await LimiterStore(bob.store.server).admit(address.by_key, call.id[:-2], seq=1, epoch=0, calls=[call])
        with pytest.raises(AccessDenied):
            await LimiterStore(bob.store.server).pause(address, call.id[:-2], ms=1000, reason="")
        with pytest.raises(AccessDenied):
            await LimiterStore(bob.store.server).levels(address.by_key)
    async with sdk_as(node, "boss") as boss:
        await boss.remove("db")
        await boss.remove("mail")


async def test_whoever_does_not_manage_sees_levels_and_what_binds_and_of_keys_and_sessions_only_its_own(
    node: Node,
) -> None:
    """Mutants: holds of any session that is named are shown; keys in line are; the ledger, and who is first, are."""
    async with sdk_as(node, "ann") as ann, sdk_as(node, "bob") as bob, ann.session("a") as one, bob.session("b") as two:
        limiter = await one.limiter("llm", in_hand=False)
        hold = await limiter.admit(in_flight=4, key="secret")
        waiting = asyncio.create_task(limiter.admit(in_flight=1, key="hidden", timeout=60).__aenter__())

        async def in_line() -> bool:
            return (await limiter.state()).waiting == 1

        await wait_until(in_line)
        seen = await bob.explain("llm")
        assert seen.limiter is not None
        assert (seen.cause, seen.blocked, seen.limiter.binding) == ("limit-at-once", 1, "in_flight")
        assert (seen.limiter.top, seen.limiter.line, seen.limiter.holders, seen.limiter.own) == ((), (), (), ())
        for word in ("secret", "hidden", "ann~"):
            assert word not in str(seen)
            assert word not in str(seen.as_dict())
        address = Address.of(bob.namespace, "llm")
        snapshot = await bob.store.snapshot(address, entries=100)
        assert snapshot is not None
        assert (snapshot.waiters, snapshot.ledger) == ([], ())
        with pytest.raises(AccessDenied, match="first in the line"):
            await bob.store.server.command(address.key.encode(), "HMGET", address.key, "kind", "front")
        with pytest.raises(InvalidValue, match="neither holds"):
            await bob.explain("llm", producer=one.id)
        mine = (await ann.explain("llm", producer=one.id)).limiter
        assert mine is not None
        assert sorted(str(own.key) for own in mine.own) == ["hidden", "secret"]
        async with sdk_as(node, "boss") as boss:
            told = str(await boss.explain("llm"))
            assert f"{one.id} has in_flight 4 for key secret" in told
            assert f"1. key hidden: 1 waiting, the first ({one.id})" in told
        async with sdk_as(node, "eve") as eve:
            with pytest.raises(AccessDenied):
                await eve.explain("other")
        hold.release()
        (await waiting).release()
        assert two.id.startswith("bob~")
