"""What a destination's rules mean to those who send: rates, stopped by hand, hysteresis, one large message."""

import asyncio
from typing import Any

import pytest

import headgate
from headgate import Blocked, CreditTimeout, MessageTooLarge, PolicyError, Unblocked
from headgate.redis.keys import Address
from tests.lua.promises.test_p8_rates import most_beyond
from tests.sdk.observing import GUARD, counts, drain, field, look, outcomes, waiting
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def test_all_senders_of_all_clients_share_the_rate_of_the_destination(
    client: headgate.Client, other: headgate.Client
) -> None:
    """P8. The ledger says when what was stored; mutant: the rate is not charged."""
    await client.apply("slow", limit="unlimited", send_rate=200, send_burst=10)
    async with client.session("a") as a, other.session("b") as b:
        producers = [await a.producer("slow"), await b.producer("slow")]
        sends = [producer.send(b"x", timeout=GUARD) for _ in range(40) for producer in producers]
        receipts = await asyncio.gather(*sends)
        assert sorted(receipt.seq for receipt in receipts) == list(range(1, 81))
    key = Address.of(client.namespace, "slow").shared[-1]
    entries = await client.store.server.command(key, "XRANGE", key, "-", "+")
    columns = [entry[1][1].decode().split(",") for entry in entries]
    stored = [(int(c[1]) * 1000, int(c[5])) for c in columns if c[2] == "publish"]
    assert sum(count for _, count in stored) == 80
    assert most_beyond(stored, 200, 10) <= 0.2 * 2  # times in the ledger are whole milliseconds


async def test_a_send_gives_up_when_the_rate_comes_too_late(client: headgate.Client) -> None:
    await client.apply("slow", limit="unlimited", send_rate="1/min", send_burst=1)
    async with client.session("a") as session:
        producer = await session.producer("slow")
        await producer.send(b"x")
        with pytest.raises(CreditTimeout):
            async with asyncio.timeout(GUARD):
                await producer.send(b"y", timeout=0.2)
        assert await field(client, "slow", "pending_messages") == 1


async def test_who_waits_for_the_rate_is_told_why(client: headgate.Client) -> None:
    """A message that has its credit waits too; its limit, of which nothing is free, is not what holds it up."""
    await client.apply("slow", limit=1000, send_rate="1/min", send_burst=1, send_byte_rate="100kB/s")
    events: list[Blocked | Unblocked] = []
    async with client.session("a") as session:
        session.on_blocked(events.append)
        producer = await session.producer("slow", window=1000)
        await producer.send(b"x")
        receipt = await producer.post(b"y", timeout=3)  # for why it waits is asked for meanwhile
        errors = await outcomes([receipt, *(producer.send(b"z", timeout=3) for _ in range(3))])
        for error in errors:
            assert isinstance(error, CreditTimeout), error
            assert error.waited >= 0.4
            assert error.explanation is not None
            assert error.explanation.cause == "send-rate"
            assert "its rate of 0.0166667 messages/s is used up; the next is allowed in" in str(error)
        await wait_until(lambda: len(events) == 2)
        blocked, unblocked = events
        assert isinstance(blocked, Blocked)
        assert blocked.explanation is not None
        assert blocked.explanation.cause == "send-rate"
        assert isinstance(unblocked, Unblocked)
        await client.apply("slow", send_rate="default")
        await producer.send(b"y", timeout=GUARD)
        assert await counts(client, "slow") == (2 * (await field(client, "slow", "largest_bytes")), producer.in_hand)


async def test_stopped_by_hand_sends_wait_and_go_on_when_it_is_opened(client: headgate.Client) -> None:
    """P12. Credit in hand is of no use meanwhile. Mutant: `publish` does not look at `stopped`."""
    await client.apply("orders", limit="1MB")
    async with client.session("a") as session:
        producer = await session.producer("orders")
        await producer.send(b"x")
        assert producer.in_hand
        await client.apply("orders", stopped="maintenance")
        sends = [asyncio.ensure_future(producer.send(b"y", timeout=GUARD)) for _ in range(5)]
        await wait_until(lambda: waiting(client, "orders"))
        assert await field(client, "orders", "pending_messages") == 1
        assert await field(client, "orders", "leased_bytes") == 0
        await client.apply("orders", stopped="default")
        receipts = await asyncio.gather(*sends)
        assert [receipt.seq for receipt in receipts] == [2, 3, 4, 5, 6]


async def test_a_message_above_the_limit_goes_alone_where_the_rule_lets_it(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000, oversize="allow-one")
    async with client.session("a") as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        await producer.send(b"x" * 500)
        large = asyncio.ensure_future(producer.send(b"y" * 5000, timeout=GUARD))
        await wait_until(lambda: waiting(client, "orders"))
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        await message.accept()
        await large
        assert await field(client, "orders", "pending_bytes") > 5000
        await client.apply("orders", oversize="default")
        with pytest.raises(MessageTooLarge):
            await producer.send(b"y" * 5000, timeout=GUARD)


