"""P11, nothing hangs: Redis stopped, hung, restarted with its data or without, its scripts flushed."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
import redis

import headgate
from headgate import CoordinatorUnavailable, CreditTimeout, HeadgateError
from tests.sdk.observing import GUARD, counts, drain, field, learn_fast, look, outcomes, stored_bodies
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

CLOSES = 4.0  # close() says about 1 s; a busy machine may take a little longer, a hang takes for ever


@pytest.fixture
async def client(server: RedisServer) -> AsyncIterator[headgate.Client]:
    """A client of the test's own server."""
    async with headgate.connect(server.url) as client:
        learn_fast(client)
        yield client
        server.sigcont()


def stop(server: RedisServer) -> None:
    server.kill9()


def hang(server: RedisServer) -> None:
    server.sigstop()


def resume(server: RedisServer) -> None:
    server.sigcont()
    server.restart()


@pytest.fixture(params=[stop, hang])
def take_away(request: pytest.FixtureRequest) -> Callable[[RedisServer], None]:
    function: Callable[[RedisServer], None] = request.param
    return function


async def ends(call: Awaitable[object]) -> object:
    """Await a call that was given 0.3 s; an error of ours is an end, too."""
    async with asyncio.timeout(0.3 + GUARD):
        try:
            return await call
        except HeadgateError as error:
            return error


async def test_every_call_ends_within_its_timeout_while_redis_is_away(
    client: headgate.Client, server: RedisServer, take_away: Callable[[RedisServer], None]
) -> None:
    await client.apply("gate", kind="gate", limit=1000)
    await client.apply("bucket", rate=100)
    async with client.session("s", ttl=1) as session:
        producer = await session.producer("queue")
        consumer = await session.consumer("queue")
        gate = await session.gate("gate", window=1000)
        bucket = await session.bucket("bucket")
        await producer.send(b"before")
        take_away(server)

        late = await asyncio.gather(
            ends(producer.send(b"x", timeout=0.3)),
            ends(gate.admit(1001, timeout=0.3).__aenter__()),
            ends(bucket.take(1, timeout=0.3)),
        )
        assert isinstance(late[0], CoordinatorUnavailable | CreditTimeout)
        assert isinstance(late[1], CreditTimeout)
        assert isinstance(late[2], CoordinatorUnavailable)
        posted = await ends(producer.post(b"y", timeout=0.3))
        if not isinstance(posted, HeadgateError):
            assert isinstance(posted, asyncio.Future)
            assert isinstance(await ends(posted), CoordinatorUnavailable)
        first = await ends(consumer.receive(timeout=0.3))
        assert first is None or isinstance(first, headgate.Message)
        assert isinstance(await ends(consumer.flush(timeout=0.3)), CoordinatorUnavailable | None)
        unbounded = await asyncio.gather(
            ends(client.explain("queue")),
            ends(client.apply("queue", limit=1000)),
            ends(client.recount("queue")),
            ends(consumer.configure(window=5)),
            ends(session.producer("another")),
            ends(session.consumer("another")),
        )
        assert {type(error) for error in unbounded} == {CoordinatorUnavailable}


async def test_a_timeout_without_redis_says_that_redis_does_not_answer(
    client: headgate.Client, server: RedisServer
) -> None:
    await client.apply("gate", kind="gate", limit=100)
    async with client.session("s", ttl=1) as session:
        gate = await session.gate("gate", window=100)
        async with gate.admit(100):
            server.kill9()
            await wait_until(lambda: gate._account.lost_since)
            with pytest.raises(CreditTimeout, match="Redis has not answered for") as caught:
                async with asyncio.timeout(GUARD), gate.admit(50, timeout=0.1):
                    pass
            assert "Redis has not answered" in caught.value.reason


async def test_what_has_its_credit_and_is_not_sent_says_why_and_how_long_it_waited(
    client: headgate.Client, server: RedisServer, take_away: Callable[[RedisServer], None]
) -> None:
    """Not one of them is refused at once, nor for want of credit; the first may have been stored."""
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await producer.send("warm")
        take_away(server)
        sends = []
        for _ in range(3):  # the first is on its way as the others come
            sends.append(asyncio.create_task(producer.send("x" * 10, timeout=1)))
            await asyncio.sleep(0.05)
        first, *others = await asyncio.gather(*sends, return_exceptions=True)
        assert isinstance(first, CreditTimeout | CoordinatorUnavailable)
        for error in others:
            assert isinstance(error, CreditTimeout)
            assert (error.paid, error.waited >= 1) == (True, True), str(error)
            assert "had credit and were not sent within 1" in str(error)
            assert "Redis has not answered for" in error.reason, "a call that hangs has not failed by then"
        assert "Redis has not answered for" in str(first)


