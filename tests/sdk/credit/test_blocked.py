"""Sends that wait for credit: they know why, are served in order as soon as room frees, and leave nothing behind."""

import asyncio

import pytest

import headgate
from headgate import CreditTimeout, MessageTooLarge
from tests.sdk.observing import GUARD, counts, drain, field, outcomes, waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_a_timeout_tells_place_and_reason(client: headgate.Client) -> None:
    await client.apply("full", limit=1000)
    async with client.session("s") as session, client.session("t") as other:
        producer = await session.producer("full", window=1000)
        await producer.send(b"x" * 990)
        with pytest.raises(CreditTimeout, match=r"no credit for 53 bytes .* place 1 in line: ") as caught:
            async with asyncio.timeout(GUARD):
                await producer.send(b"y" * 50, timeout=0.3)
        error = caught.value
        assert (error.destination, error.size, error.place) == ("full", 53, 1)
        assert error.waited >= 0.29
        assert error.reason
        assert isinstance(error, TimeoutError)

        first = asyncio.ensure_future(producer.send(b"y" * 50, timeout=GUARD))
        await wait_until(lambda: waiting(client, "full"))
        late = await other.producer("full", window=1000)
        with pytest.raises(CreditTimeout) as caught:
            await late.send(b"z", timeout=0.3)
        assert caught.value.place == 2
        explanation = await client.explain("full")
        assert (explanation.state, explanation.blocked >= 1) == ("blocked", True)
        assert explanation.reason == "the limit of 1000 bytes is reached: no consumer is attached"
        first.cancel()


