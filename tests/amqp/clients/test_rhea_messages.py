"""What rhea sends and gets: every part of a message, every outcome, every size; and to and from the SDK."""

from typing import Any

import pytest

import headgate
from tests.amqp.conftest import StartNode
from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import Rhea
from tests.sdk.observing import GUARD, counts, drain, field, look
from tests.support.extent import share_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

WHOLE = {
    "durable": True,
    "priority": 7,
    "message_annotations": {"x-opt-note": "kept"},
    "message_id": "m-1",
    "user_id": {"$bytes": "6d65"},
    "subject": "a subject",
    "reply_to": "answers",
    "correlation_id": 12345,
    "content_type": "text/plain",
    "content_encoding": "identity",
    "group_id": "g",
    "group_sequence": 3,
    "creation_time": {"$date": 1700000000000},
    "application_properties": {"text": "ä€", "number": 7, "yes": True, "half": 0.5},
}
BODIES = [
    "text",
    "",
    42,
    -1.5,
    True,
    None,
    {"$bytes": "00ff10"},
    {"$data": "00010203"},
    {"$sequence": [1, "two", None]},
    [1, [2, "three"]],
    {"a": 1, "b": {"c": "d"}},
]


def heard(body: Any) -> Any:
    """The body as rhea tells it."""
    if isinstance(body, dict) and "$data" in body:
        return {"$data": [{"$bytes": body["$data"]}]}
    return body


async def test_a_hundred_messages_come_whole_and_in_order(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await rhea.sender("s", "orders")
    sent: list[dict[str, Any]] = [
        WHOLE | {"body": BODIES[n % len(BODIES)], "application_properties": {"n": n}, "message_id": f"m-{n}"}
        for n in range(100)
    ]
    rhea.do("send", link="s", messages=sent)
    await rhea.sees("accepted", 100, link="s")
    assert await field(client, "orders", "pending_messages") == 100
    await rhea.receiver("r", "orders", credit_window=10, autoaccept=True, autosettle=True)
    await rhea.sees("message", 100, link="r")
    for got, put in zip(rhea.messages("r"), sent, strict=True):
        assert got.pop("body", None) == heard(put["body"])
        assert {name: value for name, value in got.items() if name in put} == {
            name: value for name, value in put.items() if name != "body"
        }
    await wait_until(lambda: _empty(client, "orders"))


async def _empty(client: headgate.Client, destination: str) -> bool:
    return await field(client, destination, "pending_messages") == 0


@pytest.mark.soak
async def test_credit_of_three_brings_three(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=[{"body": n} for n in range(10)])
    await rhea.sees("accepted", 10)
    await rhea.receiver("r", "orders")
    rhea.do("credit", link="r", more=3)
    await rhea.sees("message", 3, link="r")
    rhea.do("settle", link="r", how="accept", count=3)
    rhea.do("credit", link="r", more=2)
    await rhea.sees("message", 5, link="r")
    (stored,) = (await look(client, "orders")).consumers.values()
    assert (stored["delivered"], stored["settled"]) == ("5", "3")
    assert rhea.bodies("r") == [0, 1, 2, 3, 4]


async def test_a_drain_brings_what_there_is_and_ends_once(rhea_there: Rhea) -> None:
    rhea = rhea_there
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=[{"body": n} for n in range(7)])
    await rhea.sees("accepted", 7)
    await rhea.receiver("r", "orders")
    rhea.do("credit", link="r", more=100)
    rhea.do("drain", link="r")
    await rhea.sees("receiver_drained", link="r")
    assert rhea.bodies("r") == list(range(7))
    assert (await rhea.look("r"))["credit"] == 0
    assert len(rhea.told("receiver_drained")) == 1
    rhea.do("send", link="s", messages=[{"body": "late"}])
    await rhea.sees("accepted", 8)
    assert len(rhea.messages("r")) == 7