async def test_whoever_waits_for_a_redis_that_is_full_hears_so(client: headgate.Client, server: RedisServer) -> None:
    """It answers, so nobody says that it does not."""
    await client.apply("ten", kind="bucket", rate=10)
    await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 4}})
    async with client.session("s") as session:
        producer, limiter = await session.producer("orders"), await session.limiter("llm")
        bucket = await session.bucket("ten")
        await producer.send("x")
        with redis.Redis.from_url(server.url) as direct:
            direct.config_set("maxmemory", 1)
            for call in (
                producer.send("x" * 1000, timeout=0.5), limiter.admit(slots=1, timeout=0.5), bucket.take(timeout=0.5)
            ):  # fmt: skip
                with pytest.raises(HeadgateError, match="is out of memory; consume, or raise its maxmemory"):
                    await call
            direct.config_set("maxmemory", 0)
        await producer.send("x", timeout=GUARD)


async def test_close_returns_with_a_thousand_blocked_sends_while_redis_is_away(
    server: RedisServer, take_away: Callable[[RedisServer], None]
) -> None:
    client = await headgate.connect(server.url)
    await client.apply("full", limit=1000)
    producer = await client.session("s").producer("full", window=1000)
    await producer.send(b"x" * 990)
    blocked = [asyncio.ensure_future(producer.send(b"y" * 100, timeout=60)) for _ in range(1000)]
    await wait_until(lambda: producer.is_blocked)
    take_away(server)
    async with asyncio.timeout(CLOSES):
        await client.close()
    results = await outcomes(blocked)
    assert {type(result) for result in results} == {headgate.Closed}


async def test_close_survives_a_connection_that_redis_py_has_half_forgotten(server: RedisServer) -> None:
    class Broken:
        connection = SimpleNamespace(is_connected=True)

        async def unsubscribe(self, *channels: str) -> None:
            None.writelines(channels)  # type: ignore[attr-defined]

    client = await headgate.connect(server.url)
    await client.session("s").producer("orders")
    wake_ups: Any = client.parts.wake_ups
    wake_ups._pubsub = Broken()
    await client.close()


async def test_close_is_not_flow_controlled(client: headgate.Client) -> None:
    await client.apply("full", limit=1000)
    session = client.session("s")
    producer = await session.producer("full", window=1000)
    receipt = await producer.send(b"x" * 990)
    blocked = [asyncio.ensure_future(producer.send(b"y" * 100, timeout=60)) for _ in range(1000)]
    await wait_until(lambda: field(client, "full", "blocked"))
    async with asyncio.timeout(CLOSES):
        await session.close()
    assert {type(result) for result in await outcomes(blocked)} == {headgate.Closed}
    assert await counts(client, "full") == (receipt.size, 0)


@pytest.mark.parametrize("how", ["hung", "restarted"])
async def test_after_redis_is_back_everything_goes_on_and_nothing_is_lost_or_doubled(
    client: headgate.Client, server: RedisServer, how: str
) -> None:
    total = 600
    await client.apply("orders", limit="20kB")
    received: list[headgate.Message] = []
    async with client.session("out", ttl=5) as out, client.session("in", ttl=5) as into:
        producer = await out.producer("orders", window="4kB")
        consumer = await into.consumer("orders", window=20)

        async def send(number: int) -> headgate.Receipt:
            return await producer.send(f"{number}", timeout=60)

        async def receive() -> None:
            while len({message.body for message in received}) < total:
                message = await consumer.receive(timeout=GUARD)
                assert message is not None
                received.append(message)
                with contextlib.suppress(headgate.SessionExpired):
                    await message.accept()

        sending = [asyncio.ensure_future(send(number)) for number in range(total)]
        receiving = asyncio.ensure_future(receive())
        await wait_until(lambda: len(received) >= 50)
        if how == "hung":
            server.sigstop()
            await wait_until(lambda: producer._account.lost_since, description="somebody noticed")
            server.sigcont()
        else:
            server.kill9()
            await wait_until(lambda: producer._account.lost_since, description="somebody noticed")
            server.restart()
        async with asyncio.timeout(40):
            receipts = await asyncio.gather(*sending)
            await receiving
            await consumer.flush(timeout=GUARD)
        assert len({receipt.seq for receipt in receipts}) == total
        fresh = [message.body for message in received if message.delivery_count == 0]
        assert len(fresh) == len(set(fresh)), "twice, and not told apart"
        assert {message.body for message in received} == {str(number) for number in range(total)}
        assert await field(client, "orders", "pending_messages") == 0
    assert await counts(client, "orders") == (0, 0)


