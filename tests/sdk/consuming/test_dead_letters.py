"""Dead letters: what failed too often, or was rejected, is at the other destination, once, and nowhere else."""

import asyncio
from typing import Any

import pytest

import headgate
from headgate import Closed
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate.redis.store import Store
from tests.sdk.consuming.test_consumer import fill, receive
from tests.sdk.observing import GUARD, counts, drain, feed_of, field, stored_bodies
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def pending(client: headgate.Client, destination: str) -> int:
    snapshot = await client.store.snapshot(Address.of(client.namespace, destination))
    return int(snapshot.fields["pending_messages"]) if snapshot else 0


async def are(client: headgate.Client, destination: str, count: int) -> bool:
    return await pending(client, destination) == count


async def test_a_message_that_fails_too_often_goes_to_the_dead_letters(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", max_attempts=3, dead_letter="dead")
    async with client.session("s") as session:
        producer = await session.producer("orders")
        sent = await producer.send("bad", headers={"tenant": "a"})
        consumer = await session.consumer("orders")
        for attempts in range(3):
            message = await receive(consumer)
            assert message.delivery_count == attempts
            await message.modify(confirm=True)
        assert await pending(client, "orders") == 0
        (dead,) = await drain(await session.consumer("dead"), 1)
        assert dead.body == "bad"
        assert dead.headers == {
            "tenant": "a",
            "headgate-dead-reason": "3 attempts failed",
            "headgate-dead-from": "orders",
            "headgate-dead-attempts": 3,
            "headgate-dead-id": sent.id,
        }
    assert await counts(client, "dead") == (0, 0)


async def test_a_rejected_message_goes_there_at_once(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("s") as session:
        await fill(session, 2)
        consumer = await session.consumer("orders")
        await (await receive(consumer)).reject("no such customer", confirm=True)
        await (await receive(consumer)).reject()
        await consumer.flush()
        assert await pending(client, "orders") == 0
        dead = await drain(await session.consumer("dead"), 2)
        reasons = [message.headers["headgate-dead-reason"] for message in dead]
        assert reasons == ["rejected: no such customer", "rejected: no reason given"]


async def test_without_a_place_to_go_it_is_dropped_and_said(
    client: headgate.Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.apply("orders", kind="queue", max_attempts=1)
    async with client.session("s") as session:
        await fill(session, 1)
        consumer = await session.consumer("orders")
        await (await receive(consumer)).modify(confirm=True)
        assert await pending(client, "orders") == 0
    assert "was dropped: 1 attempts failed" in caplog.text


async def test_a_message_is_never_a_dead_letter_of_its_own_destination(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", dead_letter="orders")
    async with client.session("s") as session:
        await fill(session, 1)
        await (await receive(await session.consumer("orders"))).reject(confirm=True)
        assert await pending(client, "orders") == 0


async def test_a_change_is_heard_of(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 1)
        consumer = await session.consumer("orders")
        message = await receive(consumer)
        await client.apply("orders", dead_letter="dead")
        await wait_until(lambda: feed_of(consumer).settlements._dead_letters.target is not None)
        await message.reject(confirm=True)
        assert await pending(client, "dead") == 1


async def test_one_that_failed_too_often_elsewhere_is_not_given_to_anybody(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await fill(session, 1)
        consumer = await session.consumer("orders")
        await (await receive(consumer)).modify(confirm=True)
        await wait_until(lambda: consumer.held_messages == 1)
        await consumer.close()
        await client.apply("orders", max_attempts=1, dead_letter="dead")
        consumer = await session.consumer("orders")
        await wait_until(lambda: are(client, "dead", 1))
        assert await consumer.receive(timeout=0.02) is None
        await wait_until(lambda: are(client, "orders", 0))


async def test_while_the_dead_letters_are_full_it_is_held_and_others_go_on(client: headgate.Client) -> None:
    await client.apply("dead", kind="queue", limit=300)
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("s") as session:
        await fill(session, 1, "dead", size=200)
        await fill(session, 20)
        consumer = await session.consumer("orders")
        bad = await receive(consumer)
        told = asyncio.create_task(bad.reject("bad", confirm=True))
        for _ in range(19):
            await (await receive(consumer)).accept()
        await wait_until(lambda: are(client, "orders", 1))
        await asyncio.sleep(0.05)
        assert not told.done()
        assert await pending(client, "dead") == 1
        await drain(await session.consumer("dead", window=1), 1)
        await asyncio.wait_for(told, GUARD)
        assert await pending(client, "orders") == 0
    assert await pending(client, "dead") == 1


async def test_the_rate_of_the_dead_letters_delays_and_loses_none(client: headgate.Client) -> None:
    """Mutant: what the rate did not let through is taken for stored."""
    await client.apply("dead", kind="queue", send_rate=20, send_burst=1)
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("s") as session:
        await fill(session, 4)
        consumer = await session.consumer("orders")
        for _ in range(4):
            await (await receive(consumer)).reject()
        await consumer.flush(timeout=GUARD)
        assert (await pending(client, "orders"), await pending(client, "dead")) == (0, 4)


async def test_while_the_dead_letters_are_stopped_by_hand_it_is_held(client: headgate.Client) -> None:
    await client.apply("dead", kind="queue", stopped="maintenance")
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("s") as session:
        await fill(session, 1)
        consumer = await session.consumer("orders")
        await (await receive(consumer)).reject()
        await wait_until(lambda: field(client, "dead", "blocked"))
        assert (await pending(client, "orders"), await pending(client, "dead")) == (1, 0)
        await client.unblock("dead")
        await consumer.flush(timeout=GUARD)
        assert (await pending(client, "orders"), await pending(client, "dead")) == (0, 1)


async def test_dead_letters_that_drop_when_full_count_it(client: headgate.Client) -> None:
    """Trap HG109: nobody waits for dead letters that nobody reads."""
    await client.apply("dead", kind="queue", limit_messages=1, when_full="drop")
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("s") as session:
        await fill(session, 3)
        consumer = await session.consumer("orders")
        for _ in range(3):
            await (await receive(consumer)).reject()
        await consumer.flush(timeout=GUARD)
        assert (await pending(client, "orders"), await pending(client, "dead")) == (0, 1)
        assert await field(client, "dead", "dropped_messages") == 2


async def test_one_that_can_never_fit_is_held_and_the_next_goes_on(
    client: headgate.Client, caplog: pytest.LogCaptureFixture
) -> None:
    await client.apply("dead", kind="queue", limit=400)
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("s") as session:
        await fill(session, 1, size=1000)
        await fill(session, 1, size=20)
        consumer = await session.consumer("orders")
        await (await receive(consumer)).reject()
        await (await receive(consumer)).reject()
        await wait_until(lambda: are(client, "dead", 1))
        assert "can never fit 'dead'" in caplog.text
        await wait_until(lambda: are(client, "orders", 1))
        await client.apply("dead", limit=4000)
        await wait_until(lambda: are(client, "orders", 0))
    assert await pending(client, "dead") == 2


@pytest.mark.parametrize("crash", ["before", "after"])
async def test_a_crash_between_the_two_leaves_one(
    client: headgate.Client, redis_url: str, monkeypatch: pytest.MonkeyPatch, crash: str
) -> None:
    """The consumer dies just before, or just after, the dead letter was stored; another one takes over."""
    await client.apply("orders", kind="queue", max_attempts=1, dead_letter="dead")
    publish = Store.publish
    crashed = asyncio.Event()

    async def die(self: Store, address: Address, account: Account, **arguments: Any) -> Any:
        answer = await publish(self, address, account, **arguments) if crash == "after" else None
        if address.name == "dead" and (answer is None or answer.code == "OK"):
            crashed.set()
            await asyncio.Event().wait()
        return answer

    async with client.session("t") as session:
        await fill(session, 1)
    first = headgate.connect(redis_url, namespace=client.namespace)
    await first
    consumer = await first.session("first", ttl=1).consumer("orders")
    message = await receive(consumer)
    monkeypatch.setattr(Store, "publish", die)
    await message.modify()
    await asyncio.wait_for(crashed.wait(), GUARD)
    monkeypatch.undo()
    await feed_of(consumer).settlements._dead_letters.close()
    await consumer.close()  # gives it back, as its reclaim would
    async with client.session("second") as session:
        second = await session.consumer("orders")

        async def is_dead() -> bool:
            if (retried := await second.receive(timeout=0.2)) is not None:
                await retried.modify()
            return await are(client, "orders", 0)

        await wait_until(is_dead, timeout=GUARD)
    await first.close()
    assert len(stored_bodies(redis_url, client.namespace, "dead")) == 1
    assert await field(client, "dead", "pending_messages") == 1


async def test_closing_gives_back_what_is_not_stored_there_yet(client: headgate.Client) -> None:
    await client.apply("dead", kind="queue", limit=300)
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session("s") as session:
        await fill(session, 1, "dead", size=200)
        await fill(session, 1)
        consumer = await session.consumer("orders")
        told = asyncio.create_task((await receive(consumer)).reject(confirm=True))
        await asyncio.sleep(0)
        await consumer.close()
        with pytest.raises(Closed):
            await told
        other = await session.consumer("orders")
        await (await receive(other)).accept(confirm=True)
    assert await pending(client, "orders") == 0


async def dead_at_slices(client: headgate.Client, consumer: headgate.Consumer) -> list[str]:
    """Send a message to each slice, and reject each that comes; returns where they came from."""
    for number in range(3):
        async with client.session(f"in{number}") as session:
            await (await session.producer("orders")).send("bad")
    came = [await receive(consumer) for _ in range(3)]
    for message in came:
        await message.reject(confirm=True)
    assert len({message.id.partition(":")[0] for message in came if ":" in message.id}) == 2
    return [message.id for message in came]


async def test_a_dead_letter_of_a_slice_says_the_name_that_anybody_may_send_to(
    client: headgate.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever sends it back where it came from would be refused. Mutant: it says the slice."""
    await client.apply("orders", kind="queue", dead_letter="dead", slices=3)
    async with client.session("s") as session:
        sent = await dead_at_slices(client, await session.consumer("orders"))
        dead = await drain(await session.consumer("dead"), 3)
    assert {message.headers["headgate-dead-from"] for message in dead} == {"orders"}
    assert sorted(str(message.headers["headgate-dead-id"]) for message in dead) == sorted(sent)
    assert "#" not in caplog.text


async def test_no_slice_of_a_queue_has_the_queue_as_its_dead_letters(client: headgate.Client) -> None:
    """Else what is rejected at a slice comes again for ever, by the first one. Mutant: a slice is another queue."""
    await client.apply("orders", kind="queue", dead_letter="orders", slices=3)
    async with client.session("s") as session:
        await dead_at_slices(client, await session.consumer("orders"))
        assert (await client.recount("orders")).counted[:2] == (0, 0)


async def test_a_dead_letter_waits_for_the_rate_in_line_with_all_others_also_over_slices(
    client: headgate.Client,
) -> None:
    """P7. Mutant: it names nobody, and so goes before all senders that stand in line."""
    await client.apply("lost", kind="queue", slices=3, send_rate="1/min", send_burst=1)
    await client.apply("orders", dead_letter="lost")
    async with client.session("a") as session:
        await (await session.producer("lost")).send(b"x", timeout=GUARD)
        await (await session.producer("orders")).send(b"y", timeout=GUARD)
        consumer = await session.consumer("orders")
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.reject("it is broken")

        async def in_line() -> bool:
            return "; 1 sender in its line: dead~" in (await client.explain("lost")).reason

        await wait_until(in_line, timeout=GUARD)
        await client.apply("lost", send_rate="default", send_burst="default")
        await consumer.flush(timeout=GUARD)
