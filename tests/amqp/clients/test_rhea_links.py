"""Links of rhea: of every kind, those that are refused, and what becomes of them when connections or nodes go."""

import asyncio
from typing import Any

import pytest

import headgate
from headgate.redis.keys import Address
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import Rhea
from tests.sdk.observing import drain, field
from tests.support.extent import each
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


async def sent(rhea: Rhea, link: str, *bodies: Any) -> None:
    """Send, and wait until all is accepted."""
    before = len(rhea.told("accepted", link=link))
    rhea.do("send", link=link, messages=[{"body": body} for body in bodies])
    await rhea.sees("accepted", before + len(bodies), link=link)


async def test_capabilities_say_what_an_unknown_address_becomes(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    for kind in ("queue", "topic"):
        answer = await rhea.sender(kind, {"address": f"a.{kind}", "capabilities": [kind]})
        assert answer["capabilities"] == [kind]
        assert (await client.store.snapshot(_address(client, f"a.{kind}"))).fields["kind"] == kind  # type: ignore[union-attr]
    assert (await rhea.sender("plain", "a.plain"))["capabilities"] == ["queue"]
    for side in (rhea.sender, rhea.receiver):  # what it is already is told
        assert (await side(side.__name__, {"address": "a.queue", "capabilities": ["topic"]}))["capabilities"] == [
            "queue"
        ]


def _address(client: headgate.Client, name: str) -> Address:
    return Address.of(client.namespace, name)


async def test_every_subscriber_of_a_topic_gets_every_message(rhea_there: Rhea) -> None:
    rhea = rhea_there
    topic = {"address": "news", "capabilities": ["topic"]}
    for name in ("r1", "r2"):
        await rhea.receiver(name, topic, credit_window=10, autoaccept=True, autosettle=True)
    await rhea.sender("s", topic)
    await sent(rhea, "s", *range(10))
    for name in ("r1", "r2"):
        await rhea.sees("message", 10, link=name)
        assert rhea.bodies(name) == list(range(10))


DURABLE = {"address": "news", "capabilities": ["topic"], "durable": 2, "expiry_policy": "never"}


async def test_a_durable_subscription_outlives_its_link_and_the_node(start_node: StartNode, rhea: Rhea) -> None:
    first = start_node()
    await rhea.connect("c", first.port)
    await rhea.connect("d", first.port, container_id="reader")
    await rhea.sender("s", {"address": "news", "capabilities": ["topic"]})
    settling = {"autoaccept": True, "autosettle": True, "credit_window": 10}
    await rhea.receiver("sub", DURABLE, on="d", **settling)
    await sent(rhea, "s", "one")
    await rhea.sees("message", link="sub")
    rhea.do("destroy", connection="d")
    await sent(rhea, "s", "two")
    await rhea.connect("d2", first.port, container_id="reader")
    await rhea.receiver("sub", DURABLE, on="d2", called="sub2", **settling)
    await rhea.sees("message", link="sub2")
    rhea.do("detach", link="sub2")
    await rhea.sees("receiver_close", link="sub2")
    await sent(rhea, "s", "three")
    first.kill9()
    second = start_node()
    await rhea.connect("d3", second.port, container_id="reader")
    await rhea.receiver("sub", DURABLE, on="d3", called="sub3", **settling)
    await rhea.sees("message", link="sub3")
    assert [rhea.bodies(name) for name in ("sub", "sub2", "sub3")] == [["one"], ["two"], ["three"]]


async def test_closing_its_link_ends_a_durable_subscription(
    rhea_there: Rhea, node: NodeProcess, client: headgate.Client
) -> None:
    rhea = rhea_there
    await rhea.sender("s", {"address": "news", "capabilities": ["topic"]})
    await rhea.receiver("sub", DURABLE)
    rhea.do("close", link="sub")
    await rhea.sees("receiver_close", link="sub")

    async def ended() -> bool:
        snapshot = await client.store.snapshot(_address(client, "news"))
        return snapshot is not None and not snapshot.subscriptions

    await wait_until(ended)
    await sent(rhea, "s", "nobody")
    assert await field(client, "news", "pending_messages") == 0


async def test_shared_subscriptions_share(rhea_there: Rhea, node: NodeProcess) -> None:
    rhea = rhea_there
    await rhea.connect("d", node.port)
    await rhea.sender("s", {"address": "news", "capabilities": ["topic"]})
    shared = {"address": "news", "capabilities": ["topic", "shared", "global"]}
    for name, on in (("work|1", "c"), ("work|2", "d")):
        await rhea.receiver(name, shared, on=on, credit_window=0)
        rhea.do("credit", link=name, more=5)
    await sent(rhea, "s", *range(10))
    for name in ("work|1", "work|2"):
        await rhea.sees("message", 5, link=name)
    assert sorted(rhea.bodies("work|1") + rhea.bodies("work|2")) == list(range(10))


async def test_a_reply_finds_its_way_over_a_queue_of_the_askers_own(
    rhea_there: Rhea, node: NodeProcess, client: headgate.Client
) -> None:
    rhea = rhea_there
    await rhea.connect("server", node.port)
    await rhea.receiver("requests", "sums", on="server", answers=True, credit_window=5, autoaccept=True)
    answer = await rhea.receiver("replies", {"dynamic": True}, credit_window=5, autoaccept=True)
    assert answer["dynamic"] is True
    assert answer["address"]
    for n in range(3):
        request = {"to": "sums", "reply_to": answer["address"], "correlation_id": n, "body": f"{n}?"}
        rhea.do("relay", connection="c", message=request)
    await rhea.sees("message", 3, link="replies")
    assert [(m["correlation_id"], m["body"]) for m in rhea.messages("replies")] == [(n, f"re: {n}?") for n in range(3)]
    rhea.do("close", link="replies")
    await rhea.sees("receiver_close", link="replies")

    async def removed() -> bool:
        return await client.store.snapshot(_address(client, answer["address"])) is None

    await wait_until(removed, description="the queue of the replies is removed")
    await rhea.sender("late", answer["address"])
    (event,) = await rhea.sees("sender_error", link="late")
    assert event["error"]["condition"] == "amqp:not-found"
    assert await removed()


async def test_a_relayed_message_without_to_is_rejected(rhea_there: Rhea) -> None:
    rhea = rhea_there
    await rhea.sender("s", {})
    rhea.do("send", link="s", messages=[{"body": "whereto"}, {"to": "here", "body": "x"}])
    (event,) = await rhea.sees("rejected", link="s")
    assert event["error"]["condition"] == "amqp:invalid-field"
    await rhea.sees("accepted", link="s")


async def test_browsing_leaves_all_as_it_is(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await rhea.sender("s", "orders")
    await sent(rhea, "s", *range(5))
    await rhea.receiver("b", {"address": "orders", "distribution_mode": "copy"}, credit_window=0)
    rhea.do("credit", link="b", more=10)
    rhea.do("drain", link="b")
    await rhea.sees("receiver_drained", link="b")
    assert rhea.bodies("b") == list(range(5))
    assert await field(client, "orders", "pending_messages") == 5
    async with client.session("s") as session:
        assert len(await drain(await session.consumer("orders"), 5)) == 5


SELECTOR = {"$type": "described", "value": ["apache.org:selector-filter:string", "a = 1"]}


@each(
    ("side", "terminus", "condition", "says"),
    [
        ("receiver", {"address": "q", "filter": {"jms-selector": "a = 1"}}, "amqp:not-implemented", "jms-selector"),
        ("receiver", {}, "amqp:not-found", "no durable subscription"),
        ("receiver", {"address": "orders.*", "capabilities": ["queue"]}, "amqp:not-implemented", "pattern"),
        ("receiver", {"address": "bad name\n"}, "amqp:invalid-field", "bad name"),
        ("sender", {"address": ""}, "amqp:invalid-field", ""),
        ("sender", {"address": "{braces}"}, "amqp:invalid-field", "braces"),
        ("sender", {"address": "orders.*"}, "amqp:invalid-field", r"orders.*"),
    ],
)
async def test_a_link_that_cannot_be_is_refused_with_the_reason(
    rhea_there: Rhea, side: str, terminus: dict[str, Any], condition: str, says: str
) -> None:
    rhea, number = rhea_there, len(rhea_there.events)
    await getattr(rhea, side)(f"x{number}", terminus)
    (event,) = await rhea.sees(f"{side}_error", link=f"x{number}")
    assert event["error"]["condition"] == condition
    assert says in event["error"]["description"]
    await rhea.sender(f"s{number}", "orders")  # the connection goes on
    await sent(rhea, f"s{number}", "fine")


async def test_rhea_goes_to_another_node_when_its_own_is_killed(start_node: StartNode, rhea: Rhea) -> None:
    await _reconnects(start_node, rhea, lambda node: node.kill9())


async def test_rhea_goes_to_another_node_when_its_own_is_stopped(start_node: StartNode, rhea: Rhea) -> None:
    await _reconnects(start_node, rhea, lambda node: node.terminate())


async def _reconnects(start_node: StartNode, rhea: Rhea, end: Any) -> None:
    nodes = [start_node(), start_node()]
    await rhea.connect("c", *(node.port for node in nodes), reconnect=10, initial_reconnect_delay=10)
    settling: dict[str, Any] = {"credit_window": 10, "autoaccept": True, "autosettle": True}
    await rhea.receiver("r", "orders", **settling)
    await rhea.sender("s", "orders")
    await sent(rhea, "s", *range(10))
    await rhea.sees("message", 10, link="r")
    await asyncio.to_thread(end, nodes[0])
    await rhea.sees("connection_open", 2, connection="c")
    await rhea.sees("sender_open", 2, link="s")
    await rhea.sees("receiver_open", 2, link="r")
    await sent(rhea, "s", "after")
    await wait_until(lambda: "after" in rhea.bodies("r"))


async def test_a_node_that_stops_stores_what_it_took_and_says_where_it_goes(
    start_node: StartNode, rhea: Rhea, client: headgate.Client
) -> None:
    node = start_node()
    await rhea.connect("c", node.port)
    await rhea.sender("s", "orders")
    rhea.do("pump", link="s", total=100_000, size=100)
    await rhea.sees("accepted", 200, link="s")
    node.terminate()
    (event,) = await rhea.sees("connection_error", connection="c")
    assert event["error"]["condition"] == "amqp:connection:forced"
    assert node.name in event["error"]["description"]
    assert await asyncio.to_thread(node.wait) == 0
    assert await field(client, "orders", "pending_messages") == len(rhea.told("accepted", link="s"))


async def test_what_a_client_holds_can_be_settled_while_the_node_stops(
    start_node: StartNode, rhea: Rhea, client: headgate.Client
) -> None:
    node = start_node()
    await rhea.connect("c", node.port)
    await rhea.sender("s", "orders")
    await sent(rhea, "s", *"abcde")
    await rhea.receiver("r", "orders", credit_window=0)
    rhea.do("credit", link="r", more=2)
    await rhea.sees("message", 2)
    node.terminate()
    await refuses(node.port)
    assert rhea.told("connection_close") == []
    rhea.do("credit", link="r", more=2)
    rhea.do("settle", link="r", how="accept", count=2)
    await rhea.sees("connection_close", connection="c")
    assert await asyncio.to_thread(node.wait) == 0
    assert len(rhea.messages("r")) == 2
    async with client.session("s") as session:
        left = await drain(await session.consumer("orders"), 3)
    assert [(message.body, message.delivery_count) for message in left] == [("c", 0), ("d", 0), ("e", 0)]


async def refuses(port: int) -> None:
    """Wait until nobody listens there any more."""

    async def refused() -> bool:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return True
        writer.close()
        return False

    await wait_until(refused)
