"""Nodes find deadlocks over sessions and links, name them whole, and do what the destinations' settings say."""

import asyncio
import json
from functools import partial
from urllib.parse import quote

import pytest

import headgate
from headgate.core.deadlock import Deadlock
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate.redis.stores.notes import NoteStore, Tie
from headgate_coordinator.deadlock.detector import Detector
from tests.amqp.node_processes import nodes
from tests.deadlock.figure import COUNT, bodies, fill, program
from tests.sdk.observing import GUARD, counts, waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
async def detector(client: headgate.Client) -> Detector:
    """A detector whose rounds the test makes."""
    return Detector(client, "n1", ttl=5.0)


async def told(client: headgate.Client, consumers: int) -> None:
    """Wait until so many consumers were said to be tied."""

    async def enough() -> bool:
        return len(await NoteStore(client.store.server, client.namespace).ties()) >= consumers

    await wait_until(enough, timeout=80)


async def done(client: headgate.Client) -> dict[bytes | str, str]:
    """Return what arrived, and with what error."""
    return {one.body: one.headers.get("failed", "") async for one in client.browse("done")}


async def certain(detector: Detector) -> Deadlock:
    """Return the deadlock that two looks are certain of."""
    assert await detector.round() == ()
    (found,) = await detector.round()
    return found


def cycle(a: str, b: str) -> str:
    return (
        f"queue x waits for session {a} to consume; session {a} waits for room in queue y; "
        f"queue y waits for session {b} to consume; session {b} waits for room in queue x"
    )


async def test_figure_14_is_found_in_two_looks_and_told(
    client: headgate.Client, redis_url: str, detector: Detector, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, deadlock=None)
    with (
        program(redis_url, client.namespace, "x", "y") as a,
        program(redis_url, client.namespace, "y", "x") as b,
    ):
        await told(client, 2)
        found = await certain(detector)
        assert str(found) == cycle(a, b)
        assert f"a deadlock (alert): {found}" in caplog.text
        await detector.round()
        assert caplog.text.count("a deadlock (alert)") == 1, "it is told once"
        assert detector.facts().found == {"alert": 1}
        for name in ("x", "y"):
            explanation = await client.explain(name)
            assert explanation.deadlock == found
        assert (await client.explain("x", producer=b)).deadlock == found
        (record,) = await client.deadlocks()
        assert (record.deadlock, record.action, record.done, record.is_current) == (found, "alert", "", True)
        assert set(record.destinations) == {"x", "y"}
        await client.apply("x", limit="unlimited")
        await wait_until(lambda: arrived(client))
        assert await detector.round() == ()
    assert set(await done(client)) == {*bodies("x"), *bodies("y")}


async def arrived(client: headgate.Client) -> bool:
    return len(await done(client)) == 2 * COUNT


async def both_are_empty(client: headgate.Client) -> bool:
    """Return whether nothing is left; the last message is accepted after its answer has arrived."""
    return all([await counts(client, name) == (0, 0) for name in ("x", "y")])


@pytest.mark.parametrize("how", ["tasks", "threads"])
async def test_a_node_resolves_it_and_all_messages_arrive(client: headgate.Client, redis_url: str, how: str) -> None:
    await fill(client, deadlock="fail")
    more = ("threads",) if how == "threads" else ()
    with (
        nodes(redis_url, client.namespace, 1) as (node,),
        program(redis_url, client.namespace, "x", "y", *more) as a,
        program(redis_url, client.namespace, "y", "x", *more) as b,
    ):
        await wait_until(lambda: arrived(client), timeout=240)
        failed = [error for error in (await done(client)).values() if error]
        assert any(cycle(a, b) in error for error in failed)
        assert f"a deadlock (fail): {cycle(a, b)}" in node.log
        await wait_until(lambda: both_are_empty(client))
    assert set(await done(client)) == {*bodies("x"), *bodies("y")}


async def test_a_ticket_lets_one_message_go_above_the_limit_and_no_more(
    client: headgate.Client, redis_url: str, detector: Detector
) -> None:
    await fill(client, deadlock="ticket")
    limit = int((await client.explain("x")).fields["limit_bytes"])
    with program(redis_url, client.namespace, "x", "y"), program(redis_url, client.namespace, "y", "x"):

        async def goes_on() -> bool:
            await detector.round()
            await asyncio.sleep(0.05)
            return await arrived(client)

        await wait_until(goes_on, timeout=240)
        await wait_until(lambda: both_are_empty(client))
    seen = [await client.explain(name) for name in ("x", "y")]
    assert max(int(one.fields["peak_bytes"]) for one in seen) <= limit + limit // COUNT
    assert not any((await done(client)).values()), "no send failed"


