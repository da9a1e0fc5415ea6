"""A session whose sends wait for room that only its own waiting tasks could make."""

import asyncio
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

import headgate
import headgate.sync
from headgate import DeadlockDetected, PolicyError
from headgate.explain.self_wait import SelfWait
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, drain, waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

LIMIT = 1000
SIZE = 400
"""Two of them fit, a third one does not."""


async def queue(client: headgate.Client, deadlock: str | None) -> None:
    await client.apply("loop", kind="queue", limit=LIMIT, deadlock=deadlock)


async def fill(producer: headgate.Producer) -> None:
    for _ in range(2):
        await producer.send(b"x" * SIZE)


async def echo(consumer: headgate.Consumer, producer: headgate.Producer) -> None:
    """For each message send two: the queue it reads from is the one it fills."""
    async for message in consumer:
        await producer.send(b"x" * SIZE, timeout=600)
        await message.accept()


async def looks_twice(client: headgate.Client, producer: headgate.Producer) -> None:
    """Let who waits there look at the destination twice and more, which is when it would have found out."""
    await wait_until(lambda: waiting(client, "loop"))
    observer = producer._account.observer  # what it looked at is not told to anybody
    for _ in range(2):
        seen = observer._seen

        def looked_again(seen: object = seen) -> bool:
            return observer._seen is not None and observer._seen is not seen

        await wait_until(looked_again)


async def test_a_task_that_sends_to_what_it_consumes_fails_instead_of_waiting(client: headgate.Client) -> None:
    await queue(client, "fail")
    async with client.session("shop") as session:
        consumer, producer = await session.consumer("loop", window=1), await session.producer("loop", window=1)
        await fill(producer)
        async with asyncio.timeout(GUARD):
            with pytest.raises(DeadlockDetected) as caught:
                await echo(consumer, producer)
        error = caught.value
        assert (error.destination, error.session) == ("loop", session.id)
        assert error.size >= SIZE
        assert str(error.deadlock) == (
            f"queue loop waits for session {session.id} to consume; session {session.id} waits for room in queue loop"
        )
        assert error.explanation.deadlock == error.deadlock
        assert error.explanation.as_dict()["deadlock"]["steps"][0]["who"] == {
            "kind": "queue", "name": "loop", "at": "",
        }  # fmt: skip
        assert f"a deadlock: {error.deadlock}" in str(error.explanation)
        await drain(await session.consumer("loop"), 1)
        await producer.send(b"x" * 100)  # it goes on as if nothing had been


async def test_one_that_fills_what_only_it_has_opened_fails_too(client: headgate.Client) -> None:
    await queue(client, "fail")
    async with client.session("shop") as session:
        await session.consumer("loop")
        producer = await session.producer("loop", window=1)
        await fill(producer)
        async with asyncio.timeout(GUARD):
            with pytest.raises(DeadlockDetected):
                await producer.send(b"x" * SIZE, timeout=600)


async def test_alert_says_it_once_and_lets_it_wait(client: headgate.Client, caplog: pytest.LogCaptureFixture) -> None:
    await queue(client, "alert")
    async with client.session("shop") as session:
        consumer, producer = await session.consumer("loop", window=1), await session.producer("loop", window=1)
        await fill(producer)
        with caplog.at_level(logging.WARNING, "headgate"):
            task = asyncio.create_task(echo(consumer, producer))

            def alerts() -> list[str]:
                return [one.getMessage() for one in caplog.records if "waits for itself" in one.getMessage()]

            await wait_until(alerts)
            await looks_twice(client, producer)
            assert len(alerts()) == 1
            assert f"{session.id} waits for itself to send to loop: queue loop waits for session" in alerts()[0]
            assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_nobody_looks_unless_it_is_asked_for(client: headgate.Client) -> None:
    await queue(client, None)
    async with client.session("shop") as session:
        consumer, producer = await session.consumer("loop", window=1), await session.producer("loop", window=1)
        await fill(producer)
        task = asyncio.create_task(echo(consumer, producer))
        await looks_twice(client, producer)
        assert not task.done()
        await queue(client, "fail")
        async with asyncio.timeout(GUARD):
            with pytest.raises(DeadlockDetected):  # the one who waits already is told when the setting changes
                await task


