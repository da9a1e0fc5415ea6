"""A queue over several slots spools at each slice: to one store, under one limit in memory, and one of references."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate.core.limits.spread import Spread
from headgate.core.names import slice_name
from headgate.redis.keys import Address, PoolAddress
from headgate.redis.replies import Credit
from headgate.redis.stores.spreads import SpreadStore
from headgate_coordinator.operate.audit import audit
from headgate_coordinator.operate.audit_stores import audit_stores
from headgate_coordinator.service.spool_sweep import SpoolSweep
from tests.sdk.observing import GUARD
from tests.sdk.spool.test_spool_crashes import crashed
from tests.support.spooled import PAYLOAD, body, number_of, references, segments, spooling, swept
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SLICES, EACH = 3, 40


async def send(client: headgate.Client, *, by_value: bool = False) -> int:
    """Send from a session at each slice; returns how many messages all slices have as references."""
    async with asyncio.timeout(2 * GUARD):
        for sender in range(SLICES):
            async with client.session(f"s{sender}") as session:
                producer = await session.producer("orders")
                headers = {"from": str(sender)}
                await asyncio.gather(*(producer.send(body(n), headers=headers, timeout=GUARD) for n in range(EACH)))
    return sum([len(await references(client, slice_name("orders", number))) for number in range(SLICES)])


async def take(client: headgate.Client, count: int = SLICES * EACH) -> dict[str, list[int]]:
    """Receive and settle so many; returns what came of each sender."""
    came: dict[str, list[int]] = {}
    async with client.session("out") as session, asyncio.timeout(2 * GUARD):
        consumer = await session.consumer("orders")
        for _ in range(count):
            message = await anext(consumer)
            assert message.body == body(number_of(message.body))
            came.setdefault(str(message.headers["from"]), []).append(number_of(message.body))
            await message.accept()
        await consumer.flush(timeout=GUARD)
    return came


ALL = {str(sender): list(range(EACH)) for sender in range(SLICES)}


@pytest.mark.parametrize("settings", [{}, {"order_by": "header:from"}], ids=["by session", "by value"])
async def test_what_each_sends_comes_in_order_with_its_payload_and_nothing_is_left(
    client: headgate.Client, tmp_path: Path, settings: dict[str, Any]
) -> None:
    await spooling(client, tmp_path, slices=SLICES, **settings)
    assert await send(client) > SLICES * EACH // 2
    pool = await client.parts.pools.store.fields(PoolAddress.of(client.namespace, "orders#0"))
    assert int(pool["peak_bytes"]) <= 20_000
    seen = [number_of(message.body) async for message in client.browse("orders")]
    assert sorted(seen) == sorted(n for n in range(EACH) for _ in range(SLICES))
    fields = (await client.explain("orders")).fields
    assert int(fields["spooled_bytes"]) == sum(path.stat().st_size for path in segments(tmp_path))
    assert await take(client) == ALL
    await swept(tmp_path)
    assert (await client.recount("orders")).equal
    assert [store.held for store in await client.stores()] == [0]


async def test_at_three_masters(cluster_url: str, cleanup_namespace: str, tmp_path: Path) -> None:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        await spooling(client, tmp_path, slices=SLICES)
        assert await send(client) > 0
        assert await take(client) == ALL
        await swept(tmp_path)


async def test_references_of_all_slices_are_within_their_limit(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: each slice has the whole of it."""
    await spooling(client, tmp_path, slices=SLICES, limit_references=1200)
    async with client.session("a") as a, client.session("b") as b, client.session("c") as c:
        producers = [await session.producer("orders") for session in (a, b, c)]
        sending = [
            asyncio.ensure_future(producer.send(body(n), headers={"from": str(at)}, timeout=600))
            for at, producer in enumerate(producers)
            for n in range(EACH)
        ]
        await wait_until(lambda: all("references" in producer.reason for producer in producers), timeout=GUARD)
        assert 0 < int((await client.explain("orders")).fields["reference_bytes"]) <= 1200
        assert {sender: len(came) for sender, came in (await take(client)).items()} == dict.fromkeys(ALL, EACH)
        await asyncio.gather(*sending)
    await swept(tmp_path)


