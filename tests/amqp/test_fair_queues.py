"""Queues whose keys take turns, over a node: what AMQP clients say, and which of them says it."""

from functools import partial

import headgate
from headgate.amqp.link import Link
from headgate.core.amqp.message import AmqpMessage, Properties, encode
from tests.amqp.client import Peer
from tests.amqp.nodes import NodeProcess
from tests.sdk.observing import GUARD, field
from tests.support.waiting import wait_until


async def bodies(client: headgate.Client, queue: str, count: int) -> str:
    """Return the bodies of the next messages, each received and accepted before the next."""
    found = ""
    async with client.session("s") as session:
        consumer = await session.consumer(queue, window=1)
        for _ in range(count):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            found += bytes(message.body).decode() if isinstance(message.body, bytes) else message.body
            await message.accept(confirm=True)
    return found


async def test_by_producer_each_client_has_its_turn(node: NodeProcess, client: headgate.Client) -> None:
    """Mutant: the node is one producer."""
    await client.apply("orders", kind="queue", fair_by="producer")
    for name in "ab":
        peer = await Peer.connect(node.port, name)
        link = await peer.sender("orders")
        for _ in range(3 if name == "a" else 1):
            await peer.send(link, name)
        await peer.close()
    assert await bodies(client, "orders", 4) == "abaa"


async def test_by_group_id_and_by_an_application_property(node: NodeProcess, client: headgate.Client) -> None:
    peer = await Peer.connect(node.port)
    for queue, fair_by in (("orders", "group-id"), ("jobs", "header:tenant")):
        await client.apply(queue, kind="queue", fair_by=fair_by)
        link = await peer.sender(queue, queue)
        for key in "aaab":
            message = AmqpMessage(kind="data", body=key.encode())
            if queue == "orders":
                message.properties = Properties(group_id=key)
            else:
                message.application_properties = {"tenant": key}
            await peer.until(partial(_has_credit, link), link)
            link.send(encode(message))
            peer.flush_soon()
        await wait_until(partial(_is_stored, client, queue, 4))
        assert await bodies(client, queue, 4) == "abaa"
    await peer.close()


async def _is_stored(client: headgate.Client, queue: str, count: int) -> bool:
    return await field(client, queue, "pending_messages") == count


def _has_credit(link: Link) -> bool:
    return link.credit > 0
