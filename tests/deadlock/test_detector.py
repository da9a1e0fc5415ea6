"""Nodes find deadlocks over sessions and links, name them whole, and do what the destinations' settings say."""

import asyncio

import pytest

import headgate
from headgate.core.deadlock import Deadlock
from headgate.redis.notes import NoteStore
from headgate_coordinator.deadlock.detector import Detector
from tests.amqp.node_processes import nodes
from tests.deadlock.figure import COUNT, bodies, fill, program
from tests.sdk.observing import counts
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

    await wait_until(enough, timeout=20)


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


@pytest.mark.parametrize("how", ["tasks", "threads"])
async def test_a_node_resolves_it_and_all_messages_arrive(client: headgate.Client, redis_url: str, how: str) -> None:
    await fill(client, deadlock="fail")
    more = ("threads",) if how == "threads" else ()
    with (
        nodes(redis_url, client.namespace, 1) as (node,),
        program(redis_url, client.namespace, "x", "y", *more) as a,
        program(redis_url, client.namespace, "y", "x", *more) as b,
    ):
        await wait_until(lambda: arrived(client), timeout=60)
        failed = [error for error in (await done(client)).values() if error]
        assert any(cycle(a, b) in error for error in failed)
        assert f"a deadlock (fail): {cycle(a, b)}" in node.log
    assert set(await done(client)) == {*bodies("x"), *bodies("y")}
    for name in ("x", "y"):
        assert await counts(client, name)


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

        await wait_until(goes_on, timeout=60)
    seen = [await client.explain(name) for name in ("x", "y")]
    assert max(int(one.fields["peak_bytes"]) for one in seen) <= limit + limit // COUNT
    assert not any((await done(client)).values()), "no send failed"
    assert all([await counts(client, name) == (0, 0) for name in ("x", "y")])


async def test_where_nobody_wants_to_know_nothing_is_told(
    client: headgate.Client, redis_url: str, detector: Detector, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, deadlock="none")
    with program(redis_url, client.namespace, "x", "y"), program(redis_url, client.namespace, "y", "x"):
        await told(client, 2)
        await certain(detector)
        assert not await client.deadlocks()
        assert "deadlock" not in caplog.text
