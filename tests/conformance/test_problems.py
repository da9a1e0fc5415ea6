"""What users of other systems suffer, where no other test shows that it does not happen here: see `problems.py`.

Each is the criterion of the survey in its shape, scaled to seconds on two cores. The number in a test's name is that
of its problem.
"""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable
from contextlib import AsyncExitStack, suppress
from typing import Any

import pytest
import redis.asyncio

import headgate
from headgate import CreditTimeout
from headgate.redis.keys import Address
from headgate.redis.replies import Account
from headgate_coordinator.operate.audit import COUNTERS, audit
from tests.conformance.story import KiB, blocked_send, body, fill, take
from tests.sdk.observing import GUARD, counts, drain, field, look
from tests.support.extent import examples
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
async def direct(redis_url: str) -> AsyncIterator["redis.asyncio.Redis"]:
    async with redis.asyncio.Redis.from_url(redis_url) as direct:
        yield direct


async def ledger(client: headgate.Client, destination: str) -> list[list[str]]:
    """Return all entries of a destination's ledger, by column; fails when one is missing."""
    key = Address.of(client.namespace, destination).shared[-1]
    entries: Any = await client.store.server.command(key, "XRANGE", key, "-", "+")
    assert [int(number.split(b"-")[0]) for number, _ in entries] == list(range(1, len(entries) + 1))
    return [entry[1].decode().split(",") for _, entry in entries]


async def refused(call: Awaitable[object]) -> CreditTimeout:
    """Return how a call that finds no credit says so."""
    with pytest.raises(CreditTimeout) as caught:
        await call
    return caught.value


async def test_p01_every_blocked_wait_has_a_cause(client: headgate.Client) -> None:
    """Nine ways to wait, and what each says without being asked."""
    await client.set_pool("memory", limit=1000)
    ways: dict[str, dict[str, Any]] = {
        "no-consumer": {"limit": 1000},
        "no-consumer-many": {"limit_messages": 10},
        "send-rate": {"send_rate": "10/min", "send_burst": 10},
        "stopped": {"stopped": "maintenance"},
        "pool": {"pools": "memory"},
        "all-paused": {"limit": 1000},
        "same-session": {"limit": 1000},
        "pull-idle": {"kind": "topic", "limit": 1000},
    }
    async with client.session("s") as session, client.session("other") as other:
        for cause, settings in ways.items():
            await client.apply(cause, **settings)
            producer = await session.producer(cause, window=100)
            if cause == "all-paused":
                await other.consumer(cause, window="paused")
            elif cause == "same-session":
                await session.consumer(cause, window=4)
            elif cause == "pull-idle":
                await other.consumer(cause, subscription="audit", window="pull")
            for _ in range(0 if cause == "stopped" else 10):
                await producer.send(body(100), timeout=GUARD)
            for error in await asyncio.gather(*(refused(producer.send(body(100), timeout=0.3)) for _ in range(5))):
                assert error.explanation is not None, cause
                assert cause.startswith(error.explanation.cause), (cause, error)
                assert error.explanation.reason in str(error)
        await client.apply("leased", kind="gate", limit=10)
        gate, another = await session.gate("leased"), await other.gate("leased")
        async with gate.admit(10):
            error = await refused(another.admit(5, timeout=0.3).__aenter__())
            assert error.explanation.cause == "leased"


async def test_p01_an_explanation_costs_the_same_calls_whatever_waits(client: headgate.Client) -> None:
    await client.apply("full", limit=1000)
    costs = []
    address = Address.of(client.namespace, "full")
    await fill(client, "full", 10)
    for crowd in (1, 300):
        for number in range(crowd):
            account = Account(f"w{number}", 1, 0, need=50, need_m=1, want=50, want_m=1, size=50)
            await client.store.acquire(address, account, ttl_ms=10_000)
        before = client.store.server.calls
        explanation = await client.explain("full")
        costs.append(client.store.server.calls - before)
        assert (explanation.cause, explanation.blocked) == ("no-consumer", crowd)
    assert costs[0] == costs[1] <= 2


async def test_p03_no_session_expires_while_it_is_throttled(client: headgate.Client) -> None:
    await client.apply("slow", send_rate=2, send_burst=1)
    async with client.session("s", ttl=1) as session:
        producer = await session.producer("slow")
        sends = [asyncio.ensure_future(producer.send(b"x", timeout=GUARD)) for _ in range(7)]
        await asyncio.sleep(0)  # they are in line before it
        late = await refused(producer.send(b"x", timeout=0.2))
        assert "its rate of 2 messages/s is used up" in str(late)
        assert late.waited > 0.1, "it was tried for as long as it was to be tried"
        receipts = await asyncio.gather(*sends)  # three seconds: three times the lease
        assert [receipt.seq for receipt in receipts] == list(range(1, 8))
    events = ";".join(entry[7] for entry in await ledger(client, "slow"))
    assert "reclaim" not in events
    assert events.count("open:") == 1