async def test_calls_of_one_session_are_not_above_the_limit_together(client: headgate.Client) -> None:
    """Mutant: what one session holds, and asks for, is one call that is too large."""
    await client.apply("calls", kind="gate", limit=100, oversize="allow-one")
    async with client.session("a") as session:
        gate = await session.gate("calls", window=10)
        async with gate.admit(60):
            with pytest.raises(CreditTimeout):
                await gate.admit(50, timeout=0.3).__aenter__()
            large = asyncio.ensure_future(gate.admit(150, timeout=GUARD).__aenter__())
            await wait_until(lambda: waiting(client, "calls"))
        await large
        assert await field(client, "calls", "leased_bytes") == 150
        with pytest.raises(CreditTimeout):
            await gate.admit(1, timeout=0.3).__aenter__()


async def test_enforcement_is_switched_off_and_on_while_somebody_waits(client: headgate.Client) -> None:
    """P12."""
    await client.apply("orders", limit=100)
    async with client.session("a") as session:
        producer = await session.producer("orders")
        await producer.send(b"x" * 80)
        blocked = asyncio.ensure_future(producer.send(b"y" * 90, timeout=GUARD))
        await wait_until(lambda: waiting(client, "orders"))
        await client.apply("orders", enforce="off")
        await blocked
        assert await field(client, "orders", "pending_messages") == 2


@pytest.mark.parametrize(
    ("before", "then", "words"),
    [
        ({"limit": 100}, {"hard_limit": 50}, "hard_limit 50 is below limit 100"),
        ({"limit": 100}, {"resume_at": 500}, "resume_at 500 is above limit 100"),
        ({"limit": 100, "hard_limit": 120}, {"limit": "unlimited"}, "hard_limit 120 is below limit unlimited"),
        ({"limit_messages": 5}, {"resume_at_messages": 6}, "resume_at_messages 6 is above limit_messages 5"),
    ],
)
async def test_what_contradicts_what_was_set_before_is_refused(
    client: headgate.Client, before: dict[str, Any], then: dict[str, Any], words: str
) -> None:
    await client.apply("orders", **before)
    was = await field(client, "orders", "ledger_seq")
    with pytest.raises(PolicyError, match=f"'orders': .*{words}"):
        await client.apply("orders", **then)
    assert await field(client, "orders", "ledger_seq") == was
    if "limit" in then:
        await client.apply("orders", **then, resume_at="default", hard_limit="default")


async def test_a_share_to_resume_at_is_of_the_limit_in_force(client: headgate.Client) -> None:
    await client.apply("orders", limit=1000)
    await client.apply("orders", resume_at="90%", resume_at_messages="50%")
    assert (await look(client, "orders")).fields["resume_bytes"] == "90.0%"
    await client.apply("orders", limit=500)
    async with client.session("s") as session:
        producer = await session.producer("orders", window=1)
        for _ in range(5):
            await producer.send(b"x" * 97)
        blocked = asyncio.create_task(producer.send(b"x" * 97, timeout=60))
        await wait_until(lambda: waiting(client, "orders"))
        told = await client.explain("orders")
        assert ("450" in told.reason, told.cause) == (True, "hysteresis")
        await drain(await session.consumer("orders"), 1)
        await asyncio.wait_for(blocked, GUARD)


async def enter(gate: headgate.Gate, size: int) -> None:
    async with gate.admit(size, timeout=GUARD):
        pass


async def test_stopped_by_hand_a_gate_admits_nobody_with_the_credit_it_has(client: headgate.Client) -> None:
    """P12. Mutant: `apply` does not recall what is held."""
    await client.apply("api", kind="gate", limit=1000)
    async with client.session("a") as session:
        gate = await session.gate("api", window=500)
        async with gate.admit(10):
            await client.apply("api", stopped="maintenance")
            await wait_until(lambda: gate.try_admit(1) is None)
        entering = asyncio.ensure_future(enter(gate, 10))
        await wait_until(lambda: waiting(client, "api"))
        assert await field(client, "api", "leased_bytes") == 0
        await client.apply("api", stopped="default")
        await entering


async def test_a_limit_lowered_below_what_is_held_takes_idle_credit_back(client: headgate.Client) -> None:
    """P12. Mutant: `apply` does not recall what is held."""
    await client.apply("api", kind="gate", limit=1000)
    async with client.session("a", ttl=600) as session:
        gate = await session.gate("api", window=900)
        async with gate.admit(1):
            await client.apply("api", limit=100)

            async def within() -> bool:
                return await field(client, "api", "leased_bytes") <= 100

            await wait_until(within)


async def test_a_burst_that_is_set_back_is_that_of_its_rate(client: headgate.Client) -> None:
    """Mutants: the rate is left without a burst; one that was left so can never be changed."""
    await client.apply("slow", kind="queue", send_rate="50/s", send_burst=5)
    await client.apply("slow", send_rate="100/s", send_burst="default")
    key = Address.of(client.namespace, "slow").shared[0]
    assert await client.store.server.command(key, "HGET", key, "send_burst") == b"100"
    with pytest.raises(PolicyError, match="give both"):
        await client.apply("slow", send_burst="default")
    async with client.session() as session:
        producer = await session.producer("slow")
        await producer.send(b"x", timeout=GUARD)
        await client.store.server.command(key, "HDEL", key, "send_burst")
        await client.apply("slow", send_rate="200/s")
        await producer.send(b"x", timeout=GUARD)
