"""What a send does that finds no room: it waits, fails, fails after a while, or drops its message, and says so."""

import asyncio
import time

import pytest

import headgate
import headgate.sync
from headgate import CoordinatorUnavailable, CreditTimeout, DestinationFull, PolicyError
from headgate.core.limits.spread import Spread
from headgate.redis.keys import Address
from headgate.redis.stores.spreads import SpreadStore
from tests.sdk.observing import GUARD, counts, drain, field, outcomes, stored_bodies, waiting
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def fill(client: headgate.Client, destination: str = "full", when_full: str | None = None) -> None:
    """Make a queue of 1000 bytes, and leave room for less than 100."""
    await client.apply(destination, limit=1000, when_full=when_full)
    async with client.session("filler") as session:
        await (await session.producer(destination, window=1000)).send(b"x" * 900)


async def test_fail_says_what_is_full_and_what_would_free_it(client: headgate.Client) -> None:
    await fill(client, when_full="fail")
    async with client.session("s") as session:
        producer = await session.producer("full")
        async with asyncio.timeout(GUARD):
            with pytest.raises(DestinationFull, match=r"no room for 504 bytes(| after .* s): the limit of") as caught:
                await producer.send(b"y" * 500, timeout=600)
        error = caught.value
        assert (error.destination, error.size) == ("full", 504)
        assert error.explanation is not None
        assert error.explanation.binding is not None
        assert error.explanation.binding.limit == 1000
        assert not producer.is_blocked
        await wait_until(lambda: _nobody_waits(client))
        assert (await producer.send(b"y" * 50)).seq == 2  # there is room for less


async def _nobody_waits(client: headgate.Client) -> bool:
    return await field(client, "full", "blocked") == 0


async def test_fail_asks_redis_before_it_gives_up(client: headgate.Client, other: headgate.Client) -> None:
    """What was freed since the last answer is used, and a producer without credit in hand is not refused for that."""
    await fill(client, when_full="fail")
    async with client.session("s") as session, other.session("in") as into:
        producer, consumer = await session.producer("full"), await into.consumer("full")
        with pytest.raises(DestinationFull):
            await producer.send(b"y" * 500)
        for _ in range(5):
            await drain(consumer, 1)
            assert (await producer.send(b"y" * 900)).seq


async def test_many_that_fit_one_by_one_do_not_fail(client: headgate.Client) -> None:
    await client.apply("full", limit=100_000, when_full="fail")
    async with client.session("s") as session:
        producer = await session.producer("full", window=100)
        receipts = await outcomes([producer.send(b"y" * 500) for _ in range(50)])
    assert [receipt.seq for receipt in receipts] == list(range(1, 51))


async def test_of_many_at_once_those_that_find_room_go_and_the_others_fail(client: headgate.Client) -> None:
    await client.apply("full", limit=1000, when_full="fail")
    async with client.session("s") as session:
        producer = await session.producer("full")
        told = await outcomes([producer.send(b"y" * 297, timeout=600) for _ in range(8)])
    assert [type(one) for one in told] == [headgate.Receipt] * 3 + [DestinationFull] * 5
    assert await counts(client, "full") == (903, 0)


async def test_fail_behind_a_send_that_waits_does_not_wait(client: headgate.Client) -> None:
    await fill(client)
    async with client.session("s") as session:
        patient, hasty = await session.producer("full"), await session.producer("full", when_full="fail")
        waits = asyncio.ensure_future(patient.send(b"y" * 500, timeout=600))
        await wait_until(lambda: waiting(client, "full"))
        for _ in range(3):
            async with asyncio.timeout(GUARD):
                with pytest.raises(DestinationFull):
                    await hasty.send(b"z", timeout=600)
        assert not waits.done()
        await client.purge("full")
        assert (await waits).seq == 2


async def test_fail_after_sends_when_room_comes_in_time(client: headgate.Client) -> None:
    await fill(client, when_full="fail-after 30s")
    async with client.session("s") as session:
        producer = await session.producer("full")
        waits = asyncio.ensure_future(producer.send(b"y" * 500, timeout=600))
        await wait_until(lambda: waiting(client, "full"))
        await client.purge("full")
        assert (await waits).seq == 2


