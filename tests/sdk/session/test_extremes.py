"""Values at and beyond their ends: an error names the setting and what is accepted, and nothing is done or broken."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import redis

import headgate
from headgate import InvalidValue
from headgate.redis.keys import Address
from headgate.settings import Settings
from headgate.units import MAX_DURATION, MAX_SIZE, MAX_WINDOW

pytestmark = pytest.mark.one_server


@pytest.mark.parametrize("size", [sys.maxsize, 2**63, 2**52, -1])
async def test_a_gate_admits_no_size_that_cannot_be_counted(client: headgate.Client, size: int) -> None:
    """Breaks when a gate without a limit takes any number: its record could not be read any more."""
    async with client.session("s") as session:
        gate = await session.gate("calls")
        with pytest.raises(InvalidValue, match="size"):
            gate.try_admit(size)
        with pytest.raises(InvalidValue, match="size"):
            await gate.admit(size).__aenter__()
        async with gate.admit(5):
            assert gate.in_use == 5
    assert (await client.recount("calls")).equal


@pytest.mark.parametrize("ttl", [sys.maxsize, 1e16, MAX_DURATION + 1, float("inf")])
async def test_a_message_that_is_to_live_for_ever_is_not_sent_to_expire_at_once(
    client: headgate.Client, ttl: float
) -> None:
    async with client.session("s") as session:
        producer = await session.producer("jobs")
        with pytest.raises(InvalidValue, match="ttl"):
            await producer.send("x", ttl=ttl)
        await producer.send("y", ttl=MAX_DURATION)
        consumer = await session.consumer("jobs")
        message = await consumer.receive(timeout=10)
        assert message is not None
        assert message.body == "y"
        await message.accept(confirm=True)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Settings(message_ttl=1e16), "message_ttl"),
        (lambda: Settings(kind="bucket", rate=0.0001, burst=10**10), "burst"),
        (lambda: Settings(kind="bucket", rate=1e-12), "rate"),
        (lambda: Settings(send_rate=0.0001, send_burst=10**10), "send_burst"),
        (lambda: Settings(delivery_rate=1e-9, delivery_burst=10), "delivery_burst"),
        (lambda: Settings(producer_window=2**52 - 1), "producer_window"),
        (lambda: Settings(producer_weight=1001), "producer_weight"),
        (lambda: Settings(limit=MAX_SIZE), "limit"),
        (lambda: Settings(slow_multiple=1e300), "slow_multiple"),
        (lambda: Settings(consumer_window=10**20), "window"),
    ],
)
def test_a_setting_out_of_range_is_named(make: Callable[[], Settings], named: str) -> None:
    with pytest.raises(InvalidValue, match=named):
        make().fields()


async def test_what_all_hold_where_there_is_no_limit_stays_exact(client: headgate.Client) -> None:
    """Breaks when windows may be as large as any number: with a few, the sum was wrong, and below 0 in the end."""
    async with client.session("s") as session:
        with pytest.raises(InvalidValue, match="window"):
            await session.producer("jobs", window=2**52 - 1)
        for number in range(6):
            producer = await client.session(f"s{number}").producer("jobs", window=MAX_WINDOW)
            await producer.send("x")
    assert (await client.recount("jobs")).equal


async def test_nobody_has_a_buckets_slots_far_ahead(client: headgate.Client) -> None:
    """Mutant: `take` reserves as far ahead as a caller is willing to wait."""
    await client.apply("tokens", kind="bucket", rate=1, burst=1)
    address = Address.of(client.namespace, "tokens")
    replies = [await client.store.take(address, "greedy", seq=seq, line=[(1, 10**12)] * 128) for seq in range(1, 4)]
    given = [slot for _, slots in replies for slot in slots if not slot.startswith("late")]
    assert 30 <= len(given) <= 62
    assert max(map(int, given)) <= 60_000_000


async def test_who_waits_longer_for_a_bucket_asks_again(client: headgate.Client, monkeypatch: Any) -> None:
    """Mutant: a slot that is late, but within the timeout, is a `CreditTimeout`."""
    await client.apply("tokens", kind="bucket", rate=2, burst=1)
    async with client.session("s") as session:
        bucket = await session.bucket("tokens")
        asked = []
        take = client.store.take

        async def soon_only(*args: Any, line: Any, **named: Any) -> Any:
            asked.append(line)
            return await take(*args, line=[(tokens, min(wait, 200)) for tokens, wait in line], **named)

        monkeypatch.setattr("headgate.limiting.bucket.AHEAD", 0.2)
        monkeypatch.setattr(bucket._store, "take", soon_only)
        await bucket.take()
        await bucket.take(timeout=20)
        assert len(asked) > 2


async def test_a_total_that_is_only_told_stops_where_numbers_end(client: headgate.Client, redis_url: str) -> None:
    """Mutant: `taken` is raised by HINCRBY, which fails in the middle of the call."""
    await client.apply("tokens", kind="bucket", rate=100, burst=100)
    address = Address.of(client.namespace, "tokens")
    with redis.Redis.from_url(redis_url) as direct:
        direct.hset(address.key, "taken", 2**53 - 20)
        code, _ = await client.store.take(address, "s", seq=1, line=[(50, 0)])
        assert (code, direct.hget(address.key, "taken")) == ("OK", str(2**53 - 1).encode())
    with pytest.raises(InvalidValue, match="tokens"):
        await client.store.take(address, "s", seq=2, line=[(2**41, 0)])
