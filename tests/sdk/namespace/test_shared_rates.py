"""All slices of a queue share the rates at which it is sent to, wherever their senders are."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

import headgate
from headgate import CreditTimeout, policy
from headgate.core.names import slice_name
from headgate.redis.keys import Address
from tests.lua.promises.test_p8_rates import most_beyond
from tests.sdk.observing import GUARD, look, take_turns
from tests.sdk.workers import Worker
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def stored(client: headgate.Client, slices: int, name: str = "orders") -> list[tuple[int, int]]:
    """Return when each batch was stored at any of the slices, in microseconds, and its messages."""
    found = []
    for number in range(slices):
        address = Address.of(client.namespace, slice_name(name, number))
        key = f"{address.key}:ledger"
        for _, fields in await client.store.server.command(address.shared[0], "XRANGE", key, "-", "+"):
            row = fields[1].decode().split(",")
            if row[2] == "publish" and int(row[5]) > 0:
                found.append((int(row[1]) * 1000, int(row[5])))
    return sorted(found)


def within(found: list[tuple[int, int]], rate: int, burst: int) -> bool:
    """Return whether no window holds more than the rate allows; an entry tells its millisecond alone."""
    return most_beyond(found, rate, burst) <= 0.002 * rate


async def test_sessions_at_all_slices_share_one_rate_also_when_their_number_changes(client: headgate.Client) -> None:
    rate, burst = 200, 10
    await client.apply("orders", kind="queue", slices=3, send_rate=f"{rate}/s", send_burst=burst)
    sent = dict.fromkeys(range(8), 0)

    async def send(number: int) -> None:
        async with client.session(f"s{number}") as session:
            producer = await session.producer("orders")
            while sum(sent.values()) < 160:
                await producer.send(b"x" * 10, timeout=GUARD)
                sent[number] += 1

    sending = asyncio.gather(*(send(number) for number in range(4)))
    await wait_until(lambda: sum(sent.values()) > 20, timeout=GUARD)
    await client.apply("orders", slices=5)
    await asyncio.gather(sending, *(send(number) for number in range(4, 8)))
    found = await stored(client, 5)
    assert sum(count for _, count in found) == sum(sent.values())
    assert within(found, rate, burst)
    assert all(sent[number] > 0 for number in range(4)), "none of them starves"


async def test_a_rate_that_is_set_while_all_send_holds_from_then_on(client: headgate.Client) -> None:
    """Mutants: a slice that has no such rate yet sends what it likes, and the first one lends the whole of it."""
    await client.apply("orders", kind="queue", slices=3)
    going = True

    async def send(number: int) -> None:
        async with client.session(f"s{number}") as session:
            producer = await session.producer("orders")
            while going:
                await producer.send(b"x" * 10, timeout=GUARD)
                await asyncio.sleep(0.005)

    sending = asyncio.gather(*(send(number) for number in range(3)))
    for rate, burst in ((50, 2), (100, 5)):
        await client.apply("orders", send_rate=f"{rate}/s", send_burst=burst)
        since = len(await stored(client, 3))

        async def more(since: int = since) -> bool:
            return len(await stored(client, 3)) > since + 30

        await wait_until(more, timeout=GUARD)
        assert within((await stored(client, 3))[since:], rate, burst)
    going = False
    await sending


async def test_a_slice_that_heard_of_a_newer_policy_is_given_no_rate_of_an_older_one(client: headgate.Client) -> None:
    """Mutant: it is, as if by hand: it keeps that when there is none any more, and waits for it for ever."""
    rule = '[[destination]]\nmatch = "orders"\nkind = "queue"\nslices = 2\n'
    await client.apply_policy(policy.loads(rule + 'rate.messages = "5/s"\n'))
    for at in range(2):
        async with client.session(f"s{at}") as session:
            await (await session.producer("orders")).send("x", timeout=GUARD)
    key = Address.of(client.namespace, "orders").shared[0]
    names = ("policy_version", "policy", "send_rate", "send_burst")
    before = await client.store.server.command(key, "HMGET", key, *names)
    await client.apply_policy(policy.loads(rule))
    pairs = [word for pair in zip(names, before, strict=True) for word in pair]
    await client.store.server.command(key, "HSET", key, *pairs)  # as if it came to the first slice last
    part = Address.of(client.namespace, "orders#1")
    assert (await client.parts.rates._bind(part, "send", 1)).code == "UNBOUND"
    assert "send_rate" not in (await look(client, "orders#1")).fields


async def test_bytes_have_a_rate_too_and_the_wait_is_explained(client: headgate.Client) -> None:
    await client.apply("orders", kind="queue", slices=3, send_byte_rate="1B/s", send_byte_burst=100)
    told = ""
    async with client.session("a") as a, client.session("b") as b:
        first, second = await a.producer("orders"), await b.producer("orders")
        await first.send(b"x" * 60, timeout=GUARD)

        async def explained() -> bool:
            nonlocal told
            with pytest.raises(CreditTimeout) as caught:
                await second.send(b"x" * 90, timeout=0.5)
            told = str(caught.value)
            return "its rate of 1 bytes/s is used up; the next is allowed in" in told

        await wait_until(explained, timeout=GUARD)
        assert "raise send_byte_rate" in told
        assert "slice" not in told
        await client.apply("orders", send_byte_rate="default", send_byte_burst="default")
        await second.send(b"x" * 90, timeout=GUARD)


async def test_dead_letters_and_messages_moved_by_hand_wait_for_the_rate(client: headgate.Client) -> None:
    """Mutant: who sends without a producer has no rate in hand, ever."""
    await client.apply("dead", kind="queue", slices=3, order_by="header:c", send_rate="20/s", send_burst=1)
    await client.apply("orders", kind="queue", dead_letter="dead")
    async with client.session() as session:
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        for number in range(4):
            await producer.send(b"x", headers={"c": str(number)}, timeout=GUARD)
        for _ in range(3):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.reject("bad")

        async def there(count: int) -> bool:
            return sum(found for _, found in await stored(client, 3, "dead")) == count

        await wait_until(lambda: there(3), timeout=GUARD)
        await consumer.close()
        moved = [message.id async for message in client.browse("orders")]

        async def move() -> bool:
            with suppress(headgate.DestinationFull):  # its rate allows no more now
                await client.move_message("orders", moved[0], "dead")
                return True
            return False

        await wait_until(move, timeout=GUARD)
        await wait_until(lambda: there(4), timeout=GUARD)
        assert within(await stored(client, 3, "dead"), 20, 1)


@pytest.fixture
async def cluster(cluster_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(cluster_url, namespace=cleanup_namespace) as client:
        yield client


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 21))])
async def test_no_kill_at_any_moment_sends_more_than_the_rate(
    cluster: headgate.Client, cluster_url: str, seed: int
) -> None:
    """Processes that send to slices at three masters are killed with -9, again and again."""
    rate, burst = 60, 5
    settings: dict[str, Any] = {"send_rate": f"{rate}/s", "send_burst": burst}
    await cluster.apply("orders", kind="queue", slices=6, **settings)

    async def count() -> int:
        return sum(one for _, one in await stored(cluster, 6))

    def begin(number: int) -> Worker:
        return Worker("sliced", cluster_url, cluster.namespace, "orders", 1, 4, seed * 100 + number)

    await take_turns(begin, count, seed)
    assert within(await stored(cluster, 6), rate, burst)
