"""What the credit of senders does when a destination fills: it ends, alone for that destination, and comes back."""

from typing import Any

import pytest

import headgate
from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import Rhea
from tests.sdk.observing import GUARD, counts, field
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
SIZE = 1016
"""Bytes of a message of 1000 as rhea writes it."""


async def stored(client: headgate.Client, name: str, messages: int) -> None:
    """Wait until so many messages are stored."""

    async def there() -> bool:
        return await field(client, name, "pending_messages") == messages

    await wait_until(there, description=f"{messages} messages in {name}")


async def stalled(rhea: Rhea, *links: str) -> None:
    """Wait until those links have no credit."""

    async def none() -> bool:
        return all([(await rhea.look(link))["credit"] == 0 for link in links])

    await wait_until(none, description=f"no credit on {links}")


async def ready(rhea: Rhea, *links: str) -> None:
    """Wait until each of those links has credit."""

    async def some() -> bool:
        return all([(await rhea.look(link))["credit"] > 0 for link in links])

    await wait_until(some, description=f"credit on {links}")


@pytest.mark.parametrize("settings", [{"limit_messages": 50}, {"limit": 50 * SIZE}])
async def test_a_destination_without_a_consumer_stops_at_exactly_its_limit(
    rhea_there: Rhea, client: headgate.Client, settings: dict[str, Any]
) -> None:
    rhea = rhea_there
    await client.apply("orders", **settings)
    await rhea.sender("s", "orders")
    rhea.do("pump", link="s", total=120, size=1000)
    await rhea.sees("accepted", 50)
    await stalled(rhea, "s")
    assert await field(client, "orders", "pending_messages") == 50 == len(rhea.told("accepted"))
    await rhea.receiver("r", "orders", credit_window=0)
    for count in (10, 20, 30):
        rhea.do("credit", link="r", more=10)
        await rhea.sees("message", count)
        rhea.do("settle", link="r", how="accept", count=10)
        await rhea.sees("accepted", 50 + count)
        await stored(client, "orders", 50)
    rhea.do("credit", link="r", more=90)
    for count in range(31, 121):
        await rhea.sees("message", count)
        rhea.do("settle", link="r", how="accept")
    await rhea.sees("accepted", 120)
    await stored(client, "orders", 0)
    if "limit" in settings:
        assert await field(client, "orders", "peak_bytes") == 50 * SIZE


async def test_a_receiver_starts_with_its_first_credit_and_from_then_on_nothing_goes_above_the_limit(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    """Whatever credit the node and its clients had in hand while nothing was enforced."""
    rhea = rhea_there
    await client.apply("orders", kind="queue", limit=50 * SIZE, enforce="with-consumers")
    await rhea.receiver("r", "orders", credit_window=0)
    await rhea.sender("s", "orders")
    rhea.do("pump", link="s", total=80, size=1000)
    await rhea.sees("accepted", 80)
    assert await field(client, "orders", "active") == 0, "it asks for nothing, so it is not started"
    await client.purge("orders")
    rhea.do("pump", link="s", total=30, size=1000)
    await rhea.sees("accepted", 110)
    rhea.do("credit", link="r", more=1)
    await rhea.sees("message", 1)
    assert await field(client, "orders", "active") == 1
    rhea.do("pump", link="s", total=100, size=1000)
    await rhea.sees("accepted", 130)
    await stalled(rhea, "s")
    assert (await field(client, "orders", "pending_messages"), len(rhea.told("accepted"))) == (50, 130)


@pytest.mark.soak
async def test_two_senders_of_one_destination_both_stop_and_both_go_on(
    rhea_there: Rhea, node: NodeProcess, client: headgate.Client
) -> None:
    rhea = rhea_there
    await rhea.connect("d", node.port)
    await client.apply("orders", limit_messages=100)
    for link, on in (("s", "c"), ("t", "d")):
        await rhea.sender(link, "orders", on=on)
        rhea.do("pump", link=link, total=100, size=100)
    await rhea.sees("accepted", 100)
    await stalled(rhea, "s", "t")
    await stored(client, "orders", 100)
    await rhea.receiver("r", "orders", credit_window=200, autoaccept=True, autosettle=True)
    await rhea.sees("message", 200)
    await rhea.sees("accepted", 200)


async def test_beyond_the_limit_messages_on_their_way_are_stored_up_to_the_hard_limit(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    await client.apply("orders", limit=10 * SIZE, hard_limit=12 * SIZE + 500)
    links = ["a", "b", "c", "d"]
    for link in links:
        await rhea.sender(link, "orders")
    rhea.do("pump", link="a", total=9, size=1000)
    await rhea.sees("accepted", 9, link="a")
    await ready(rhea, *links)
    rhea.do("send", links=links, messages=[{"body": {"$data": "78" * 1000}}])  # at once: the first takes all credit
    (refused,) = await rhea.sees("rejected")
    await rhea.sees("accepted", 12)
    assert refused["error"]["condition"] == "amqp:resource-limit-exceeded"
    assert str(12 * SIZE + 500) in refused["error"]["description"]
    assert (await counts(client, "orders"))[0] == 12 * SIZE
    await stalled(rhea, *links)
    async with client.session("s") as session:
        consumer = await session.consumer("orders", window=1)
        for _ in range(12):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            await message.accept(confirm=True)
    rhea.do("pump", link="b", total=5, size=1000)
    await rhea.sees("accepted", 9 + 3 + 5)
    assert len(rhea.told("rejected")) == 1