async def test_a_drain_of_an_empty_destination_ends(rhea_there: Rhea) -> None:
    rhea = rhea_there
    await rhea.receiver("r", "orders")
    for times in (1, 2):
        rhea.do("drain", link="r", more=10)
        await rhea.sees("receiver_drained", times, link="r")
        assert (await rhea.look("r"))["credit"] == 0


@pytest.mark.parametrize(
    ("how", "options", "count"),
    [
        ("release", {}, None),
        ("modified", {"delivery_failed": True}, 1),
        ("modified", {"delivery_failed": False}, None),
    ],
)
async def test_what_is_given_back_comes_again(
    rhea_there: Rhea, how: str, options: dict[str, bool], count: int | None
) -> None:
    rhea = rhea_there
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=[WHOLE | {"body": "b"}])
    await rhea.receiver("r", "orders")
    rhea.do("credit", link="r", more=1)
    await rhea.sees("message", link="r")
    rhea.do("settle", link="r", how=how, options=options)
    rhea.do("credit", link="r", more=1)
    first, second = (await rhea.sees("message", 2, link="r"))[:2]
    assert second["message"].pop("delivery_count", None) == count
    for event in (first, second):
        for default in ("delivery_count", "first_acquirer"):
            event["message"].pop(default, None)
    assert second["message"] == first["message"]


@pytest.mark.parametrize(("how", "options"), [("reject", {}), ("modified", {"undeliverable_here": True})])
async def test_what_cannot_be_used_goes_where_the_policy_says(
    rhea_there: Rhea, client: headgate.Client, how: str, options: dict[str, bool]
) -> None:
    rhea = rhea_there
    await client.apply("orders", dead_letter="dead")
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=[WHOLE | {"body": "bad"}])
    await rhea.receiver("r", "orders")
    rhea.do("credit", link="r", more=2)
    await rhea.sees("message", link="r")
    rhea.do("settle", link="r", how=how, options=options)
    await rhea.receiver("d", "dead", credit_window=1)
    (event,) = await rhea.sees("message", link="d")
    assert event["message"]["body"] == "bad"
    assert event["message"]["subject"] == "a subject"
    assert event["message"]["application_properties"].items() >= {"number": 7}.items()
    await wait_until(lambda: _empty(client, "orders"))
    assert len(rhea.messages("r")) == 1


@pytest.mark.soak  # test_failures.py has it of nodes
async def test_what_a_lost_connection_held_is_delivered_again(rhea_there: Rhea, node: NodeProcess) -> None:
    rhea = rhea_there
    await rhea.connect("d", node.port)
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=[{"body": n} for n in range(3)])
    await rhea.receiver("r", "orders", on="d", credit_window=3)
    await rhea.sees("message", 3, link="r")
    rhea.do("destroy", connection="d")
    await rhea.receiver("r2", "orders", credit_window=3)
    await rhea.sees("message", 3, link="r2")
    assert rhea.bodies("r2") == [0, 1, 2]
    assert [message["delivery_count"] for message in rhea.messages("r2")] == [1, 1, 1]


@pytest.mark.parametrize("frame", share_of([4096, None, 1 << 20], 3))
async def test_five_megabytes_come_and_go_in_frames_of_any_size(
    node: NodeProcess, rhea: Rhea, frame: int | None
) -> None:
    await rhea.connect("c", node.port, **({"max_frame_size": frame} if frame else {}))
    await rhea.sender("s", "files")
    await rhea.receiver("r", "files", credit_window=2, autoaccept=True, autosettle=True)
    for count in (1, 2):
        rhea.do("large", link="s", size=5 << 20)
        await rhea.sees("message", count, link="r")
    assert [body["$data"][0]["$md5"] for body in rhea.bodies("r")] == [event["md5"] for event in rhea.told("sent")]


async def test_what_the_sender_has_settled_is_stored_and_what_the_receiver_wants_settled_is_gone(
    rhea_there: Rhea, client: headgate.Client
) -> None:
    rhea = rhea_there
    await rhea.sender("s", "orders", snd_settle_mode=1)
    rhea.do("send", link="s", messages=[{"body": n} for n in range(5)])
    await rhea.receiver("r", "orders", credit_window=5, snd_settle_mode=1)
    events = await rhea.sees("message", 5, link="r")
    assert [event["settled"] for event in events] == [True] * 5
    await wait_until(lambda: _empty(client, "orders"))
    assert rhea.told("accepted") == []