async def test_where_nobody_wants_to_know_nothing_is_told(
    client: headgate.Client, redis_url: str, detector: Detector, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, deadlock="none")
    with program(redis_url, client.namespace, "x", "y"), program(redis_url, client.namespace, "y", "x"):
        await told(client, 2)
        await certain(detector)
        assert not await client.deadlocks()
        assert "deadlock" not in caplog.text


async def test_of_a_topic_the_subscription_that_waits_is_named(
    client: headgate.Client, other: headgate.Client, detector: Detector
) -> None:
    """Mutants: a topic goes on once any of its subscriptions does; or with a consumer that has nothing to settle."""
    await client.apply("news", kind="topic", limit=100)
    await client.apply("back", kind="queue", limit=100)
    async with client.session("a") as a, other.session("b") as b, other.session("free") as free:
        await free.consumer("news", subscription="mail")
        programs = []
        ready = asyncio.Event()

        async def program(session: headgate.Session, reads: str, writes: str, subscription: str | None) -> None:
            consumer = await session.consumer(reads, subscription=subscription)
            producer = await session.producer(writes, window=1)
            await producer.send(b"x" * 90)
            ready.set()
            await consumer.receive(timeout=GUARD)
            await producer.send(b"x" * 90, timeout=600)

        programs.append(asyncio.create_task(program(a, "news", "back", "audit")))
        await ready.wait()  # its subscription is there before the other one publishes
        programs.append(asyncio.create_task(program(b, "back", "news", None)))
        await wait_until(lambda: waiting(client, "back"))
        await free.consumer("news", subscription="audit")
        (found,) = await wait_until(detector.round, timeout=80)
        assert f"topic news (subscription audit) waits for session {a.id} to consume" in str(found)
        for task in programs:
            task.cancel()
        await asyncio.gather(*programs, return_exceptions=True)


async def test_the_newest_send_is_told_to_fail_until_it_does(client: headgate.Client, detector: Detector) -> None:
    """Of sessions that are deaf to the hint: it is repeated with each look. Mutant: the oldest send fails."""
    heard: list[list[str]] = []
    ties = []
    for number, (name, there) in enumerate((("x", "y"), ("y", "x"))):
        await client.apply(name, kind="queue", limit=100, deadlock="fail")
        async with client.session("before") as session:
            await (await session.producer(name, window=1)).send(b"x" * 90)
        await client.store.attach(
            Address.of(client.namespace, name), f"s{number}", number=1, subscription="queue", durable=True,
            window="1/1", ttl_ms=60_000,
        )  # fmt: skip
        ties.append(Tie(name, f"s{number}.1", there, "7.5", waited_ms=1000 - number * 100))
    for tie in ties:
        account = Account(tie.session, 1, 0, need=90, need_m=1, want=90, want_m=1)
        assert (await client.store.acquire(Address.of(client.namespace, tie.at), account, ttl_ms=60_000)).place == 1
        channel, _ = Address.of(client.namespace, tie.at).channels(tie.session)
        await client.parts.wake_ups.subscribe((channel,), heard.append)
    await NoteStore(client.store.server, client.namespace).write("waits", {tie.name: tie.text for tie in ties})
    for _ in range(4):
        await detector.round()
    await wait_until(lambda: len(heard) == 3)
    assert {tuple(words[:2]) for words in heard} == {("deadlock", "7.5")}
    (record,) = await client.deadlocks()
    assert record.done == "a send of session s1 to queue x was made to fail"
    assert detector.facts().found == {"fail": 1}


async def test_a_send_that_has_gone_on_meanwhile_does_not_fail(client: headgate.Client) -> None:
    """Mutant: the name of the wait is not looked at (`Ties.doomed`)."""
    await client.apply("x", limit=100)
    async with client.session("a") as session:
        consumer, producer = await session.consumer("x"), await session.producer("x", window=1)
        await producer.send(b"x" * 90)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None

        async def tell() -> None:
            store, address = client.store, Address.of(client.namespace, "x")
            since = await wait_until(partial(waits_since, client, session.id))
            text = quote(json.dumps(Deadlock(()).as_dict()))
            assert await store.resolve(address, session.id, since=since, mode="tell", wait="1.0", text=text) == "OK"
            await message.accept()

        telling = asyncio.create_task(tell())
        await producer.send(b"x" * 90, timeout=GUARD)
        await telling


async def waits_since(client: headgate.Client, session: str) -> int:
    """Return when a session began to wait at x; 0 when it does not."""
    snapshot = await client.store.snapshot(Address.of(client.namespace, "x"))
    return int(dict(snapshot.waiters).get(session, {}).get("since", 0)) if snapshot else 0
