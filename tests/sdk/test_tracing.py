"""Traces with OpenTelemetry's own SDK: over Redis, a node and a link, through waits; nothing without a provider."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from proton import Message
from proton.utils import BlockingConnection

import headgate
import headgate.sync
from headgate import policy
from headgate import spans as tracing
from headgate.producing.producer import Producer
from headgate.tracing import TracedProducer, processing
from tests.amqp.nodes import NodeProcess
from tests.links.traces import PARENT, begin_tracing, named
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    return begin_tracing(monkeypatch)


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> InMemoryMetricReader:
    reader = InMemoryMetricReader()
    monkeypatch.setattr("opentelemetry.metrics._internal._METER_PROVIDER", MeterProvider([reader]))
    return reader


async def test_a_send_is_linked_to_its_receive_and_goes_on_where_it_is_processed(
    spans: InMemorySpanExporter, redis_url: str, cleanup_namespace: str
) -> None:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        session = client.session("ann")
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        with trace.get_tracer("test").start_as_current_span("order"):
            receipt = await producer.send(b"1", headers={"region": "EU"})
        await (await producer.post(b"2"))
        await wait_until(lambda: consumer.held_messages == 2)  # both are here, and neither is waited for
        first, second = await anext(consumer), await anext(consumer)
        assert first.headers["region"] == "EU"
        with processing(first):
            pass
        await first.accept()
        await second.accept(confirm=True)
    (settled,) = named(spans, "settle orders")
    assert settled.attributes["messaging.batch.message_count"] == 2
    order, sent, posted = *named(spans, "order"), *named(spans, "send orders")
    received, again = named(spans, "receive orders")
    (processed,) = named(spans, "process orders")
    assert sent.context.trace_id == order.context.trace_id == processed.context.trace_id
    assert processed.parent.span_id == sent.context.span_id
    assert [link.context.span_id for link in received.links] == [sent.context.span_id]
    assert [link.context.span_id for link in again.links] == [posted.context.span_id]
    assert sent.attributes["messaging.message.id"] == received.attributes["messaging.message.id"] == receipt.id
    assert {link.context.span_id for link in settled.links} == {sent.context.span_id, posted.context.span_id}
    assert second.headers["traceparent"].split("-")[1] == f"{posted.context.trace_id:032x}"


async def test_a_post_is_over_when_it_is_stored(
    spans: InMemorySpanExporter, redis_url: str, cleanup_namespace: str
) -> None:
    """Mutant: the span of a post ends when it is paid."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        session = client.session("ann")
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        stored = await producer.post(b"1")
        assert not named(spans, "send orders"), "it has its credit, and is on its way"
        receipt = await stored
        (sent,) = named(spans, "send orders")
        assert sent.attributes["messaging.message.id"] == receipt.id
        await client.apply("orders", limit_messages=1)
        await wait_until(lambda: not producer.in_hand)  # a post would be paid with it
        with pytest.raises(headgate.CreditTimeout):
            await producer.post(b"2", timeout=0.05)
        assert named(spans, "send orders")[1].attributes["error.type"] == "CreditTimeout"
        await (await anext(consumer)).accept(confirm=True)


async def test_waits_are_events_of_sends_and_spans_of_admissions(
    spans: InMemorySpanExporter, metrics: InMemoryMetricReader, redis_url: str, cleanup_namespace: str
) -> None:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        await client.apply("orders", limit_messages=1)
        await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 1}})
        session = client.session("ann")
        producer = await session.producer("orders")
        await producer.send(b"1")
        waiting = asyncio.create_task(producer.send(b"2", timeout=60))
        await wait_until(lambda: producer.is_blocked, timeout=60)
        giving_up = asyncio.create_task(producer.send(b"3", timeout=60))
        await wait_until(lambda: len(producer._account.outbox) == 2, timeout=60)
        giving_up.cancel()
        await asyncio.wait([giving_up])
        await (await anext(await client.session("bob").consumer("orders"))).accept()
        await waiting
        limiter = await session.limiter("llm", in_hand=False)
        async with limiter.admit(slots=1):
            with pytest.raises(headgate.CreditTimeout):
                await limiter.admit(slots=1, timeout=1)
    events = [event for span in named(spans, "send orders") for event in span.events]
    outcomes = sorted((event.name, event.attributes["headgate.wait.outcome"]) for event in events)
    assert outcomes[-2:] == [("headgate.wait", "admitted"), ("headgate.wait", "cancelled")]
    admitted, late = named(spans, "admit llm")
    assert (admitted.status.status_code.name, late.status.status_code.name) == ("UNSET", "ERROR")
    assert late.attributes["error.type"] == "CreditTimeout"
    data: Any = metrics.get_metrics_data()
    kinds = {
        (point.attributes["headgate.wait.kind"], point.attributes["headgate.wait.outcome"])
        for scope in data.resource_metrics[0].scope_metrics
        for metric in scope.metrics
        if metric.name == "headgate.wait.duration"
        for point in metric.data.data_points
    }
    assert kinds == {("credit", "admitted"), ("credit", "cancelled"), ("limiter", "admitted"), ("limiter", "timeout")}