@pytest.mark.longest
async def test_p08_waiters_end_with_the_lease_of_their_session(client: headgate.Client) -> None:
    address = Address.of(client.namespace, "orders")
    await client.apply("orders", limit=100)
    await fill(client, "orders", 1)
    for first in range(0, 2000, 200):
        waits = (
            Account(f"s{number}", 1, 0, need=50, need_m=1, want=50, want_m=1, size=50)
            for number in range(first, first + 200)
        )
        await asyncio.gather(*(client.store.acquire(address, account, ttl_ms=1000) for account in waits))
    assert (await field(client, "orders", "blocked")) > 0

    async def nobody() -> bool:
        await client.store.reap(address)
        state = await look(client, "orders")
        return (state.sessions, int(state.fields["blocked"])) == (0, 0)

    await wait_until(nobody, timeout=GUARD)
    assert await counts(client, "orders") == (100, 0)


@pytest.mark.parametrize("reconnects", [False, True], ids=["", "reconnected"])
@pytest.mark.parametrize("comes", [False, True], ids=["nothing-comes", "room-comes"])
@pytest.mark.parametrize("balance", [-1, 0, 1])
async def test_p09_who_has_no_credit_has_asked_for_it(
    client: headgate.Client, direct: "redis.asyncio.Redis", balance: int, comes: bool, reconnects: bool
) -> None:
    """Balance of the destination: what is left of its limit, which may be lowered below what is stored."""
    await client.apply("orders", limit=1000 if balance < 0 else 1000 + balance)
    async with client.session("s") as session, client.session("in") as into:
        producer = await session.producer("orders", window=500)
        for _ in range(10):
            await producer.send(body(100))
        if balance < 0:
            await client.apply("orders", limit=1000 + balance)
        consumer = await into.consumer("orders", window="pull")
        send = await blocked_send(client, producer, 100)
        if reconnects:
            for kind in ("normal", "pubsub"):
                await direct.client_kill_filter(_type=kind, skipme=True)
        if comes:
            for _ in range(2 if balance < 0 else 1):
                await (await take(consumer)).accept(confirm=True)
            async with asyncio.timeout(GUARD):
                await send
        else:

            async def in_line() -> bool:
                return await field(client, "orders", "blocked") == 1

            await wait_until(in_line)
            assert not send.done()
            assert producer.is_blocked
            await client.purge("orders")
            async with asyncio.timeout(GUARD):
                await send


@pytest.mark.longest
async def test_p10_thousands_of_destinations_of_one_client(client: headgate.Client) -> None:
    """Each is full after one message, so that the second of each needs credit that comes while all others' does."""
    names = [f"d{number}" for number in range(examples(1000))]
    async with client.session("s", ttl=60) as session:
        for first in range(0, len(names), 100):
            await asyncio.gather(*(client.apply(name, limit=100) for name in names[first : first + 100]))
        producers = [await session.producer(name, window=100) for name in names]
        await asyncio.gather(*(producer.send(body(60), timeout=60) for producer in producers))
        second = [asyncio.ensure_future(producer.send(body(60), timeout=60)) for producer in producers]
        for first in range(0, len(names), 100):
            await asyncio.gather(*(client.purge(name) for name in names[first : first + 100]))
        receipts = await asyncio.gather(*second)
        assert {receipt.seq for receipt in receipts} == {2}


