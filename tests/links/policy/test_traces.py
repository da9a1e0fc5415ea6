"""A trace goes over nodes and links: a message of an AMQP client at one site, to an AMQP client of another."""

import asyncio
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from proton import Message
from proton.utils import BlockingConnection

from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from tests.links.sites import route, three_sites_of
from tests.links.traces import PARENT, TRACE_ID, begin_tracing, named
from tests.support.servers import available_servers
from tests.support.shared import SharedServers
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


def _send(port: int) -> None:
    connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=60)
    sender = connection.create_sender("orders")
    sender.send(Message("1", properties={"traceparent": PARENT}))
    sender.send(Message("2", properties={"traceparent": "nonsense"}))
    connection.close()


def _receive(port: int) -> list[Any]:
    connection = BlockingConnection(f"amqp://127.0.0.1:{port}", timeout=60)
    receiver = connection.create_receiver("orders")
    messages = []
    for _ in range(2):
        messages.append(receiver.receive(timeout=60))
        receiver.accept()
    connection.close()
    return messages


async def test_each_hop_is_a_span_in_the_trace_of_its_message(
    monkeypatch: pytest.MonkeyPatch, no_key_left: None, shared_servers: SharedServers, namespace: str
) -> None:
    """Mutants: a hop that is its own trace; a span of what has none; a span that never ends."""
    spans: InMemorySpanExporter = begin_tracing(monkeypatch)
    urls = [shared_servers.standalone(available_servers()[-1])] * 2
    async with three_sites_of(urls, namespace) as (paris, berlin, _):
        nodes = [Node(site.client, NodeOptions(port=0), Users.from_redis(site.client)) for site in (paris, berlin)]
        for node in nodes:
            await node.start()
        try:
            await paris.govern(route("berlin", 'queues = "orders"'), berlin)
            await berlin.govern("")
            async with paris.working():
                await asyncio.to_thread(_send, nodes[0].port)
                messages = await asyncio.to_thread(_receive, nodes[1].port)
        finally:
            for node in nodes:
                await node.close()
        assert [message.properties["traceparent"] for message in messages] == [PARENT, "nonsense"]
        await wait_until(lambda: len(named(spans, "transfer orders")) == 2, timeout=60, description="both ends")
        (hop,), transfers = named(spans, "forward orders"), named(spans, "transfer orders")
        assert {f"{span.context.trace_id:032x}" for span in (hop, *transfers)} == {TRACE_ID}
        came, went = sorted(transfers, key=lambda span: int(span.start_time))
        assert came.start_time <= hop.start_time <= hop.end_time <= went.end_time
        assert f"{hop.parent.span_id:016x}" == PARENT.split("-")[2]