async def test_after_an_empty_restart_the_limits_are_back_and_sending_goes_on(
    client: headgate.Client, server: RedisServer
) -> None:
    await client.apply("orders", limit="10kB", limit_messages=77)
    async with client.session("s", ttl=2) as session:
        producer = await session.producer("orders", window="2kB")
        consumer = await session.consumer("orders")
        await producer.send("before")
        await drain(consumer, 1)
        server.restart(empty=True)
        blocked = [asyncio.ensure_future(producer.send(f"{number}", timeout=60)) for number in range(100)]
        received: list[headgate.Message] = []
        async with asyncio.timeout(40):
            while len(received) < 100:
                message = await consumer.receive(timeout=30)
                assert message is not None
                await message.accept()
                received.append(message)
            await asyncio.gather(*blocked)
            await consumer.flush()
        assert [message.body for message in received] == [str(number) for number in range(100)]
        fields = (await client.explain("orders")).fields
        assert (fields["limit_bytes"], fields["limit_messages"]) == ("10000", "77")
    assert await counts(client, "orders") == (0, 0)


async def test_on_loss_closed_admits_nothing_once_redis_is_lost(server: RedisServer) -> None:
    async with headgate.connect(server.url) as client:
        await client.apply("gate", kind="gate", limit=1000)
        gate = await client.session("s", ttl=8, on_loss="closed").gate("gate", window=1000)
        assert gate.try_admit(1), "a gate in use does not give its credit back for idleness"
        server.kill9()
        await wait_until(lambda: gate._account.lost_since, description="somebody noticed")
        assert gate.try_admit(1) is None
        assert time.monotonic() < gate._lease.use_until, "or this was its lease's end"
        server.restart()
        async with asyncio.timeout(GUARD), gate.admit(999):
            pass


async def test_on_loss_last_lease_spends_what_is_held_until_the_lease_ends_and_no_longer(server: RedisServer) -> None:
    async with headgate.connect(server.url) as client:
        await client.apply("gate", kind="gate", limit=1000)
        gate = await client.session("s", ttl=3, on_loss="last-lease").gate("gate", window=1000)
        assert gate.try_admit(1), "a gate in use does not give its credit back for idleness"
        server.kill9()
        await wait_until(lambda: gate._account.lost_since, description="somebody noticed")

        def refuses() -> bool:
            permit = gate.try_admit(999)
            if permit is not None:
                permit.release()
            return permit is None

        assert not refuses() or time.monotonic() > gate._lease.use_until, "a busy machine may take that long to notice"
        await wait_until(refuses, description="the end of the lease")
        assert time.monotonic() > gate._lease.use_until


async def test_a_storm_of_script_flushes_is_not_noticed(client: headgate.Client, server: RedisServer) -> None:
    await client.apply("orders", limit="50kB")
    flushing = True

    def storm() -> int:
        flushes = 0
        with redis.Redis.from_url(server.url) as direct:
            while flushing:
                direct.script_flush()
                flushes += 1
                time.sleep(0.001)  # with none, each of twenty tries of a call that loads its script may meet one
        return flushes

    storming = asyncio.ensure_future(asyncio.to_thread(storm))
    try:
        async with client.session("s") as session:
            producer = await session.producer("orders", window="10kB")
            consumer = await session.consumer("orders", window=50)
            sending = [asyncio.ensure_future(producer.send(f"{number}", timeout=30)) for number in range(2000)]
            messages = await drain(consumer, 2000)
            await asyncio.gather(*sending)
    finally:
        flushing = False
    assert await storming > 10
    assert [message.body for message in messages] == [str(number) for number in range(2000)]
    assert {message.delivery_count for message in messages} == {0}
    assert await counts(client, "orders") == (0, 0)
    assert stored_bodies(server.url, "default", "orders") == []


async def test_a_call_that_is_cancelled_ends(client: headgate.Client) -> None:
    """Mutant: redis-py's own timeout around each write, which loses a cancellation on Python 3.11."""
    await client.apply("orders", kind="queue")

    async def call_for_ever() -> None:
        while True:
            await look(client, "orders")

    for number in range(200):
        calling = asyncio.create_task(call_for_ever())
        for _ in range(number % 8):
            await asyncio.sleep(0)
        calling.cancel()
        _, pending = await asyncio.wait([calling], timeout=GUARD)
        assert not pending