@pytest.mark.longest
async def test_p17_what_redis_keeps_follows_the_living(client: headgate.Client, direct: "redis.asyncio.Redis") -> None:
    """Half of the sessions leave; of the others nothing is heard any more."""
    address = Address.of(client.namespace, "orders")
    await client.apply("orders", limit="1MB", ledger="off")

    async def size() -> int:
        total = 0
        async for key in direct.scan_iter(match=f"hg:{{{client.namespace}/*", count=1000):
            total += await direct.hlen(key) if await direct.type(key) == b"hash" else 1
        return total

    async def churn(number: int) -> None:
        session = f"s{number}"
        asked = Account(session, 1, 0, need=10, need_m=1, want=100, want_m=10, size=10)
        credit = await client.store.acquire(address, asked, ttl_ms=1000)
        await client.store.attach(
            address, session, number=1, subscription="queue", durable=False, window="5/unlimited", ttl_ms=1000
        )
        if number % 2:
            await client.store.detach(address, session, f"{session}.1", failed=False)
            gone = Account(session, 1, credit.epoch, credit.granted, credit.granted_m,
                           returned=credit.granted, returned_m=credit.granted_m)  # fmt: skip
            await client.store.acquire(address, gone, ttl_ms=1000, leave=True)

    async def alone() -> bool:
        await client.store.reap(address)
        state = await look(client, "orders")
        return (state.sessions, state.consumers) == (0, {})

    sizes = []
    for round_ in range(3):
        for first in range(0, 300, 100):
            await asyncio.gather(*(churn(round_ * 300 + first + number) for number in range(100)))
        await wait_until(alone, timeout=GUARD)
        sizes.append(await size())
    assert sizes[0] == sizes[1] == sizes[2]
    assert await counts(client, "orders") == (0, 0)


async def test_p19_the_ledger_never_shows_more_than_the_limit(client: headgate.Client, redis_url: str) -> None:
    """64 producers of eight clients, mixed sizes, and consumers that are slower than they."""
    limit, dice, each = 20_000, random.Random(19), examples(40)
    await client.apply("orders", limit=limit, ledger_keep=1_000_000)
    async with AsyncExitStack() as stack:
        producers = []
        for _ in range(8):
            host = await stack.enter_async_context(headgate.connect(redis_url, namespace=client.namespace))
            for _ in range(8):
                session = await stack.enter_async_context(host.session("out"))
                producers.append(await session.producer("orders", window=dice.choice((100, 1000, 8000))))
        into = await stack.enter_async_context(client.session("in"))
        consumer = await into.consumer("orders", window=20)

        async def flood(producer: headgate.Producer) -> None:
            for _ in range(each):
                await producer.send(body(dice.choice((3, 50, 400, 3000))), timeout=GUARD)

        sending = asyncio.gather(*(flood(producer) for producer in producers))
        await drain(consumer, 64 * each)
        await sending
    entries = await ledger(client, "orders")
    sums = [int(entry[8]) + int(entry[10]) for entry in entries]
    assert max(sums) <= limit
    assert max(sums) > limit * 0.9, "it was full, and so this says something"
    assert sum(int(entry[5]) for entry in entries if entry[2] == "publish") == 64 * each
    assert await field(client, "orders", "peak_bytes") == max(sums)


async def test_p20_any_counter_that_drifts_is_found_repaired_and_told_under_load(
    client: headgate.Client, direct: "redis.asyncio.Redis"
) -> None:
    await client.apply("orders", limit="100kB", ledger_keep=1_000_000)
    async with client.session("s") as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders", window=5)

        async def flow() -> None:
            while True:
                await producer.send(body(100), timeout=60)
                await (await take(consumer)).accept()

        flowing = asyncio.ensure_future(flow())
        key = Address.of(client.namespace, "orders").key
        kept = [name for name in COUNTERS if not name.startswith("in_turn")]  # those are counted each time
        for name in kept:
            assert [finding.verdict for finding in await audit(client, repair=False)] == ["equal"]
            await direct.hincrby(key, name, 7)
            assert [finding.verdict for finding in await audit(client, repair=False)] == ["differs"], name
            assert [finding.verdict for finding in await audit(client, repair=True)] == ["repaired"], name
        assert [finding.verdict for finding in await audit(client, repair=False)] == ["equal"]
        assert not flowing.done()
        flowing.cancel()
        with suppress(asyncio.CancelledError):
            await flowing
    repairs = [entry for entry in await ledger(client, "orders") if "repair:" in entry[7]]
    assert len(repairs) == len(kept)


async def test_p23_no_key_of_a_rate_is_without_owner_or_end(
    client: headgate.Client, direct: "redis.asyncio.Redis"
) -> None:
    """A rate is in the destination's own hash, so it goes with it; what a taker leaves has an end."""
    await client.apply("emails", kind="bucket", rate=1000, burst=100)
    await client.apply("orders", send_rate=1000, delivery_rate=1000)
    sessions = [client.session("a"), client.session("b")]
    for session in sessions:
        await (await session.bucket("emails")).take(10)
        await (await session.producer("orders")).send(b"x")
        consumer = await session.consumer("orders")
        await drain(consumer, 1)
        await consumer.close()  # the next message is for the other session's
    own = {Address.of(client.namespace, name).key for name in ("emails", "orders")}
    shared = {key.decode() for name in ("emails", "orders") for key in Address.of(client.namespace, name).shared}
    seen = set()
    async for raw in direct.scan_iter(match=f"hg:{{{client.namespace}*", count=1000):
        key = raw.decode()
        seen.add(key)
        assert key in shared or await direct.pttl(key) > 0, f"{key} never ends, and no destination owns it"
    assert own <= seen
    for session in sessions:
        await session.close()
    for name in ("emails", "orders"):
        await client.remove(name)
    left = [key async for key in direct.scan_iter(match=f"hg:{{{client.namespace}*", count=1000)]
    assert [key for key in left if await direct.pttl(key) < 0] == []


