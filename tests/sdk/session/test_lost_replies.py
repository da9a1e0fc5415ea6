"""P5 on a bad line: replies are lost after their calls were applied, and nothing is lost, doubled or miscounted."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

import headgate
from headgate.errors import CoordinatorUnavailable, SessionExpired
from headgate.redis.replies import Credit
from headgate.redis.store import Store
from tests.sdk.observing import GUARD, counts, stored_bodies
from tests.support.faultproxy import FaultProxy
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
async def proxy(redis_url: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
async def shaky(proxy: FaultProxy, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    """A client whose line runs through the proxy."""
    async with headgate.connect(proxy.url, namespace=cleanup_namespace) as client:
        yield client


@pytest.mark.parametrize("every", [7, 13])
async def test_every_accepted_message_is_stored_exactly_once(
    client: headgate.Client, shaky: headgate.Client, proxy: FaultProxy, redis_url: str, every: int
) -> None:
    async with shaky.session("s") as session:
        producer = await session.producer("orders")

        async def send_all(task: int) -> list[tuple[int, str]]:
            sent = []
            for number in range(15):
                body = f"{task}/{number}"
                sent.append(((await producer.send(body, timeout=60)).seq, body))
            return sent

        proxy.lose_every(every)
        async with asyncio.timeout(60):
            sent = await asyncio.gather(*(send_all(task) for task in range(40)))
        assert proxy.lost > 0
        proxy.pass_through()
    stored = stored_bodies(redis_url, client.namespace, "orders")
    assert dict(pair for some in sent for pair in some) == dict(enumerate(stored, 1)), "receipts tell each one's place"
    assert len(stored) == 40 * 15
    pending, leased = await counts(client, "orders")
    assert (pending > 0, leased) == (True, 0)


async def test_under_load_everything_arrives_and_what_arrives_twice_says_so(
    client: headgate.Client, shaky: headgate.Client, proxy: FaultProxy
) -> None:
    total = 1500
    await client.apply("orders", limit="20kB")
    deliveries: Counter[str] = Counter()
    first_attempts: Counter[str] = Counter()
    async with shaky.session("out") as out, shaky.session("in") as into:
        producer = await out.producer("orders", window="5kB")
        consumers = [await into.consumer("orders", window=30) for _ in range(2)]
        proxy.lose_every(7)

        async def consume(consumer: headgate.Consumer) -> None:
            async for message in consumer:
                assert isinstance(message.body, str)
                deliveries[message.body] += 1
                first_attempts[message.body] += message.delivery_count == 0
                await message.accept()

        async def send_all(task: int) -> None:
            for number in range(task, total, 30):
                await producer.send(f"{number}", timeout=80)

        consuming = [asyncio.ensure_future(consume(consumer)) for consumer in consumers]
        async with asyncio.timeout(80):
            await asyncio.gather(*(send_all(task) for task in range(30)))
            await wait_until(lambda: len(deliveries) == total, timeout=GUARD, description="all deliveries")
            proxy.pass_through()
            for consumer in consumers:
                await consumer.flush(timeout=GUARD)
                await consumer.close()
        await asyncio.gather(*consuming)
    assert proxy.lost > 5
    assert set(deliveries) == {str(number) for number in range(total)}
    assert max(first_attempts.values()) == 1
    assert await counts(client, "orders") == (0, 0)


async def test_credit_asked_for_over_a_bad_line_is_given_once(
    client: headgate.Client, shaky: headgate.Client, proxy: FaultProxy
) -> None:
    await client.apply("gate", kind="gate", limit=10_000)
    gates = [await shaky.session(f"s{number}").gate("gate", window=2000) for number in range(8)]
    proxy.lose_every(7)
    inside = most = 0

    async def work(gate: headgate.Gate, size: int) -> None:
        nonlocal inside, most
        for _ in range(20):
            async with gate.admit(size, timeout=60):
                inside += size
                most = max(most, inside)
                await asyncio.sleep(0)
                inside -= size

    async with asyncio.timeout(60):
        await asyncio.gather(*(work(gate, 700 + 100 * number) for gate in gates for number in range(4)))
    assert proxy.lost > 0
    proxy.pass_through()
    assert 0 < most <= 10_000
    for gate in gates:
        assert gate.in_use == 0
        await gate.close()
    assert await counts(client, "gate") == (0, 0)


async def test_tokens_taken_over_a_bad_line_are_taken_once(
    client: headgate.Client, shaky: headgate.Client, proxy: FaultProxy
) -> None:
    await client.apply("mails", rate=5000, burst=50)
    async with shaky.session("s") as session:
        bucket = await session.bucket("mails")
        proxy.lose_every(7)
        async with asyncio.timeout(60):
            for _ in range(20):
                await asyncio.gather(*(bucket.take(timeout=60) for _ in range(10)))
        assert proxy.lost > 0
        proxy.pass_through()
    assert (await client.explain("mails")).fields["taken"] == "200"


async def test_a_settlement_is_confirmed_although_its_reply_was_lost(
    client: headgate.Client, shaky: headgate.Client, proxy: FaultProxy
) -> None:
    async with shaky.session("s") as session:
        consumer = await session.consumer("orders")
        await (await session.producer("orders")).send("x")
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        proxy.drop_replies(1)
        async with asyncio.timeout(GUARD):
            try:
                await message.accept(confirm=True)
            except SessionExpired:
                pytest.fail("it was its consumer's to settle")
    assert await counts(client, "orders") == (0, 0)


async def test_a_batch_of_unknown_fate_is_settled_before_its_number_is_used_again(
    client: headgate.Client, redis_url: str
) -> None:
    """Mutant: drop "if outbox.flight is not None" from Account._next; then receipts name what is not stored.

    A publish is applied and its reply lost; the session's lease is reclaimed; a recall is heard before the repetition.
    """
    async with client.session("s", ttl=1) as session:
        producer = await session.producer("orders")
        account = producer._account
        store, lost = account._calls.store, asyncio.Event()

        class Lossy:
            """The store, but for one publish: its reply comes so late that the lease is gone, and then not at all."""

            def __getattr__(self, name: str) -> object:
                return getattr(store, name)

            async def publish(self, *args: Any, **named: Any) -> Credit:
                answer = await store.publish(*args, **named)
                if lost.is_set():
                    return answer

                async def gone() -> bool:
                    await store.reap(account.address)
                    return account.session not in await store.sessions(account.address)

                await wait_until(gone)
                lost.set()
                account._hear(["recall", "0", "0"])
                raise CoordinatorUnavailable("the reply is lost")

        account._calls.store = cast("Store", Lossy())
        first = asyncio.ensure_future(producer.send("first", timeout=GUARD))
        await wait_until(lambda: account.outbox.flight is not None)
        rest = [asyncio.ensure_future(producer.send(f"later {n}", timeout=GUARD)) for n in range(3)]
        receipts = await asyncio.gather(first, *rest)
    assert stored_bodies(redis_url, client.namespace, "orders") == ["first", "later 0", "later 1", "later 2"]
    assert [receipt.seq for receipt in receipts] == [1, 2, 3, 4]


async def test_a_send_with_credit_and_no_time_is_stored_over_a_long_line(
    client: headgate.Client, shaky: headgate.Client, proxy: FaultProxy
) -> None:
    """The time is for room, and it has that: its answer has half a second in any case."""
    await client.apply("orders", limit=1000)
    async with shaky.session("s") as session:
        producer = await session.producer("orders", window=1000)
        proxy.delay(0.06)
        receipt = await producer.send(b"x" * 500, timeout=0)
        proxy.pass_through()
    assert receipt.seq == 1
