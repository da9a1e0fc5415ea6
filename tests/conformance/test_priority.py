"""Priorities of messages: what JMS, ActiveMQ, Artemis and RabbitMQ say of them."""

import pytest

import headgate
from headgate.core.amqp.message import AmqpMessage
from headgate.core.amqp.message import encode as encode_amqp
from headgate.core.amqp.sections import Header
from headgate.core.limits.fairness import fair_key
from tests.sdk.observing import GUARD

pytestmark = pytest.mark.one_server


async def send(session: headgate.Session, *priorities: int) -> None:
    producer = await session.producer("jobs")
    for number, priority in enumerate(priorities):
        await producer.send(f"{priority} {number}", priority=priority, timeout=GUARD)


async def got(session: headgate.Session, count: int, window: int = 1) -> list[str]:
    consumer = await session.consumer("jobs", window=window)
    found = []
    for _ in range(count):
        message = await consumer.receive(timeout=GUARD)
        assert message is not None
        found.append(str(message.body))
        await message.accept(confirm=True)
    await consumer.close()
    return found


async def test_h01_expedited_ones_go_before_normal_ones_and_alike_ones_in_order(client: headgate.Client) -> None:
    await client.apply("jobs", kind="queue", fair_by="priority")
    async with client.session("s") as session:
        await send(session, 4, 0, 9, 5, 4, 9)
        assert await got(session, 6) == ["9 2", "9 5", "5 3", "4 0", "4 4", "0 1"]


async def test_h02_without_the_rule_they_come_in_order(client: headgate.Client) -> None:
    await client.apply("jobs", kind="queue")
    async with client.session("s") as session:
        await send(session, 0, 9, 4)
        assert await got(session, 3) == ["0 0", "9 1", "4 2"]


async def test_h03_normal_ones_come_in_time_while_high_ones_keep_coming(client: headgate.Client) -> None:
    await client.apply("jobs", kind="queue", fair_by="priority", max_overtaken=16)
    async with client.session("s") as session:
        await send(session, 4, *[9] * 40)
        assert (await got(session, 17)).count("4 0") == 1


async def test_h04_what_a_consumer_has_in_hand_is_not_put_in_order_again(client: headgate.Client) -> None:
    await client.apply("jobs", kind="queue", fair_by="priority")
    async with client.session("s") as session:
        await send(session, 4, 4, 4)
        consumer = await session.consumer("jobs", window=2)
        first = await consumer.receive(timeout=GUARD)
        assert first is not None
        await send(session, 9)
        await first.accept(confirm=True)
        found = []
        for _ in range(3):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            found.append(str(message.body))
            await message.accept(confirm=True)
        assert found.index("9 0") <= 1, "after the one in hand at the latest"


def test_h05_one_above_the_highest_is_of_the_highest() -> None:
    bands = {
        priority: fair_key(
            encode_amqp(AmqpMessage(kind="data", body=b"", header=Header(priority=priority))), "priority"
        )
        for priority in (9, 10, 255)
    }
    assert set(bands.values()) == {"0"}