async def test_audits_and_sweeps_see_the_segments_of_each_slice(client: headgate.Client, tmp_path: Path) -> None:
    """Mutant: those of others than the first are taken for nobody's."""
    await spooling(client, tmp_path, slices=SLICES)
    assert await send(client) > 0
    there = segments(tmp_path)
    sweep = SpoolSweep(client, "n1", client.destinations)
    await sweep.orphans()
    (finding,) = await audit_stores(client, repair=True)
    assert (finding.verdict, finding.segments, finding.waiting, finding.orphans) == ("equal", len(there), {}, [])
    assert segments(tmp_path) == there
    found = {one.destination: one for one in await audit(client, repair=False)}
    assert found["orders"].verdict == "equal"
    assert found["orders"].counted["spooled_bytes"] == sum(path.stat().st_size for path in there)
    assert await take(client) == ALL


async def test_a_purge_and_a_deletion_free_the_store_at_each_slice(client: headgate.Client, tmp_path: Path) -> None:
    await spooling(client, tmp_path, slices=SLICES)
    await send(client)
    ids = [browsed.id async for browsed in client.browse("orders")]
    await client.delete_message("orders", ids[-1])
    assert len([browsed async for browsed in client.browse("orders")]) == SLICES * EACH - 1
    await client.purge("orders")
    await swept(tmp_path)


async def test_slices_that_come_and_go_keep_what_was_spooled(client: headgate.Client, tmp_path: Path) -> None:
    await spooling(client, tmp_path)
    async with client.session("s0") as session:
        producer = await session.producer("orders")
        await asyncio.gather(*(producer.send(body(n), headers={"from": "first"}, timeout=GUARD) for n in range(EACH)))
    await client.apply("orders", slices=SLICES)
    assert await send(client) > 0
    await client.apply("orders", slices=1)
    assert await take(client, (SLICES + 1) * EACH) == ALL | {"first": list(range(EACH))}
    await swept(tmp_path)


