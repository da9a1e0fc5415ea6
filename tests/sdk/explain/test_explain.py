"""What an explanation tells beside its cause: who set it, who holds it, since when, and what would free it."""

import asyncio
import io
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

import headgate
from headgate import CreditTimeout, InvalidValue, PolicyError
from headgate_coordinator.operate.status import StatusData, render
from tests.sdk.observing import GUARD, drain, waiting
from tests.sdk.scene import TTL_MS, Scene
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_the_rule_that_set_what_binds_is_named(scene: Scene) -> None:
    rules = "limit_bytes=orders.#@shop.toml:4;limit_messages=#@base.toml:2;stopped=orders@shop.toml:9"
    await scene.make(limit_bytes="1000", limit_messages="500", policy=rules)
    await scene.send("filler", 1000)
    await scene.wait("waiter", 50)
    told = await scene.client.explain("orders")
    assert told.rule == "orders.# (shop.toml:4)"
    assert told.binding is not None
    assert told.binding.rule == told.rule
    assert [limit.rule for limit in told.limits] == ["orders.# (shop.toml:4)", "# (base.toml:2)"]
    assert "set by orders.# (shop.toml:4)" in str(told)
    assert "messages: 1 pending + 0 leased of 500 (set by # (base.toml:2))" in str(told)
    await scene.fields(stopped="audit")
    assert (await scene.client.explain("orders")).rule == "orders (shop.toml:9)"


@pytest.mark.parametrize("limits", [{"limit_bytes": "1000"}, {"limit_messages": "10"}])
async def test_what_it_says_would_free_it_frees_it_and_less_does_not(scene: Scene, limits: dict[str, str]) -> None:
    await scene.make(**limits)
    await scene.send("filler", *[100] * 10)
    await scene.wait("waiter", 70)
    told = await scene.client.explain("orders")
    field = next(iter(limits))
    assert told.settle is not None
    assert told.raise_to is not None
    assert told.settle == (70 if field == "limit_bytes" else 1)
    for limit, blocked in ((told.raise_to - 1, 1), (told.raise_to, 0)):
        await scene.store.apply(scene.address, {field: str(limit)}, mode="change", ttl_ms=TTL_MS)
        assert (await scene.client.explain("orders")).blocked == blocked


