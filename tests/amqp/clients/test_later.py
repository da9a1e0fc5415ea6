"""Messages for later, as AMQP clients ask for them: none before its time, and nonsense is refused by its name."""

import re
import time
from typing import Any

import pytest
from proton import Delivery, Message, symbol, timestamp
from proton.utils import BlockingConnection

import headgate
from headgate.core.amqp.types import Symbol
from tests.amqp.client import Peer
from tests.amqp.clients.test_proton import blocking
from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import Rhea
from tests.sdk.observing import look
from tests.support.extent import each
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
DELAY = "x-opt-delivery-delay"
TIME = "x-opt-delivery-time"


async def test_a_delay_and_a_moment_of_proton(node: NodeProcess, client: headgate.Client) -> None:
    """By Redis' clock, which is this host's here, none comes early; what waits is pending, and browsed."""

    def work(connection: BlockingConnection) -> list[tuple[str, bool]]:
        sender, began = connection.create_sender("orders"), time.time()
        due = {"first": began + 0.3, "second": began + 0.6, "third": 0.0, "past": 0.0}
        sender.send(Message(body="first", annotations={symbol(DELAY): 300}))
        sender.send(
            Message(body="second", annotations={symbol(TIME): timestamp(int(due["second"] * 1000)), symbol(DELAY): 9})
        )
        sender.send(Message(body="third", annotations={symbol("x-opt-delivery-other"): "yes"}))
        sender.send(Message(body="past", annotations={symbol(TIME): 5}))
        receiver = connection.create_receiver("orders")
        got = []
        for _ in due:
            body = str(receiver.receive().body)
            got.append((body, time.time() >= due[body] - 0.001))
            receiver.accept()
        return got

    got = await blocking(node, work)
    assert sorted(got) == [("first", True), ("past", True), ("second", True), ("third", True)]


async def test_what_waits_is_pending(node: NodeProcess, client: headgate.Client) -> None:
    message = Message(body="x", annotations={symbol(DELAY): 3_600_000})
    await blocking(node, lambda connection: connection.create_sender("orders").send(message))
    assert (await look(client, "orders")).fields["pending_messages"] == "1"
    (waiting,) = [one async for one in client.browse("orders")]
    assert waiting.due_ms is not None
    assert waiting.due_ms - (await look(client, "orders")).now_ms <= 3_600_000


@each("annotations", [
    {DELAY: -1}, {DELAY: 366 * 86_400_000 + 1}, {TIME: -5}, {TIME: 2**62}, {DELAY: "soon"}, {DELAY: 0.5},
])  # fmt: skip
async def test_nonsense_is_rejected_by_its_name(node: NodeProcess, annotations: dict[str, Any]) -> None:
    peer = await Peer.connect(node.port)
    link = await peer.sender("orders")
    named = {Symbol(name): value for name, value in annotations.items()}
    outcome, reason = await peer.send(link, "x", named)
    assert outcome == "rejected"
    assert re.search(f"^{next(iter(annotations))}: .*(use a whole number of ms from 0|the most is 31622400 s)", reason)
    assert (await peer.send(link, "y", {Symbol(DELAY): 5}))[0] == "accepted"
    await peer.close()


async def test_a_failed_delivery_of_proton_waits_as_it_says(node: NodeProcess, client: headgate.Client) -> None:
    """An annotation of the outcome goes before the policy; one that is nonsense is passed over."""
    await client.apply("orders", kind="queue", retry_delay="1h")

    def work(connection: BlockingConnection) -> list[int]:
        connection.create_sender("orders").send(Message(body="x"))
        receiver: Any = connection.create_receiver("orders", credit=1)
        counts = []
        for annotations in ({symbol(DELAY): 40}, {symbol(DELAY): 0}, {symbol(DELAY): -1}):
            counts.append(receiver.receive().delivery_count)
            delivery = receiver.fetcher.unsettled.popleft()
            delivery.local.failed = True
            delivery.local.annotations = annotations
            delivery.update(Delivery.MODIFIED)
            delivery.settle()
        return counts

    assert await blocking(node, work) == [0, 1, 2]

    async def waits() -> bool:
        seen = await look(client, "orders")
        return int(seen.fields.get("next_due", 0)) - seen.now_ms > 3_000_000

    await wait_until(waits)


async def test_a_failed_delivery_waits_as_the_policy_says_or_the_client(
    client: headgate.Client, rhea_there: Rhea
) -> None:
    await client.apply("orders", kind="queue", retry_delay="1h")
    rhea = rhea_there
    await rhea.sender("s", "orders")
    rhea.do("send", link="s", messages=[{"body": "b"}])
    await rhea.receiver("r", "orders")
    rhea.do("credit", link="r", more=9)
    await rhea.sees("message", link="r")
    options = {"delivery_failed": True, "message_annotations": {DELAY: 50}}
    rhea.do("settle", link="r", how="modified", options=options)
    again = (await rhea.sees("message", 2, link="r"))[1]
    assert again["message"]["delivery_count"] == 1
    rhea.do("settle", link="r", how="modified", options={"delivery_failed": True})

    async def waits() -> bool:
        fields = (await look(client, "orders")).fields
        return int(fields.get("next_due", 0)) - int((await look(client, "orders")).now_ms) > 3_000_000

    await wait_until(waits)


async def test_priorities_and_moments_of_rhea(client: headgate.Client, rhea_there: Rhea) -> None:
    """Mutant: a timestamp that a client of Node.js writes is taken for a delay."""
    await client.apply("orders", kind="queue", fair_by="priority")
    rhea = rhea_there
    await rhea.sender("s", "orders")
    began = time.time()
    later = {"body": "later", "priority": 9, "message_annotations": {TIME: {"$date": int(began * 1000) + 600}}}
    delayed = {"body": "delayed", "priority": 9, "message_annotations": {DELAY: 300}}
    usual = [{"body": str(priority), "priority": priority} for priority in (0, 4, 9, 5)]
    rhea.do("send", link="s", messages=[later, delayed, *usual])
    await rhea.sees("accepted", 6, link="s")
    await rhea.receiver("r", "orders")
    rhea.do("credit", link="r", more=9)
    came = [event["message"]["body"] for event in await rhea.sees("message", 6, link="r")]
    assert time.time() >= began + 0.599
    assert [body for body in came if body.isdigit()] == ["9", "5", "4", "0"]
    assert came.index("delayed") < came.index("later") == 5