async def test_a_timeout_of_zero_fails_at_once_and_a_send_with_credit_does_not_need_time(
    client: headgate.Client,
) -> None:
    await client.apply("full", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("full", window=1000)
        await producer.send(b"x" * 900, timeout=0)
        with pytest.raises(CreditTimeout):
            async with asyncio.timeout(GUARD):
                await producer.send(b"x" * 900, timeout=0)


async def test_it_goes_on_as_soon_as_something_was_consumed(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("out") as out, other.session("in") as into:
        producer = await out.producer("orders", window=1000)
        consumer = await into.consumer("orders", window=1)
        for _ in range(5):
            await producer.send(b"x" * 900)
            blocked = asyncio.ensure_future(producer.send(b"y" * 900, timeout=GUARD))
            await wait_until(lambda: waiting(client, "orders"))
            assert not blocked.done()
            await drain(consumer, 1)
            async with asyncio.timeout(GUARD):
                await blocked
            await drain(consumer, 1)
    assert await counts(client, "orders") == (0, 0)


async def test_raising_the_limit_unblocks_at_once(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        await producer.send(b"x" * 900)
        blocked = asyncio.ensure_future(producer.send(b"y" * 900, timeout=GUARD))
        await wait_until(lambda: waiting(client, "orders"))
        await other.apply("orders", limit=2000)
        async with asyncio.timeout(GUARD):
            await blocked


async def test_purging_unblocks_at_once(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        await producer.send(b"x" * 900)
        blocked = asyncio.ensure_future(producer.send(b"y" * 900, timeout=GUARD))
        await wait_until(lambda: waiting(client, "orders"))
        assert await client.purge("orders") == 1
        async with asyncio.timeout(GUARD):
            await blocked


async def test_two_producers_are_served_first_come_first_served(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("one") as one, other.session("two") as two, client.session("in") as into:
        producers = [await one.producer("orders", window=1000), await two.producer("orders", window=1000)]
        await producers[0].send(b"x" * 990)
        order: list[int] = []

        async def send(number: int) -> None:
            await producers[number % 2].send(f"{number}".encode() * 900, timeout=60)
            order.append(number)

        sending = [asyncio.ensure_future(send(0))]
        await wait_until(lambda: waiting(client, "orders"))
        sending.append(asyncio.ensure_future(send(1)))
        await wait_until(lambda: waiting(client, "orders", at_least=2))
        consumer = await into.consumer("orders", window=1)
        bodies = [message.body for message in await drain(consumer, 3)]
        await outcomes(sending)
    assert bodies[1:] == [b"0" * 900, b"1" * 900]
    assert order == [0, 1]


async def test_a_large_message_at_the_head_is_not_starved_by_small_ones_behind_it(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("large") as large, other.session("small") as small, client.session("in") as into:
        producer, chatter = await large.producer("orders", window=1000), await small.producer("orders", window=100)
        for _ in range(9):
            await chatter.send(b"s" * 97)
        head = asyncio.ensure_future(producer.send(b"L" * 900, timeout=60))
        await wait_until(lambda: waiting(client, "orders"))
        behind = [asyncio.ensure_future(chatter.send(b"b" * 97, timeout=60)) for _ in range(20)]
        await wait_until(lambda: waiting(client, "orders", at_least=2))
        consumer = await into.consumer("orders", window=1)
        bodies = [message.body for message in await drain(consumer, 9 + 1 + 20)]
        await outcomes([head, *behind])
    ahead = [body for body in bodies[: bodies.index(b"L" * 900)] if body == b"b" * 97]
    assert len(ahead) <= 1, "what had its credit before the large one asked"


async def test_a_cancelled_send_gives_its_credit_back_and_leaves_the_line(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("one") as one, client.session("two") as two:
        producer, late = await one.producer("orders", window=1000), await two.producer("orders", window=1000)
        await producer.send(b"x" * 500)
        blocked = asyncio.ensure_future(producer.send(b"y" * 600, timeout=60))
        await wait_until(lambda: waiting(client, "orders"))
        behind = asyncio.ensure_future(late.send(b"z" * 400, timeout=60))
        await wait_until(lambda: waiting(client, "orders", at_least=2))
        blocked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await blocked
        async with asyncio.timeout(GUARD):
            await behind
    pending, leased = await counts(client, "orders")
    assert (pending, leased) == (504 + 404, 0)


async def test_a_send_that_is_given_up_is_out_of_the_line_in_the_same_turn(client: headgate.Client) -> None:
    """Whoever comes next must not wait behind it. Mutant: `send`, or `post`, does not say that it was cancelled."""
    await client.apply("orders", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        await producer.send(b"x" * 500)
        for way in (producer.send, producer.post):
            blocked: asyncio.Future[object] = asyncio.ensure_future(way(b"y" * 600, timeout=60))
            await wait_until(lambda: waiting(client, "orders"))
            blocked.cancel()
            with pytest.raises(asyncio.CancelledError):
                await blocked
            assert not producer.is_blocked


async def test_sends_cancelled_in_the_turn_that_pays_them_cost_nothing(client: headgate.Client) -> None:
    await client.apply("orders", limit=10_000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=10_000)
        before = producer.in_hand
        for _ in range(50):
            sends = [asyncio.ensure_future(producer.send(b"x" * 1000)) for _ in range(9)]
            await asyncio.sleep(0)
            for send in sends:
                send.cancel()
            await outcomes(sends)

        async def settled() -> bool:
            pending = await field(client, "orders", "pending_bytes")
            if pending:
                await client.purge("orders")
            return pending == 0 and producer.in_hand == before

        await wait_until(settled, description="all the credit is in hand again")
    assert await counts(client, "orders") == (0, 0)


async def test_what_can_never_fit_is_refused_and_what_exceeds_only_the_window_passes(client: headgate.Client) -> None:
    await client.apply("orders", limit=5000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        with pytest.raises(MessageTooLarge) as caught:
            async with asyncio.timeout(GUARD):
                await producer.send(b"x" * 5000, timeout=60)
        assert (caught.value.destination, caught.value.size, caught.value.limit) == ("orders", 5004, 5000)
        async with asyncio.timeout(GUARD):
            receipt = await producer.send(b"x" * 4000, timeout=60)
        assert receipt.size == 4004
        gate_limit = 100
        await client.apply("gate", kind="gate", limit=gate_limit)
        gate = await session.gate("gate")
        with pytest.raises(MessageTooLarge):
            async with asyncio.timeout(GUARD), gate.admit(gate_limit + 1, timeout=60):
                pass


async def test_those_behind_a_message_that_is_too_large_go_on(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1000)
        results = await outcomes([producer.send(b"x" * size, timeout=60) for size in (10, 2000, 20)])
        assert [type(result) for result in results] == [headgate.Receipt, MessageTooLarge, headgate.Receipt]
        assert [results[0].seq, results[2].seq] == [1, 2]


async def test_idle_credit_of_another_session_is_recalled(client: headgate.Client, other: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("idle") as idle, other.session("busy") as busy:
        holder = await idle.producer("orders", window=1000)
        assert holder.in_hand == 1000
        producer = await busy.producer("orders", window=1000)
        async with asyncio.timeout(GUARD):
            await producer.send(b"x" * 900, timeout=GUARD)


async def test_whoever_was_recalled_does_not_take_it_back_at_once(
    client: headgate.Client, other: headgate.Client
) -> None:
    await client.apply("orders", limit=1000)
    async with client.session("idle") as idle, other.session("busy") as busy:
        holder = await idle.producer("orders", window=1000)
        producer = await busy.producer("orders", window=100)
        async with asyncio.timeout(GUARD):
            await producer.send(b"x" * 97, timeout=GUARD)
        assert holder.in_hand == 0
        assert await field(client, "orders", "leased_bytes") <= 100