async def test_threads_are_in_the_trace_of_their_caller(
    spans: InMemorySpanExporter, redis_url: str, cleanup_namespace: str
) -> None:
    def work() -> None:
        with headgate.sync.connect(redis_url, namespace=cleanup_namespace) as client, client.session("ann") as session:
            with trace.get_tracer("test").start_as_current_span("order"):
                session.producer("orders").send(b"1")
            for message in session.consumer("orders"):
                with processing(message):
                    message.accept(confirm=True)
                break

    await asyncio.to_thread(work)
    (order,), (sent,), (processed,) = (named(spans, name) for name in ("order", "send orders", "process orders"))
    assert sent.parent.span_id == order.context.span_id
    assert processed.parent.span_id == sent.context.span_id
    assert not named(spans, "receive orders"), "what threads receive has come already"
    assert [link.context.span_id for link in named(spans, "settle orders")[0].links] == [sent.context.span_id]


async def test_without_a_provider_nothing_is_traced(redis_url: str, cleanup_namespace: str) -> None:
    """A mutant that always traces fails."""
    assert tracing.found() is None
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        session = client.session("ann")
        producer, consumer = await session.producer("orders"), await session.consumer("orders")
        assert type(producer) is Producer
        assert not isinstance(producer, TracedProducer)
        assert client.parts.waits.listeners == []
        await producer.send(b"1", headers={"traceparent": PARENT})
        message = await anext(consumer)
        assert message.headers == {"traceparent": PARENT}, "whatever others say is kept as it is"
        with processing(message) as span:
            assert span is None


async def test_a_trace_goes_over_a_node_a_bridge_and_another_client(
    spans: InMemorySpanExporter, redis_url: str, cleanup_namespace: str, tmp_path: Path
) -> None:
    node = NodeProcess(redis_url, cleanup_namespace, tmp_path / "node.log").ready()

    def send() -> None:
        connection = BlockingConnection(node.url, timeout=60)
        connection.create_sender("orders").send(Message("1", properties={"traceparent": PARENT, "n": 1}))
        connection.close()

    def receive() -> Any:
        connection = BlockingConnection(node.url, timeout=60)
        receiver = connection.create_receiver("answers")
        message = receiver.receive(timeout=60)
        receiver.accept()
        connection.close()
        return message

    try:
        async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
            await client.apply_policy(policy.loads('[[bridge]]\nname = "b"\nfrom = "orders"\nto = "billing"\n'))
            await asyncio.to_thread(send)
            session = client.session("ann")
            message = await (await session.consumer("billing")).receive(timeout=60)
            assert message is not None
            assert message.headers["traceparent"] == PARENT
            with processing(message):
                await (await session.producer("answers")).send(b"2")
            await message.accept(confirm=True)
            answer = await asyncio.to_thread(receive)
    finally:
        node.stop()
    trace_id = PARENT.split("-")[1]
    (sent,) = named(spans, "send answers")
    assert f"{sent.context.trace_id:032x}" == trace_id
    assert answer.properties["traceparent"].split("-")[1:3] == [trace_id, f"{sent.context.span_id:016x}"]
    (received,) = named(spans, "receive billing")
    assert f"{received.links[0].context.trace_id:032x}" == trace_id