@pytest.mark.soak
async def test_a_message_expires_by_the_ttl_of_its_header(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=[{"body": "short", "ttl": 1}, {"body": "long", "ttl": 3_600_000}])
    await rhea.sees("accepted", 2)
    await rhea.receiver("r", "orders", credit_window=2)
    await rhea.sees("message", link="r")
    assert rhea.bodies("r") == ["long"]
    assert await field(client, "orders", "pending_messages") == 1


async def test_more_than_the_link_takes_ends_the_link(rhea_there: Rhea) -> None:
    rhea = rhea_there
    answer = await rhea.sender("s", "orders")
    assert answer["largest"] == 16 << 20
    rhea.do("large", link="s", size=(16 << 20) + 1)
    (event,) = await rhea.sees("sender_error", link="s")
    assert event["error"]["condition"] == "amqp:link:message-size-exceeded"
    assert str(16 << 20) in event["error"]["description"]
    await rhea.sender("t", "orders")  # the connection goes on
    rhea.do("send", link="t", messages=[{"body": "small"}])
    await rhea.sees("accepted", link="t")


async def test_more_than_its_receiver_takes_is_for_another(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await client.apply("orders", dead_letter="dead")
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=[{"body": "x" * 5000}, {"body": "small"}])
    await rhea.receiver("r", "orders", credit_window=5, max_message_size=1000)
    (told,) = await rhea.sees("receiver_error", link="r")
    assert told["error"]["condition"] == "amqp:link:message-size-exceeded"
    await rhea.receiver("t", "orders", credit_window=5)
    await rhea.sees("message", 2, link="t")
    assert rhea.bodies("t") == ["x" * 5000, "small"]
    assert [message.get("delivery_count", 0) for message in rhea.messages("t")] == [0, 0]


async def test_the_sdk_reads_what_rhea_sends(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=[WHOLE | {"body": "text"}, {"body": {"$data": "0001"}}])
    async with client.session("s") as session:
        text, data = await drain(await session.consumer("orders"), 2)
    assert (text.body, data.body) == ("text", b"\x00\x01")
    assert text.headers.items() >= {"text": "ä€", "number": 7, "yes": True, "half": 0.5}.items()
    assert (await counts(client, "orders"))[0] == 0


async def test_rhea_reads_what_the_sdk_sends(rhea_there: Rhea, client: headgate.Client) -> None:
    rhea = rhea_there
    async with client.session("s") as session:
        producer = await session.producer("orders")
        await producer.send("text", headers={"number": 7, "name": "ä€"}, timeout=GUARD)
        await producer.send(b"\x00\x01", timeout=GUARD)
    await rhea.receiver("r", "orders", credit_window=2)
    await rhea.sees("message", 2, link="r")
    assert rhea.bodies("r") == ["text", {"$data": [{"$bytes": "0001"}]}]
    assert rhea.messages("r")[0]["application_properties"] == {"number": 7, "name": "ä€"}


@pytest.mark.soak
async def test_what_one_node_takes_another_delivers(start_node: StartNode, rhea: Rhea) -> None:
    a, b = start_node(), start_node()
    await rhea.connect("a", a.port)
    await rhea.connect("b", b.port)
    await rhea.receiver("r", "orders", on="b", credit_window=10)
    await rhea.sender("s", "orders", on="a")
    rhea.do("send", link="s", messages=[{"body": n} for n in range(20)])
    await rhea.sees("accepted", 20)
    await rhea.sees("message", 10, link="r")
    rhea.do("settle", link="r", how="accept", count=10)
    rhea.do("credit", link="r", more=10)
    await rhea.sees("message", 20, link="r")
    assert rhea.bodies("r") == list(range(20))