async def test_another_task_that_waits_to_receive_is_no_deadlock(client: headgate.Client) -> None:
    await queue(client, "fail")
    async with client.session("shop") as session:
        consumer, producer = await session.consumer("loop", window=1), await session.producer("loop", window=1)
        await fill(producer)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        other = asyncio.create_task(consumer.receive())
        sends = asyncio.create_task(producer.send(b"x" * SIZE, timeout=600))
        await looks_twice(client, producer)
        assert not sends.done()
        await message.accept()
        await sends
        assert await other


async def test_another_task_that_works_on_a_message_is_no_deadlock(client: headgate.Client) -> None:
    await queue(client, "fail")
    async with client.session("shop") as session:
        consumer, producer = await session.consumer("loop", window=1), await session.producer("loop", window=1)
        await fill(producer)
        go_on = asyncio.Event()

        async def work() -> None:
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await go_on.wait()
            await message.accept()

        works = asyncio.create_task(work())
        await wait_until(lambda: consumer.held_messages)
        sends = asyncio.create_task(producer.send(b"x" * SIZE, timeout=600))
        await looks_twice(client, producer)
        assert not sends.done()
        go_on.set()
        await asyncio.gather(works, sends)


async def test_a_task_that_gave_up_its_post_does_not_wait(client: headgate.Client) -> None:
    await queue(client, "fail")
    async with client.session("shop") as session:
        consumer, producer = await session.consumer("loop", window=1), await session.producer("loop", window=1)
        await fill(producer)
        sends = asyncio.create_task(producer.send(b"x" * SIZE, timeout=600))
        await wait_until(lambda: producer.is_blocked)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        posts = asyncio.ensure_future(producer.post(b"x" * SIZE, timeout=600))
        await wait_until(lambda: len(producer._account.outbox.waiting) == 2)
        producer._account.outbox.waiting[1].who = asyncio.current_task()  # as if it had posted by itself
        posts.cancel()
        await looks_twice(client, producer)
        assert producer._account.observer.self_wait.deadlock is None
        await message.accept()
        await sends


async def test_a_consumer_that_several_tasks_have_used_is_no_deadlock(client: headgate.Client) -> None:
    """Whoever has it may use it any time."""
    await queue(client, "fail")
    async with client.session("shop") as session:
        consumer, producer = await session.consumer("loop", window=1), await session.producer("loop", window=1)
        await fill(producer)
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await asyncio.create_task(_release(message))
        await wait_until(lambda: consumer.held_messages == 1)
        assert await consumer.receive(timeout=GUARD)

        async def free() -> None:
            await looks_twice(client, producer)
            assert producer.is_blocked
            await client.purge("loop")

        frees = asyncio.create_task(free())
        await producer.send(b"x" * SIZE, timeout=600)
        await frees


async def _release(message: headgate.Message) -> None:
    await message.release()