@pytest.mark.parametrize("trouble", ["deaf", "late"])
async def test_a_segment_goes_where_its_values_say_once_slices_have_changed(
    client: headgate.Client, other: headgate.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    """It costs no credit, so no change waits for it: its sender did not hear of one, or its call comes after it."""
    await spooling(client, tmp_path, memory=PAYLOAD // 2, slices=2, order_by="header:from")
    publish, is_in_force = other.store.publish, asyncio.Event()

    async def publish_late(*args: Any, **options: Any) -> Credit:
        if options["segment"] != "-":
            await is_in_force.wait()
        return await publish(*args, **options)

    if trouble == "deaf":
        monkeypatch.setattr(other.parts.registry, "_doubt", lambda *_: None)
    async with client.session("a") as a, other.session("b") as b:
        prompt, slow = await a.producer("orders"), await b.producer("orders")

        async def send(producer: headgate.Producer) -> list[int]:
            sends = [producer.send(body(n), headers={"from": str(n)}, timeout=2 * GUARD) for n in range(12)]
            return [receipt.slice for receipt in await asyncio.gather(*sends)]

        async def is_spread_anew() -> bool:
            now, _ = await SpreadStore(client.store.server).in_force(Address.of(client.namespace, "orders"))
            return now == Spread(2, 7, "header:from")

        assert await send(slow) == await send(prompt)
        taking = asyncio.ensure_future(take(client, 60))
        if trouble == "late":
            monkeypatch.setattr(other.store, "publish", publish_late)
        late = asyncio.ensure_future(send(slow)) if trouble == "late" else None
        await client.apply("orders", slices=7)
        await send(prompt)
        await wait_until(is_spread_anew, timeout=GUARD)
        where = await send(prompt)
        is_in_force.set()
        assert await (late or send(slow)) == where
        await taking
    await swept(tmp_path)


@pytest.mark.parametrize("step", ["after-hold", "after-write", "after-publish"])
async def test_who_dies_at_a_step_of_spooling_at_a_slice_leaves_what_has_receipts_and_no_more(
    client: headgate.Client, tmp_path: Path, redis_url: str, step: str
) -> None:
    """Mutant: who holds a segment is looked for at the first slice, so it is an orphan too soon, or never."""
    await spooling(client, tmp_path, memory=64 << 10, slices=SLICES)
    await client.store.place(Address.of(client.namespace, "orders"))  # the first slice is another's
    confirmed = await crashed(redis_url, client.namespace, step, 3)
    spools, came = client.parts.registry.spooling, set[int]()
    store = await spools.spools.get("disk")
    parts = [Address.of(client.namespace, slice_name("orders", number)) for number in range(SLICES)]
    async with client.session("after") as session:
        consumer = await session.consumer("orders")

        async def nothing_is_left() -> bool:
            while message := await consumer.receive(timeout=0.05):
                came.add(number_of(message.body))
                await message.accept()
            await spools.sweeper.sweep_orphans(store)
            for address in (store.address, *parts):
                await client.store.reap(address)
                if address is not store.address:
                    await spools.sweeper.sweep(address)
            counts = [await client.store.recount(address) for address in (store.address, *parts)]
            assert all(count.equal for count in counts), counts
            return not segments(tmp_path) and not any(count.stored[0] for count in counts)

        await wait_until(nothing_is_left, timeout=2 * GUARD)
    assert came >= set(confirmed)


async def test_messages_of_all_slices_are_within_their_limit_wherever_their_payloads_are(
    client: headgate.Client, other: headgate.Client, tmp_path: Path
) -> None:
    """Each reference is a message.

    Mutants: a slice has all that the limit says; it is lent none while it lacks bytes; `explain` says that it spools.
    """
    most = 50
    await spooling(client, tmp_path, slices=SLICES, limit_messages=most)
    async with client.session("a") as a, client.session("b") as b, other.session("c") as c:
        producers = [await session.producer("orders") for session in (a, b, c)]
        sending = [
            asyncio.ensure_future(producer.send(body(n), headers={"from": str(at)}, timeout=600))
            for at, producer in enumerate(producers)
            for n in range(EACH)
        ]
        await wait_until(lambda: sum(one.done() for one in sending) == most, timeout=GUARD)
        fields = (await client.explain("orders")).fields
        assert (int(fields["pending_messages"]), int(fields["reference_bytes"]) > 0) == (most, True)
        assert "limit of 50 messages is reached" in str(await client.explain("orders")).partition("\n")[0]
        assert {sender: len(came) for sender, came in (await take(client)).items()} == dict.fromkeys(ALL, EACH)
        await asyncio.gather(*sending)
        pool = await client.parts.pools.store.fields(PoolAddress.of(client.namespace, "orders#m"))
        assert int(pool["peak_bytes"]) <= most
    await swept(tmp_path)


@pytest.mark.parametrize(
    ("before", "late"), [({"limit_messages": 5}, "b"), ({}, "a")], ids=["more messages", "a limit in messages"]
)  # fmt: skip
async def test_who_waits_for_memory_spools_once_a_store_is_named(
    client: headgate.Client, tmp_path: Path, before: dict[str, Any], late: str
) -> None:
    """Mutants: `Refills.begin` leaves a refill the order of its pools; what is in hand is not for references."""
    await spooling(client, tmp_path, memory=6 * PAYLOAD, slices=SLICES, when_full="block", store="default", **before)
    async with client.session("a") as a, client.session("b") as b, asyncio.timeout(GUARD):
        producers = {session.name: await session.producer("orders") for session in (a, b)}
        senders = ["a"] * 5 + [late] * 15
        sending = [asyncio.ensure_future(producers[one].send(body(n), timeout=GUARD)) for n, one in enumerate(senders)]
        await wait_until(lambda: sum(one.done() for one in sending) == 5, timeout=GUARD)
        await asyncio.sleep(0.5)  # the slice of the second asks its pools by now
        await client.apply("orders", when_full="spool", store="disk", limit_messages=30)
        await asyncio.wait_for(asyncio.gather(*sending), 3)


async def test_what_never_fits_in_memory_is_lent_a_message_at_its_slice(
    client: headgate.Client, tmp_path: Path
) -> None:
    """Mutants: it asks for nothing, so nothing is lent; who looks for room takes what it holds itself for another's."""
    await spooling(client, tmp_path, slices=SLICES, memory=PAYLOAD // 2, limit_messages=5)
    async with client.session("a") as session, asyncio.timeout(GUARD):
        producer = await session.producer("orders")
        await asyncio.gather(*(producer.send(body(n), timeout=GUARD) for n in range(5)))
        with pytest.raises(headgate.CreditTimeout):
            await producer.send(body(5), timeout=0.5)
    assert int((await client.explain("orders")).fields["pending_messages"]) == 5


async def test_a_message_larger_than_the_store_is_refused_by_the_name_of_its_queue(
    client: headgate.Client, tmp_path: Path
) -> None:
    """Nobody knows the slice that it was for. Mutant: `Writer` names its slice."""
    await client.set_store("disk", tmp_path.as_uri(), limit=50_000)
    await client.apply("orders", kind="queue", limit="8KiB", when_full="spool", store="disk", slices=SLICES)
    for number in range(2):
        async with client.session(f"s{number}") as session:
            producer = await session.producer("orders")
            with pytest.raises(headgate.MessageTooLarge, match="'orders'"):
                await producer.send(bytes(60_000), timeout=GUARD)
