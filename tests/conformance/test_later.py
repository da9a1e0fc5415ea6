"""Delivery at a later time, and again after a delay: what Artemis, ActiveMQ, RabbitMQ and NATS say of it."""

import itertools
from typing import Any

import pytest

import headgate
from headgate.policy import loads
from headgate.redis.keys import Address
from tests.sdk.observing import GUARD, look
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def redis_ms(client: headgate.Client) -> int:
    key = Address.of(client.namespace, "jobs").shared[0]
    seconds, microseconds = await client.store.server.command(key, "TIME")
    return int(seconds) * 1000 + int(microseconds) // 1000


async def take(consumer: headgate.Consumer) -> headgate.Message:
    message = await consumer.receive(timeout=GUARD)
    assert message is not None
    return message


async def waits_of(client: headgate.Client, settings: dict[str, Any], attempts: int) -> list[int]:
    """Return for how many ms a message waited after each attempt that failed."""
    await client.apply("jobs", kind="queue", **settings)
    waits = []
    async with client.session("s") as session:
        consumer = await session.consumer("jobs")
        await (await session.producer("jobs")).send("x", timeout=GUARD)
        for _ in range(attempts):
            message = await take(consumer)
            failed_at = await redis_ms(client)
            await message.modify(confirm=True)
            waits.append(failed_at)
        last = await take(consumer)
        waits.append(await redis_ms(client))
        assert last.delivery_count == attempts
        await last.accept(confirm=True)
    return [after - before for before, after in itertools.pairwise(waits)]


async def test_l01_redelivery_is_delayed_more_each_time_up_to_a_bound(client: headgate.Client) -> None:
    waits = await waits_of(client, {"retry_delay": "30ms", "retry_factor": 2, "retry_max": "70ms"}, 4)
    assert all(waited >= least for waited, least in zip(waits, (30, 60, 70, 70), strict=True)), waits


async def test_l02_without_a_delay_a_message_comes_again_at_once(client: headgate.Client) -> None:
    await waits_of(client, {}, 3)
    assert "next_due" not in (await look(client, "jobs")).fields


async def test_l03_after_the_last_attempt_it_is_a_dead_letter_without_a_wait(client: headgate.Client) -> None:
    rules = 'max_attempts = 2\ndead_letter = "dead"\nretry = { delay = "20ms", factor = 2, max = "5min" }'
    await client.apply_policy(loads(f'[[destination]]\nmatch = "jobs"\n{rules}'))
    async with client.session("s") as session:
        await (await session.producer("jobs")).send("x", timeout=GUARD)
        consumer = await session.consumer("jobs")
        for _ in range(2):
            await (await take(consumer)).modify()
        assert (await take(await session.consumer("dead"))).body == "x"
        await wait_until(lambda: _is_empty(client))


async def _is_empty(client: headgate.Client) -> bool:
    fields = (await look(client, "jobs")).fields
    return fields["pending_messages"] == "0" and "later" not in fields


async def test_l04_other_messages_go_on_while_one_waits(client: headgate.Client) -> None:
    await client.apply("jobs", kind="queue", retry_delay="1h")
    async with client.session("s") as session:
        producer, consumer = await session.producer("jobs"), await session.consumer("jobs")
        for body in "abc":
            await producer.send(body, timeout=GUARD)
        await (await take(consumer)).modify()
        assert [(await take(consumer)).body for _ in "bc"] == ["b", "c"]


async def test_l05_a_message_is_delivered_after_its_delay_and_keeps_its_place_in_memory(
    client: headgate.Client,
) -> None:
    await client.apply("jobs", kind="queue", limit_messages=1)
    async with client.session("s") as session:
        producer, consumer = await session.producer("jobs"), await session.consumer("jobs")
        sent = await redis_ms(client)
        await producer.send("x", delay="60ms", timeout=GUARD)
        with pytest.raises(headgate.CreditTimeout):
            await producer.send("y", timeout=0.02)  # it counts while it waits
        await (await take(consumer)).accept()
        assert await redis_ms(client) >= sent + 60


async def test_l06_a_short_delay_does_not_wait_behind_a_long_one(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer, consumer = await session.producer("jobs"), await session.consumer("jobs")
        await producer.send("long", delay="1h", timeout=GUARD)
        await producer.send("short", delay="30ms", timeout=GUARD)
        assert (await take(consumer)).body == "short"


async def test_l07_whoever_gives_a_message_back_says_how_long_it_waits(client: headgate.Client) -> None:
    await client.apply("jobs", kind="queue", retry_delay="1h")
    async with client.session("s") as session:
        await (await session.producer("jobs")).send("x", timeout=GUARD)
        consumer = await session.consumer("jobs")
        message, at = await take(consumer), await redis_ms(client)
        await message.modify(after=0.05, confirm=True)
        assert (await take(consumer)).delivery_count == 1
        assert await redis_ms(client) >= at + 50


async def test_l08_a_consumer_that_goes_away_without_an_answer_has_failed_and_that_waits(
    client: headgate.Client,
) -> None:
    await client.apply("jobs", kind="queue", retry_delay="1h")
    async with client.session("s") as session:
        await (await session.producer("jobs")).send("x", timeout=GUARD)
    store, address = client.store, Address.of(client.namespace, "jobs")
    await store.attach(address, "dead", number=1, subscription="queue", durable=True, window="9/999", ttl_ms=300)
    got = await store.settle(address, "dead", "dead.1", ttl_ms=300, fetch=1, max_messages=1, max_bytes=999)
    assert len(got.messages) == 1

    async def waits() -> bool:
        await store.reap(address)
        return (await look(client, "jobs")).fields.get("later") == "1"

    await wait_until(waits)


async def test_l09_so_many_are_delivered_and_not_acknowledged_and_then_none(client: headgate.Client) -> None:
    async with client.session("s") as session:
        producer, consumer = (
            await session.producer("jobs"),
            await session.consumer("jobs", window=headgate.Window(3, top_up=0.3)),
        )
        for number in range(5):
            await producer.send(str(number), timeout=GUARD)
        got = [await take(consumer) for _ in range(3)]
        assert await consumer.receive(timeout=0.05) is None
        await got[0].modify(failed=False, after=3600)  # as NAK with a delay: it is in nobody's hands
        assert (await take(consumer)).body == "3"
        assert await consumer.receive(timeout=0.05) is None
        await got[1].accept()
        assert (await take(consumer)).body == "4"