async def test_a_consumer_of_another_session_is_no_deadlock(client: headgate.Client, other: headgate.Client) -> None:
    await queue(client, "fail")
    async with client.session("shop") as session, other.session("helper") as helper:
        consumer, producer = await session.consumer("loop", window=1), await session.producer("loop", window=1)
        theirs = await helper.consumer("loop", window=1)
        await fill(producer)
        task = asyncio.create_task(echo(consumer, producer))
        await looks_twice(client, producer)
        assert not task.done()
        await drain(theirs, 1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_topic_that_only_the_sender_subscribes_to_fails_too(client: headgate.Client) -> None:
    await client.apply("news", kind="topic", limit=LIMIT, deadlock="fail")
    async with client.session("shop") as session:
        consumer, producer = await session.consumer("news", window=1), await session.producer("news", window=1)
        await fill(producer)
        async with asyncio.timeout(GUARD):
            with pytest.raises(DeadlockDetected, match=r"topic news \(subscription"):
                await echo(consumer, producer)


async def test_other_subscriptions_of_the_topic_do_not_help(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("news", kind="topic", limit=LIMIT, deadlock="fail")
    async with client.session("shop") as session, other.session("reader") as reader:
        await reader.consumer("news")
        consumer, producer = await session.consumer("news", window=1), await session.producer("news", window=1)
        await fill(producer)
        async with asyncio.timeout(GUARD):
            with pytest.raises(DeadlockDetected, match=r"topic news \(subscription shop"):
                await echo(consumer, producer)


def send_in_a_thread(url: str, namespace: str, producers: list[headgate.Producer], settle: threading.Event) -> bool:
    """Fill a queue and send once more, having received what is there; returns whether that raised DeadlockDetected.

    Once ``settle`` is set, another thread settles a message that it received; where it is set before, there is none.
    """
    with (
        headgate.sync.connect(url, namespace=namespace) as client,
        client.session("shop") as session,
        ThreadPoolExecutor(1) as other,
    ):
        consumer, producer = session.consumer("loop", window=2), session.producer("loop", window=1)
        producers.append(producer._inner)
        for _ in range(2):
            producer.send(b"x" * SIZE)
        assert consumer.receive(timeout=GUARD)
        if not settle.is_set():
            held = other.submit(consumer.receive, timeout=GUARD).result()
            assert held is not None
            other.submit(settle.wait).add_done_callback(lambda _: held.accept())
        try:
            producer.send(b"x" * SIZE, timeout=GUARD)
        except DeadlockDetected:
            return True
        return False


async def test_a_thread_that_sends_to_what_it_consumes_fails(client: headgate.Client, redis_url: str) -> None:
    """Mutant: tasks are looked at and not the threads that they work for (`Use.by_threads`)."""
    await queue(client, "fail")
    alone = threading.Event()
    alone.set()
    assert await asyncio.to_thread(send_in_a_thread, redis_url, client.namespace, [], alone)


async def test_another_thread_that_works_on_a_message_is_no_deadlock(client: headgate.Client, redis_url: str) -> None:
    await queue(client, "fail")
    producers: list[headgate.Producer] = []
    settle = threading.Event()
    sends = asyncio.create_task(asyncio.to_thread(send_in_a_thread, redis_url, client.namespace, producers, settle))
    await wait_until(lambda: producers)
    await looks_twice(client, producers[0])
    assert not sends.done()
    settle.set()
    assert not await sends


async def test_one_look_is_not_enough_and_neither_are_two_that_differ(client: headgate.Client) -> None:
    await queue(client, None)
    async with client.session("shop") as session:
        consumer, producer = await session.consumer("loop", window=1), await session.producer("loop", window=1)
        await fill(producer)
        task = asyncio.create_task(echo(consumer, producer))
        await wait_until(lambda: waiting(client, "loop"))
        snapshot = await client.store.snapshot(Address.of(client.namespace, "loop"), session=session.id)
        assert snapshot is not None
        moved = replace(snapshot, fields=snapshot.fields | {"pending_bytes": str(LIMIT)})
        line, waits = producer._account.outbox.waiting, SelfWait("loop", session.id)
        waits.action, waits.consumers = "fail", [consumer]
        for seen in (snapshot, moved, snapshot):
            assert waits.look(seen, line) is None
            assert waits.suspects
        assert waits.look(snapshot, line) is line[-1]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_the_setting_is_one_of_four_words_and_is_about_messages(client: headgate.Client) -> None:
    with pytest.raises(PolicyError, match="deadlock: 'never'; use none, alert, fail or ticket"):
        await client.apply("loop", deadlock="never")
    with pytest.raises(PolicyError, match="deadlock belongs to a queue or a topic, not to a gate"):
        await client.apply("door", kind="gate", deadlock="fail")
