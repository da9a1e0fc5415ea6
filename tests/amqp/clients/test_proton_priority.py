"""A queue that delivers by priority, over a node: with Qpid Proton's own Python client."""

import pytest
from proton import Message
from proton.utils import BlockingConnection

import headgate
from tests.amqp.clients.test_proton import blocking
from tests.amqp.nodes import NodeProcess

pytestmark = pytest.mark.one_server


async def test_a_queue_delivers_by_the_priority_of_the_header(node: NodeProcess, client: headgate.Client) -> None:
    """One above 9 is of the highest band; what the SDK sends with a priority has it in its header."""
    await client.apply("orders", kind="queue", fair_by="priority")

    def put(connection: BlockingConnection) -> None:
        sender = connection.create_sender("orders")
        for priority in (0, 4, 9, 200, 5):
            sender.send(Message(body="x", priority=priority, durable=True))

    def get(connection: BlockingConnection) -> list[int]:
        receiver, found = connection.create_receiver("orders"), []
        for _ in range(6):
            found.append(receiver.receive().priority)
            receiver.accept()
        return found

    await blocking(node, put)
    async with client.session("s") as session:
        await (await session.producer("orders")).send("x", priority=7)
    assert await blocking(node, get) == [9, 200, 7, 5, 4, 0]
