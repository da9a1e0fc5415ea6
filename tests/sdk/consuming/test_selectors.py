"""Consumers that want some of a topic: what their selector does not match is settled as it comes."""

import pytest

import headgate
from headgate import InvalidValue, PolicyError
from tests.sdk.observing import GUARD, drain, field
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def none_pending(client: headgate.Client, topic: str) -> bool:
    return await field(client, topic, "pending_messages") == 0


@pytest.mark.parametrize("address", ["news.eu", "news.>"])
async def test_what_is_not_matched_takes_no_room_for_long(client: headgate.Client, address: str) -> None:
    """With room for ten messages, and two subscriptions of one topic. Mutant: it stays unsettled."""
    await client.apply("news.eu", kind="topic", limit_messages=10)
    async with client.session("s") as session:
        urgent = await session.consumer(address, selector="level > 7 AND kind LIKE 'alarm.%'")
        calm = await session.consumer(address, selector="level <= 7", window=1)
        producer = await session.producer("news.eu")
        for n in range(40):
            await producer.send(f"{n}", headers={"level": n % 10, "kind": f"alarm.{n}"}, timeout=GUARD)
            if n % 10 <= 7:
                (message,) = await drain(calm, 1)
                assert message.body == f"{n}"
            else:
                (message,) = await drain(urgent, 1)
                assert message.body == f"{n}"
        await wait_until(lambda: none_pending(client, "news.eu"), timeout=GUARD)


async def test_a_durable_subscription_keeps_what_comes_meanwhile_and_selects_then(client: headgate.Client) -> None:
    async with client.session("s") as session:
        for selector in ("colour = 'red'", "colour = 'blue'"):
            reads = await session.consumer("paint", subscription="some", durable=True, selector=selector)
            await reads.close()
        producer = await session.producer("paint")
        for colour in ("red", "blue", "green", "red"):
            await producer.send(colour, headers={"colour": colour}, timeout=GUARD)
        reads = await session.consumer("paint", subscription="some", durable=True, selector="colour = 'red'")
        assert [message.body for message in await drain(reads, 2)] == ["red", "red"]
        await wait_until(lambda: none_pending(client, "paint"), timeout=GUARD)


async def test_a_selector_of_a_queue_is_refused_and_takes_nothing(client: headgate.Client) -> None:
    async with client.session("s") as session:
        await (await session.producer("orders")).send("one", headers={"a": 1}, timeout=GUARD)
        with pytest.raises(PolicyError, match="only topics have subscriptions and selectors"):
            await session.consumer("orders", selector="a = 2")
        with pytest.raises(InvalidValue, match="selector: a queue has none"):
            await session.consumer("orders", kind="queue", selector="a = 2")
        with pytest.raises(InvalidValue, match="selector"):
            await session.consumer("paint", selector="a = ")
        (message,) = await drain(await session.consumer("orders"), 1)
        assert message.body == "one"
    assert await client.destinations() == ["orders"]