async def test_fail_after_gives_up_when_it_is_over(client: headgate.Client) -> None:
    await fill(client, when_full="fail-after 300ms")
    async with client.session("s") as session:
        producer = await session.producer("full")
        async with asyncio.timeout(GUARD):
            with pytest.raises(DestinationFull, match=r"after [\d.]+ s: the limit") as caught:
                await producer.send(b"y" * 500, timeout=600)
        assert caught.value.waited >= 0.3
        await client.apply("full", when_full=f"fail-after {GUARD}s")
        with pytest.raises(DestinationFull) as caught:
            await producer.send(b"y" * 500, timeout=0.05)  # the caller's own time is shorter
        assert caught.value.waited < GUARD


async def test_drop_drops_what_finds_no_room_and_tells_how_much(client: headgate.Client, redis_url: str) -> None:
    await fill(client, when_full="drop")
    async with client.session("s") as session, client.session("t") as another:
        producer = await session.producer("full")
        receipts = [await producer.send(b"y" * 500, timeout=600) for _ in range(3)]
        receipts.append(await (await producer.post(b"y" * 500, timeout=600)))
        assert [(receipt.dropped, receipt.id, receipt.size) for receipt in receipts] == [(True, "", 504)] * 4
        assert repr(receipts[0]) == "Receipt(dropped)"
        await (await another.producer("full")).send(b"y" * 700)
        stored = await producer.send(b"y" * 10)
        assert (stored.dropped, stored.seq) == (False, 2)
    assert [len(body) for body in stored_bodies(redis_url, client.namespace, "full")] == [900, 10]
    assert await field(client, "full", "dropped_messages") == 5
    assert await field(client, "full", "dropped_bytes") == 4 * 504 + 704
    assert await counts(client, "full") == (904 + 13, 0)


async def test_drops_are_reported_while_the_session_lives_and_counted_once(client: headgate.Client) -> None:
    await fill(client, when_full="drop")
    async with client.session("s") as session:
        producer, consumer = await session.producer("full"), await session.consumer("other")
        await producer.send(b"y" * 500)
        await wait_until(lambda: _dropped(client, 1))
        await producer.send(b"y" * 500)
        await wait_until(lambda: _dropped(client, 2))
        await producer.close()
        producer = await session.producer("full")
        await producer.send(b"y" * 500)
        await consumer.close()
    assert await field(client, "full", "dropped_messages") == 3


async def _dropped(client: headgate.Client, count: int) -> bool:
    fields = (await client.explain("full")).fields
    return fields.get("dropped_messages") == str(count)


async def test_a_session_that_still_consumes_goes_on_counting(client: headgate.Client) -> None:
    """Its lease does not end with its producer, nor does what the destination knows of its drops."""
    await fill(client, when_full="drop")
    async with client.session("s") as session:
        consumer = await session.consumer("full", window="paused")
        for _ in range(3):
            producer = await session.producer("full")
            assert (await producer.send(b"y" * 500)).dropped
            await producer.close()
        await consumer.close()
        producer = await session.producer("full")
        assert (await producer.send(b"y" * 500)).dropped
    assert await field(client, "full", "dropped_messages") == 4


async def test_a_producer_may_say_something_else_for_itself(client: headgate.Client) -> None:
    await fill(client, when_full="fail")
    async with client.session("s") as session:
        dropping = await session.producer("full", when_full="drop")
        blocking = await session.producer("full", when_full="block")
        assert (await dropping.send(b"y" * 500)).dropped
        with pytest.raises(CreditTimeout):
            await blocking.send(b"y" * 500, timeout=0.2)
        with pytest.raises(DestinationFull):
            await (await session.producer("full")).send(b"y" * 500)
        for word in ("explode", "fail-after", "fail-after soon"):
            with pytest.raises(ValueError, match=r"when_full"):
                await session.producer("full", when_full=word)


@pytest.mark.parametrize(
    ("when_full", "told"),
    [("fail", "DestinationFull"), ("fail-after 10ms", "DestinationFull"), ("drop", "Receipt(dropped)")],
)
async def test_a_change_reaches_those_who_wait(
    client: headgate.Client, other: headgate.Client, when_full: str, told: str
) -> None:
    await fill(client)
    async with client.session("s") as session:
        producer = await session.producer("full")
        waits = asyncio.ensure_future(producer.send(b"y" * 500, timeout=600))
        await wait_until(lambda: waiting(client, "full"))
        await other.apply("full", when_full=when_full)
        (outcome,) = await outcomes([waits])
        assert told in repr(outcome)
        await other.apply("full", when_full="default")
        await wait_until(lambda: _waits_again(producer))


async def _waits_again(producer: headgate.Producer) -> bool:
    (told,) = await outcomes([producer.send(b"y" * 500, timeout=0.1)])
    return isinstance(told, CreditTimeout)