async def test_p25_one_full_destination_does_not_hold_up_nine_others(client: headgate.Client) -> None:
    """Counts, not times: the nine send the same in the same number of calls, whether or not the tenth is full."""
    await client.apply("full", limit=100)
    names = [f"free-{number}" for number in range(9)]
    async with client.session("s") as session:
        producers = [await session.producer(name, window=16 * KiB) for name in names]
        full = await session.producer("full")
        await full.send(body(100))
        blocked = [asyncio.ensure_future(full.send(body(50), timeout=600)) for _ in range(50)]
        await wait_until(lambda: full.is_blocked)
        server = client.store.server
        before = server.calls
        for _ in range(40):
            async with asyncio.timeout(GUARD):
                await asyncio.gather(*(producer.send(body(200)) for producer in producers for _ in range(5)))
        beside = server.calls - before
        assert not any(send.done() for send in blocked)
        assert beside <= 1.05 * 40 * 9 + 20, "a call a batch of each, and a few of the one that waits"
        for send in blocked:
            send.cancel()
    for name in names:
        assert await field(client, name, "message_seq") == 40 * 5


async def test_p26_one_slow_consumer_takes_one_of_forty_and_three_fast_ones_the_rest(client: headgate.Client) -> None:
    """With the window that everybody has who sets none; the slow one had all of them in hand."""
    await fill(client, "orders", 40)
    async with client.session("s") as session:
        slow = await session.consumer("orders")
        in_work = await take(slow)
        await wait_until(lambda: slow.held_messages == 40)
        fast = [await session.consumer("orders") for _ in range(3)]
        for message in await asyncio.gather(*(take(consumer) for consumer in fast)):
            await message.accept()
        done = 3

        async def work(consumer: headgate.Consumer) -> None:
            nonlocal done
            while done < 39:
                if message := await consumer.receive(timeout=0.1):
                    done += 1
                    await message.accept()

        async with asyncio.timeout(GUARD):
            await asyncio.gather(*(work(consumer) for consumer in fast))
        await in_work.accept()


async def test_p30_settling_goes_on_while_a_send_of_the_same_session_is_blocked(client: headgate.Client) -> None:
    """A service that consumes and answers over one session, with its answers' queue full: it can still acknowledge."""
    await client.apply("answers", limit=100)
    await fill(client, "questions", 100)
    await fill(client, "answers", 1)
    async with client.session("service") as session:
        consumer, producer = await session.consumer("questions", window=10), await session.producer("answers")
        send = await blocked_send(client, producer, 50)
        for _ in range(100):
            await (await take(consumer)).accept(confirm=True)
        assert await counts(client, "questions") == (0, 0)
        assert not send.done()
        own = await session.consumer("answers")  # the same session may also be the one that makes room
        await drain(own, 1)
        await send


async def test_p34_ten_times_less_while_it_is_used(client: headgate.Client) -> None:
    """Nothing is granted above the new limit, whatever is held, and nothing has to be restarted."""
    await client.apply("orders", limit=10_000, ledger_keep=100_000)
    async with client.session("s") as session, client.session("in") as into:
        producer = await session.producer("orders", window=500)
        sends = [asyncio.ensure_future(producer.send(body(100), timeout=60)) for _ in range(300)]

        async def full() -> bool:
            return await field(client, "orders", "pending_bytes") >= 9_500

        await wait_until(full)
        await client.apply("orders", limit=1000)
        await drain(await into.consumer("orders", window=5), 300)
        await asyncio.gather(*sends)
    entries = await ledger(client, "orders")
    lowered = next(number for number, entry in enumerate(entries) if "limits:1000:" in entry[7])
    for before, entry in zip(entries[lowered:], entries[lowered + 1 :], strict=False):
        held = int(entry[8]) + int(entry[10])
        assert held <= max(1000, int(before[8]) + int(before[10]))
        assert min(map(int, entry[8:12])) >= 0
