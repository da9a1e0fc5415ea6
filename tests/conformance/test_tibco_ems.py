"""TIBCO EMS: a target for pending messages, and for whom it is enforced."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

import headgate
from headgate.policy import loads
from headgate_coordinator.deadlock.detector import Detector
from headgate_coordinator.links.listing import list_links
from tests.conformance.story import blocked_send, body, fill, take
from tests.links.channels import Group, Stamped, collecting, opened, sending
from tests.sdk.observing import GUARD, counts, drain, field
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_e01_sends_block_until_storage_decreases_or_the_limit_is_raised(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    await fill(client, "orders", 10)
    async with client.session("s") as session:
        producer = await session.producer("orders")
        send = await blocked_send(client, producer, 100)
        await drain(await session.consumer("orders"), 1)
        await send
        send = await blocked_send(client, producer, 100)
        await client.apply("orders", limit=1100)
        await send
        assert await field(client, "orders", "pending_bytes") == 1100
        await blocked_send(client, producer, 100)


async def test_e02_with_flow_control_off_for_all_no_setting_of_a_destination_is_enforced(
    client: headgate.Client,
) -> None:
    rules = '[[destination]]\nmatch = "#"\nlimit = 1000\nenforce = "always"\n'
    await client.apply_policy(loads(f'flow_control = "off"\n{rules}'))
    for name in ("one", "two"):
        await fill(client, name, 20)
        assert await field(client, name, "pending_bytes") == 2000
    await client.apply_policy(loads(f'flow_control = "on"\n{rules}'))
    async with client.session("s") as session:
        sends = [await blocked_send(client, await session.producer(name), 100) for name in ("one", "two")]
        await client.apply_policy(loads(f'flow_control = "off"\n{rules}'))
        await asyncio.gather(*sends)


async def test_e03_a_target_of_60_mb_and_bytes_unless_a_unit_is_given(client: headgate.Client) -> None:
    for written, size in ((256, 256), ("256", 256), ("60KB", 60_000), ("60MB", 60_000_000), ("1GB", 10**9)):
        await client.apply("orders", limit=written)
        assert await field(client, "orders", "limit_bytes") == size
    await client.apply("orders", limit="60MB")
    await fill(client, "orders", 60, 1_000_000)
    async with client.session("s") as session:
        send = await blocked_send(client, await session.producer("orders", window=100), 100)
        assert await field(client, "orders", "pending_bytes") == 60_000_000
        await client.purge("orders")
        await send


async def test_e04_without_a_value_the_target_is_256_kb(client: headgate.Client) -> None:
    """The policy says the 256 KB that a `flowControl` without a value stands for."""
    rule = '[[destination]]\nmatch = "orders"\nlimit = "256KB"\n'
    await client.apply_policy(loads(f'preset = "tibco-ems"\nflow_control = "on"\n{rule}'))
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=1)
        await fill(client, "orders", 256, 1000)
        producer = await session.producer("orders", window=1000)
        send = await blocked_send(client, producer, 1000)
        assert await field(client, "orders", "pending_bytes") == 256_000
        await drain(consumer, 1)
        await send


async def test_e02_out_of_the_box_nothing_is_limited_and_then_only_where_it_is_set(client: headgate.Client) -> None:
    rule = 'preset = "tibco-ems"\n[[destination]]\nmatch = "foo.bar"\nlimit = 2000\n'
    await client.apply_policy(loads(rule))
    async with client.session("in") as into, client.session("out") as out:
        consumers = [await into.consumer(name, window=1) for name in ("foo.bar", "other")]
        for name in ("foo.bar", "other"):
            await fill(client, name, 30)
            assert await field(client, name, "pending_bytes") == 3000
        await drain(consumers[0], 30)
        await client.apply_policy(loads(f'flow_control = "on"\n{rule}'))
        await fill(client, "foo.bar", 20)
        await blocked_send(client, await out.producer("foo.bar", window=100), 100)
        await fill(client, "other", 3000)
        assert await field(client, "other", "pending_bytes") == 303_000


@pytest.mark.parametrize("producers", [1, 8, 64])
async def test_e05_never_more_than_the_target_and_all_of_it(
    client: headgate.Client, other: headgate.Client, producers: int
) -> None:
    """Stricter than the source, which may use slightly more or less."""
    await client.apply("orders", limit="256KB")
    sessions = [(client, other)[n % 2].session(f"p{n}") for n in range(producers)]
    opened = [await session.producer("orders", window="16KB") for session in sessions]
    sends = [asyncio.ensure_future(opened[n % producers].send(body(1000), timeout=GUARD)) for n in range(300)]

    async def reached() -> bool:
        return await field(client, "orders", "pending_bytes") == 256_000

    await wait_until(reached)
    assert await field(client, "orders", "peak_bytes") == 256_000
    async with client.session("in") as into:
        await drain(await into.consumer("orders"), 300)
    await asyncio.gather(*sends)
    await asyncio.gather(*(session.close() for session in sessions))
    assert await counts(client, "orders") == (0, 0)
    assert await field(client, "orders", "peak_bytes") == 256_000


async def test_e06_below_the_limit_blocked_calls_return_and_producers_go_on(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("orders", limit=1000)
    await fill(client, "orders", 10)
    async with client.session("a") as a, other.session("b") as b:
        producers = [await a.producer("orders"), await b.producer("orders")]
        sends = [await blocked_send(client, producer, 200) for producer in producers]
        await drain(await a.consumer("orders"), 10)
        await asyncio.gather(*sends)
        for producer in producers:
            await producer.send(body(200))
            assert not producer.is_blocked


async def test_e07_a_queue_without_started_receivers_is_not_limited(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000, enforce="with-consumers")
    await fill(client, "orders", 20)  # nobody is there
    assert await field(client, "orders", "pending_bytes") == 2000
    async with client.session("in") as into, client.session("out") as out:

        async def limited_until(stop: Callable[[], Awaitable[None]]) -> None:
            producer = await out.producer("orders")
            send = await blocked_send(client, producer, 100)
            await stop()
            await send
            await producer.close()

        consumer = await into.consumer("orders", window="paused")  # there, and not started
        await fill(client, "orders", 1)
        await consumer.configure(window=1)
        await limited_until(partial(consumer.configure, window="paused"))
        await consumer.configure(window=1)
        await limited_until(consumer.close)
        await client.apply("orders", enforce="always")  # EMS since 8.4
        send = await blocked_send(client, await out.producer("orders"), 100)
        await client.purge("orders")
        await send


async def test_e07_a_topic_with_inactive_durables_only_or_no_subscribers_is_not_limited(
    client: headgate.Client,
) -> None:
    await client.apply("news", kind="topic", limit=1000, enforce="with-consumers")
    async with client.session("s") as session:
        await fill(client, "news", 20)  # no subscribers
        durable = await session.consumer("news", subscription="audit", durable=True, window="paused")
        await durable.close()
        await fill(client, "news", 20)  # an inactive durable: what it will get is kept
        assert await field(client, "news", "pending_bytes") == 2000
        durable = await session.consumer("news", subscription="audit", durable=True, window=1)
        send = await blocked_send(client, await session.producer("news"), 100)
        await durable.close()
        await send
        await client.unsubscribe("news", "audit")


async def test_e08_a_topic_is_limited_while_there_is_a_subscriber_of_it_or_of_a_parent(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("foo.bar", kind="topic", limit=1000, enforce="with-consumers")
    async with client.session("out") as out, other.session("in") as into:
        for pattern in ("foo.bar", "foo.*", "foo.>"):
            await fill(client, "foo.bar", 20)  # nobody subscribes: not limited
            consumer = await into.consumer(pattern, window=1)
            await fill(client, "foo.bar", 10)
            producer = await out.producer("foo.bar", window=100)
            send = await blocked_send(client, producer, 100)
            await drain(consumer, 1)
            await send
            send = await blocked_send(client, producer, 100)
            await consumer.close()
            await send
            await producer.close()


@pytest.fixture
async def halted(client: headgate.Client) -> Group:
    """A channel of the topic `prices`, opened, whose server sends nothing now."""
    group = Group()
    await channel(client, group)
    async with sending(client):
        await opened(client)
    return group


async def channel(client: headgate.Client, group: Group, flow_control: str = "on", rules: str = "") -> None:
    said = f'flow_control = "{flow_control}"\n{rules}{group.channel("prices", maxrate=300_000)}'
    await client.apply_policy(loads(said))


async def test_e09_with_flow_control_off_what_exceeds_the_maxrate_is_buffered_and_its_backlog_shown(
    client: headgate.Client, halted: Group
) -> None:
    await channel(client, halted, "off")
    await fill(client, "prices", 200, 1000)  # nobody waits
    (shown,) = await list_links(client)
    assert (shown.kind, shown.name, shown.backlog, shown.backlog_bytes) == ("channel", "quotes", 200, 200_000)
    stamped = Stamped(halted)
    async with collecting(halted.reader()) as got, sending(client):
        await wait_until(lambda: len(got.messages) == 200)
    stamped.close()
    (one,) = (await client.policy()).channels
    assert stamped.most_above(one.maxrate) <= one.most_at_once < 200_000


async def test_e10_with_flow_control_on_the_response_waits_until_the_backlog_is_clear(
    client: headgate.Client, other: headgate.Client, halted: Group
) -> None:
    async with client.session() as one, other.session() as two:
        producers = [await session.producer("prices") for session in (one, two)]
        sends = [asyncio.ensure_future(producer.send(body(1000), timeout=GUARD)) for producer in producers * 50]
        for producer in producers:
            await wait_until(lambda: producer.reason == "waits for channel quotes: backlog 100 messages")  # noqa: B023
        assert not any(send.done() for send in sends)
        async with collecting(halted.reader()) as got, sending(client):
            await asyncio.gather(*sends)
            (shown,) = await list_links(client)
            assert (shown.backlog, shown.mark) == (0, 100)
            await wait_until(lambda: len(got.messages) == 100)


@pytest.mark.parametrize("flow_control", ["on", "off"])
async def test_e11_the_limit_of_a_topic_plays_no_part_for_its_channel(
    client: headgate.Client, halted: Group, flow_control: str
) -> None:
    limit = '[[destination]]\nmatch = "prices"\nlimit = 1000\nenforce = "always"\n'
    await channel(client, halted, flow_control, limit)
    async with client.session() as session:
        producer = await session.producer("prices")
        for _ in range(20):
            await producer.post(body(1000), timeout=GUARD)

        async def stored() -> bool:
            return await field(client, "prices", "pending_bytes") == 20_000

        await wait_until(stored)
        assert not producer.is_blocked
        told = await client.explain("prices")
        assert (told.blocked, told.binding) == (0, None)
        assert told.rule == "prices (policy.toml:6)"


async def test_e16_a_session_that_waits_for_itself_is_told(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000, deadlock="fail")
    async with client.session("s") as session:
        consumer, producer = await session.consumer("orders", window=1), await session.producer("orders", window=1)
        await fill(client, "orders", 10)
        message = await take(consumer)
        async with asyncio.timeout(GUARD):
            with pytest.raises(headgate.DeadlockDetected, match=f"queue orders waits for session {session.id}"):
                await producer.send(body(100), timeout=600)
        await message.accept()
        await producer.send(body(100))


async def test_e16_figure_14_over_two_programs_is_found_named_and_resolved_as_the_policy_says(
    client: headgate.Client, other: headgate.Client
) -> None:
    """Program 1 consumes A and sends to B, program 2 consumes B and sends to A."""
    rule = '[[destination]]\nmatch = "*"\nlimit = 1000\ndeadlock = "{}"\n'
    await client.apply_policy(loads(rule.format("alert")))
    for name in ("A", "B"):
        await fill(client, name, 10)
    detector = Detector(client, "node", ttl=5.0)

    async def program(session: headgate.Session, reads: str, writes: str) -> None:
        consumer, producer = await session.consumer(reads), await session.producer(writes)
        message = await take(consumer)
        await producer.send(body(100), timeout=600)
        await message.accept()

    async with client.session("one") as one, other.session("two") as two:
        programs = [asyncio.create_task(program(one, "A", "B")), asyncio.create_task(program(two, "B", "A"))]
        (found,) = await wait_until(detector.round)
        assert str(found) == (
            f"queue A waits for session {one.id} to consume; session {one.id} waits for room in queue B; "
            f"queue B waits for session {two.id} to consume; session {two.id} waits for room in queue A"
        )
        assert (await client.explain("A")).deadlock == found
        assert not any(task.done() for task in programs), "it is only told"
        await client.apply_policy(loads(rule.format("fail")))

        async def failed() -> bool:
            await detector.round()
            return any(task.done() for task in programs)

        await wait_until(failed)
        (ended,) = [task for task in programs if task.done()]
        assert isinstance(ended.exception(), headgate.DeadlockDetected)
        for task in programs:
            task.cancel()
        await asyncio.gather(*programs, return_exceptions=True)