@pytest.mark.parametrize("when_full", ["fail", "fail-after 100ms", "drop"])
async def test_a_gate_fails_instead_of_waiting(client: headgate.Client, when_full: str) -> None:
    await client.apply("calls", kind="gate", limit=100)
    await client.apply("calls", when_full=when_full)
    async with client.session("s") as session, client.session("t") as another:
        held, gate = await session.gate("calls"), await another.gate("calls")
        async with held.admit(80), asyncio.timeout(GUARD):
            with pytest.raises(DestinationFull, match="no room for 50"):
                async with gate.admit(50, timeout=600):
                    raise AssertionError("it was admitted")
        async with gate.admit(50, timeout=GUARD) if "after" in when_full else held.admit(50, timeout=GUARD):
            pass
        with pytest.raises(PolicyError, match="no message to drop"):
            await session.gate("calls", when_full="drop")
    with pytest.raises(PolicyError, match="no message to drop"):
        await client.apply("doors", kind="gate", when_full="drop")


async def test_without_redis_nobody_waits_who_said_so(server: RedisServer) -> None:
    async with headgate.connect(server.url) as client:
        await fill(client, when_full="fail")
        async with client.session("s") as session:
            producer = await session.producer("full")
            dropping = await session.producer("full", when_full="drop")
            server.kill9()
            with pytest.raises(CoordinatorUnavailable, match="was not sent: Redis has not answered"):
                async with asyncio.timeout(GUARD):
                    await producer.send(b"y" * 500, timeout=600)
            async with asyncio.timeout(GUARD):
                assert (await dropping.send(b"y" * 500, timeout=600)).dropped


async def test_a_full_destination_does_not_slow_others_of_the_same_client(client: headgate.Client) -> None:
    """A producer is blocked per destination, never with its client or its session."""
    await fill(client)
    names = [f"free-{number}" for number in range(5)]
    async with client.session("s") as session:
        producers = [await session.producer(name) for name in names]
        blocked = await session.producer("full")

        async def send_all(producer: headgate.Producer) -> None:
            for _ in range(50):
                await producer.send(b"x" * 100)

        async def time_all() -> float:
            begin = time.perf_counter()
            await asyncio.gather(*(send_all(producer) for producer in producers))
            return time.perf_counter() - begin

        await time_all()
        free, beside = [], []
        for _ in range(24):  # in turn, so that other work on this machine slows both alike
            free.append(await time_all())
            waits = [asyncio.ensure_future(blocked.send(b"y" * 500, timeout=600)) for _ in range(20)]
            await wait_until(lambda: waiting(client, "full"))
            beside.append(await time_all())
            assert not any(wait.done() for wait in waits)
            for wait in waits:
                wait.cancel()
            await wait_until(lambda: _nobody_waits(client))
            if len(free) > 2 and min(beside) < 1.5 * min(free):
                break
        assert min(beside) < 1.5 * min(free), (beside, free)
    await asyncio.gather(*(client.remove(name) for name in names))


async def test_threads_have_it_too(client: headgate.Client, redis_url: str) -> None:
    await fill(client, when_full="fail")

    def work() -> tuple[bool, type[Exception]]:
        with headgate.sync.connect(redis_url, namespace=client.namespace) as threads, threads.session("t") as session:
            dropping = session.producer("full", when_full="drop").send(b"y" * 500)
            with pytest.raises(DestinationFull) as caught:
                session.producer("full").send(b"y" * 500)
            return dropping.dropped, caught.type

    assert await asyncio.to_thread(work) == (True, DestinationFull)


async def test_fail_waits_for_the_look_by_which_credit_at_slices_of_values_is_certain(
    client: headgate.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutants: it is refused while credit is there that may not be used yet; what finds none waits too."""
    looks, in_force = asyncio.Event(), SpreadStore.in_force

    async def looks_late(store: SpreadStore, queue: Address) -> tuple[Spread | None, str]:
        await looks.wait()
        return await in_force(store, queue)

    monkeypatch.setattr(SpreadStore, "in_force", looks_late)
    await client.apply("full", limit=1000, slices=2, order_by="header:customer", when_full="fail")
    async with client.session("s") as session:
        producer = await session.producer("full")
        sent = [
            asyncio.create_task(producer.send(b"y" * size, headers={"customer": 1}, timeout=600)) for size in (100, 890)
        ]
        await asyncio.wait(sent, timeout=0.3)
        looks.set()
        async with asyncio.timeout(GUARD):
            assert (await sent[0]).size < 200
            with pytest.raises(DestinationFull):
                await sent[1]