async def test_above_the_limit_what_is_pending_is_to_be_settled_and_the_message_has_its_whole_size(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Mutant: it is to fit under the limit."""
    await client.apply("orders", limit=1000, oversize="allow-one")
    async with client.session("a") as session, other.session("b") as second:
        producer, beside = await session.producer("orders"), await second.producer("orders")
        await beside.send(bytes(200))
        large = asyncio.ensure_future(producer.send(bytes(3000), timeout=GUARD))
        await wait_until(lambda: waiting(client, "orders"))
        for options in ({}, {"producer": session.id}):
            told = await client.explain("orders", **options)
            in_use, lacks = told.limits[0], told.waiters[0].needs
            of_others = in_use.leased - (3004 - lacks)
            assert (told.cause, told.settle) == ("oversize", in_use.pending + of_others), told
            assert told.raise_to == in_use.pending + in_use.leased + lacks
            assert "a message of 3004 bytes is larger than that" in told.reason
            assert told.remedy.startswith(f"settle {in_use.pending} bytes")
        with pytest.raises(headgate.CreditTimeout, match=r"a message of 3004 bytes .*; settle 203 bytes") as caught:
            await producer.send(bytes(3000), timeout=0.3)
        assert caught.value.explanation is not None
        assert caught.value.explanation.cause == "oversize"
        await client.purge("orders")
        await large


@pytest.mark.parametrize(("holds", "gate"), [(0, False), (7, False), (60, True)])
@pytest.mark.parametrize("in_hand", [0, 20])
async def test_above_the_limit_credit_of_others_is_to_be_released(
    scene: Scene, holds: int, in_hand: int, gate: bool
) -> None:
    """Mutants: what the message has in hand is not a part of it, or is for others to give back."""
    await scene.make("gate" if gate else "queue", limit_bytes="100", oversize="allow-one")
    if holds:
        await scene.lease("holder", holds)
    if not gate:
        await scene.send("filler", 50)
    if in_hand:
        await scene.lease("large", in_hand)
    await scene.wait("large", 400)
    told, pending = await scene.client.explain("orders"), 0 if gate else 50
    ways = {0: "settle 50 bytes", 7: "settle 50 bytes and release 7 bytes", 60: "release 60"}
    assert told.remedy == f"{ways[holds]}, or raise limit to {pending + holds + 400}"
    assert told.settle == pending + holds
    alone = "a call of 400 {}nothing else is admitted" if gate else "a message of 400 bytes {}nothing else is pending"
    assert alone.format("is larger than that, and goes alone once ") in told.reason
    assert told.waiters[0].needs == 400 - in_hand


async def test_what_a_gate_has_of_a_pool_is_to_be_released(scene: Scene) -> None:
    await scene.make("gate", limit_bytes="1000")
    await scene.lease("holder", 800)
    await scene.part("slices", memory="granted=900 returned=100")
    await scene.fields(pools="memory", blocked=1)
    told = await scene.client.explain("orders")
    assert told.remedy == "release 1 here or elsewhere in pool memory, or enlarge the pool"


async def test_credit_for_messages_is_told_where_their_number_has_a_limit(scene: Scene) -> None:
    """Mutants: it is told as no bytes; it is told where it means nothing."""
    await scene.make(limit_bytes="1000", limit_messages="10")
    await scene.send("filler", 850)
    await scene.lease("holder", 50)
    await scene.lease("counts", 0, 3)
    for field in ("granted", "used"):  # it has sent something before
        await scene.rewrite("counts", field, 9)
    await scene.wait("waiter", 200)
    told = str(await scene.client.explain("orders"))
    assert "\n  messages: 1 pending + 4 leased of 10\n" in told
    assert "\n  counts holds credit for 3 messages\n" in told
    mine = str(await scene.client.explain("orders", producer="counts"))
    assert "\n  counts: not in line, holds credit for 3 messages\n" in mine
    await scene.store.apply(scene.address, {"limit_messages": "unlimited"}, mode="change", ttl_ms=TTL_MS)
    told = str(await scene.client.explain("orders"))
    assert "\n  messages: 1 pending of unlimited\n" in told
    assert "holder holds credit for 50 bytes" in told
    assert "counts holds" not in told
    mine = str(await scene.client.explain("orders", producer="counts"))
    assert "\n  counts: not in line, holds credit for 0 bytes\n" in mine


async def test_a_session_that_has_credit_for_messages_is_not_told_to_wait_for_it(scene: Scene) -> None:
    await scene.make(limit_bytes="1000", limit_messages="12")
    async with scene.client.session("shop") as session:
        producer = await session.producer("orders")
        await producer.send(b"x" * 900)
        waits = asyncio.ensure_future(producer.send(b"x" * 900, timeout=GUARD))
        await wait_until(lambda: waiting(scene.client, "orders"))
        for options in ({}, {"producer": session.id}):
            told = await scene.client.explain("orders", **options)
            assert told.limits[1].leased > 0, "it holds credit for all the messages that are left"
            assert {reason.limit.unit for reason in told.causes if reason.limit} == {"bytes"}
        await scene.client.purge("orders")
        await waits


async def test_nobody_is_told_to_wait_for_credit_that_it_has_itself(client: headgate.Client) -> None:
    await client.apply("news", kind="topic", limit=500)
    async with client.session("reader") as reader, client.session("shop") as session:
        await (await reader.consumer("news", subscription="audit", durable=True)).close()
        now = await reader.consumer("news")
        producer = await session.producer("news")
        await producer.send(b"x" * 300)
        message = await now.receive(timeout=GUARD)
        assert message is not None
        await message.accept(confirm=True)
        waits = asyncio.ensure_future(producer.send(b"x" * 300, timeout=GUARD))
        await wait_until(lambda: waiting(client, "news"))
        for told in (await client.explain("news"), await client.explain("news", producer=session.id)):
            assert told.limits[0].leased > 0, "it holds what is free"
            assert told.cause == "slow-subscription", told
        await client.unsubscribe("news", "audit")
        await waits


async def test_a_timeout_tells_what_would_have_helped(scene: Scene) -> None:
    await scene.make(limit_bytes="1000")
    async with scene.client.session("shop") as session:
        producer = await session.producer("orders")
        await producer.send(b"x" * 900)
        await scene.client.block("orders", "audit")
        with pytest.raises(CreditTimeout, match=r"stopped by hand: audit; lift it with: headgate unblock orders$"):
            await producer.send(b"x" * 900, timeout=0.5)


async def test_holders_are_the_five_that_hold_most(scene: Scene) -> None:
    await scene.make(limit_bytes="100000")
    for number in range(1, 8):
        await scene.lease(f"holder-{number}", number * 100)
    for number in range(1, 8):
        await scene.send(f"filler-{number}", *[10] * number)
        await scene.consume(f"in-{number}", "100/unlimited", number)
    told = await scene.client.explain("orders")
    assert [(one.session, one.bytes) for one in told.leasers] == [(f"holder-{n}", n * 100) for n in (7, 6, 5, 4, 3)]
    assert [(one.consumer, one.messages) for one in told.consumers] == [(f"in-{n}.1", n) for n in (7, 6, 5, 4, 3)]


async def test_the_pace_tells_when_it_unblocks_and_what_a_consumer_does(scene: Scene) -> None:
    await scene.make(limit_bytes="1000")
    await scene.send("filler", *[100] * 10)
    await scene.consume("in", "100/unlimited")
    await scene.wait("waiter", 500)
    assert (await scene.client.explain("orders")).unblocks_in is None  # nothing was settled yet
    await scene.settle("in", 2)
    told = await scene.client.explain("orders")
    assert told.freed_per_second is not None
    assert told.unblocks_in == pytest.approx(300 / told.freed_per_second)
    (consumer,) = told.consumers
    assert consumer.rate == pytest.approx(told.freed_per_second / 100)
    assert "  12300 bytes are freed a second" in str(replace(told, freed_per_second=12_345.6)).splitlines()


async def test_what_is_for_later_is_not_settled_at_the_present_pace(scene: Scene) -> None:
    await scene.make(limit_bytes="1000")
    await scene.send("filler", *[100] * 10)
    await scene.consume("in", "100/unlimited")
    await scene.wait("waiter", 500)
    await scene.settle("in", 2)
    await scene.fields(later=4, next_due=await scene.us() // 1000 + 600_000)
    assert ((await scene.client.explain("orders")).unblocks_in or 0) < 60, "of 800 bytes 400 are ready"
    await scene.fields(later=6)
    assert (await scene.client.explain("orders")).unblocks_in == pytest.approx(600, abs=60)


async def test_dropped_messages_are_told(scene: Scene) -> None:
    await scene.make()
    await scene.lease("ann", 10)
    await scene.store.drop(scene.address, "ann", messages=3, size=77)
    told = await scene.client.explain("orders")
    assert (told.dropped_messages, told.dropped_bytes) == (3, 77)
    assert "dropped so far: 3 messages, 77 bytes" in str(told)


@pytest.mark.parametrize("slices", [1, 2])
async def test_it_says_how_many_wait_for_their_time(client: headgate.Client, slices: int) -> None:
    """So does `status`; of a queue with slices it is said of all together. One failed, and waits too."""
    await client.apply("orders", kind="queue", slices=slices)
    async with client.session("s") as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        for number in range(4):
            await producer.send(f"{number}", delay="1h", timeout=GUARD)
        await producer.send("at", at=datetime.now(UTC) + timedelta(hours=2), timeout=GUARD)
        await producer.send("now", timeout=GUARD)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.modify(after="30min", confirm=True)
        told = await client.explain("orders")
        assert told.later == 6
        assert told.next_due_in is not None
        assert 1700 < told.next_due_in <= 1800
        assert "\n  for later: 6 messages of these, the next in 30 min\n" in str(told)
        console = Console(width=120, record=True, file=io.StringIO())
        console.print(render(StatusData([told]), "shop", by="name", width=120))
        heads, row = (line for line in console.export_text().splitlines() if re.match(r" *(destination|orders) ", line))
        assert row[: heads.index("later") + 5].split()[-1] == "6"


async def test_one_session_sees_that_it_waits_behind_a_larger_message(scene: Scene) -> None:
    await scene.make(limit_bytes="1000")
    await scene.send("filler", 700)
    await scene.wait("large", 900)
    await scene.wait("small", 50)
    told = await scene.client.explain("orders", producer="small")
    assert (told.cause, told.session, told.place, told.holds) == ("behind-larger", "small", 2, 0)
    assert told.reason == "large is before it and needs 900 bytes, of which 300 are free"
    assert "small: place 2 in line, holds credit for 0 bytes" in str(told)
    assert (await scene.client.explain("orders", producer="large")).cause == "no-consumer"


async def test_one_session_sees_that_it_waits_for_itself(scene: Scene) -> None:
    await scene.make(limit_bytes="1000")
    await scene.send("filler", 1000)
    await scene.consume("worker", "10/unlimited")
    await scene.wait("first", 50)
    await scene.wait("worker", 50)
    assert (await scene.client.explain("orders", producer="worker")).cause == "same-session"
    assert (await scene.client.explain("orders", producer="first")).cause == "slow-consumers"


@pytest.mark.parametrize(
    ("window", "holds", "sent", "cause"),
    [
        ("paused", 0, 3, "consumer-paused"),
        ("2/unlimited", 2, 3, "consumer-full"),
        ("9/unlimited", 3, 3, "consumer-empty"),
        ("pull", 0, 3, "consumer-idle"),
        ("9/unlimited", 1, 3, "open"),
    ],
)
async def test_the_view_of_one_consumer(scene: Scene, window: str, holds: int, sent: int, cause: str) -> None:
    await scene.make()
    await scene.send("filler", *[10] * sent)
    await scene.consume("in", window, holds)
    await scene.consume("other", "paused")
    told = await scene.client.explain("orders", consumer="in.1")
    assert (told.cause, [one.consumer for one in told.consumers]) == (cause, ["in.1"])
    assert told.reason.startswith("in.1 ")
    with pytest.raises(InvalidValue, match=r"no consumer 'none\.1'"):
        await scene.client.explain("orders", consumer="none.1")
    with pytest.raises(InvalidValue, match="is a queue; `headgate state` shows a key of a gate or a bucket"):
        await scene.client.explain("orders", key="tenant")
    with pytest.raises(InvalidValue, match="session 'none'"):
        await scene.client.explain("orders", producer="none")


async def test_who_has_none_is_told_who_holds_what_there_is(scene: Scene) -> None:
    await scene.make()
    await scene.send("filler", *[10] * 3)
    await scene.consume("busy", "9/unlimited", 3)
    await scene.consume("idle", "9/unlimited")
    told = await scene.client.explain("orders", consumer="idle.1")
    assert told.cause == "consumer-beside"
    assert "busy.1 3 messages of 9/unlimited" in told.reason
    assert "smaller window" in told.remedy
    whole = await scene.client.explain("orders")
    assert (whole.cause, "1 consumer has none, and others hold busy.1 3 messages" in whole.reason) == ("open", True)
    assert whole.remedy == told.remedy


async def test_what_a_session_holds_at_slices_beside_is_its_own(scene: Scene) -> None:
    """Mutants: one slice stands for all that it holds; records that are alike count once; moments are added up."""
    await scene.make(limit_bytes="700")
    await scene.send("filler", 700)
    await scene.wait("shop", 200)
    heard = await scene.us() // 1000 - 1000
    await scene.fields(sliced=3)  # first: a node makes no slice of a destination that has none
    for name in ("orders#1", "orders#2"):
        beside = Scene(scene.client, scene.direct, name)
        await beside.make()
        await beside.lease("shop", 0, 0)
        for field, number in (("granted", 80), ("granted_m", 1), ("seen", heard)):
            await beside.rewrite("shop", field, number)
        await beside.fields(leased_bytes=80, leased_messages=1)
    await scene.fields(limit_bytes=1000)
    told = await scene.client.explain("orders", producer="shop")
    assert (told.cause, told.settle, told.holds) == ("no-consumer", 60, 160)
    (one,) = told.leasers
    assert (one.bytes, one.messages) == (160, 2)
    assert one.silent >= 1


async def test_it_is_plain_data_for_programs(scene: Scene) -> None:
    await scene.make(limit_bytes="1000")
    await scene.send("filler", 1000)
    await scene.wait("waiter", 50)
    told = json.loads(json.dumps((await scene.client.explain("orders")).as_dict()))
    assert (told["cause"], told["causes"][0]["cause"], told["settle"]) == ("no-consumer", "no-consumer", 50)
    assert (told["upstream"], told["downstream"], told["chain"], told["link"]) == ([], [], [], None)


async def test_stopping_by_hand_names_the_reason_and_can_be_lifted(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    await client.block("orders", "default")
    assert (await client.explain("orders")).reason == "it was stopped by hand: default"
    await client.block("orders", "disk is being replaced")
    told = await client.explain("orders")
    assert (told.state, told.cause) == ("stopped", "stopped")
    assert "disk is being replaced" in told.reason
    await client.unblock("orders")
    await client.unblock("orders")
    assert (await client.explain("orders")).state == "open"
    for change in (client.block("none", "why"), client.unblock("none")):
        with pytest.raises(PolicyError, match="there is no destination 'none'"):
            await change
    with pytest.raises(InvalidValue):
        await client.block("orders", "")


async def test_a_timeout_carries_the_same_explanation(client: headgate.Client) -> None:
    await client.apply("full", limit=1000)
    async with client.session("s") as session:
        producer, slow = await session.producer("full", window=1000), await session.producer("full", rate=0.1)
        await producer.send(b"x" * 990)
        with pytest.raises(CreditTimeout) as caught:
            await producer.send(b"y" * 50, timeout=0.3)
        assert caught.value.explanation.cause == "no-consumer"
        assert caught.value.explanation.session == session.id
        await client.purge("full")
        await slow.send(b"x")
        with pytest.raises(CreditTimeout) as caught:
            await slow.send(b"x", timeout=0.1)
        assert caught.value.explanation.cause == "producer-rate"


async def test_without_redis_the_explanation_says_so(server: RedisServer) -> None:
    async with headgate.connect(server.url) as client:
        await client.apply("full", limit=1000)
        async with client.session("s") as session:
            producer = await session.producer("full", window=1000)
            await producer.send(b"x" * 990)
            server.kill9()
            async with asyncio.timeout(GUARD):
                with pytest.raises(CreditTimeout) as caught:
                    await producer.send(b"y" * 50, timeout=0.5)
            assert caught.value.explanation.cause == "redis-unavailable"
            assert caught.value.explanation.state == "unknown"
            assert "Redis has not answered" in str(caught.value.explanation)


async def test_a_served_line_is_open_again(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("full", limit=1000)
    async with client.session("s") as session, other.session("in") as into:
        producer, consumer = await session.producer("full", window=1000), await into.consumer("full")
        await producer.send(b"x" * 900)
        later = asyncio.ensure_future(producer.send(b"x" * 900, timeout=GUARD))
        await wait_until(lambda: waiting(client, "full"))
        await drain(consumer, 2)
        await later
    assert (await client.explain("full")).cause == "open"


async def test_no_end_is_foretold_where_the_subscription_that_holds_a_topic_has_no_consumer(
    client: headgate.Client,
) -> None:
    """Mutant: it is full for so long as the pace says at which others settled."""
    await client.apply("full", kind="topic", limit=1000)
    async with client.session("s") as session, client.session("d") as other:
        fast = await session.consumer("full", subscription="mail")
        slow = await other.consumer("full", subscription="audit", durable=True)
        producer = await session.producer("full", window=1000)
        for _ in range(3):
            await producer.send(b"x" * 100)
            await asyncio.gather(drain(fast, 1), drain(slow, 1))
        await slow.close()
        for _ in range(2):
            await producer.send(b"x" * 480)
        await drain(fast, 2)
        later = asyncio.ensure_future(producer.send(b"x" * 200, timeout=GUARD))
        await wait_until(lambda: waiting(client, "full"))
        told = await client.explain("full")
        assert (told.cause, told.unblocks_in) == ("slow-subscription", None)
        later.cancel()
