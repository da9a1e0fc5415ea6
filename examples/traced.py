"""A trace goes on over a queue: the message carries its context, and a wait for room is an event of the send.

pip install 'headgate[otel]' opentelemetry-sdk
python examples/traced.py [URL]            without a URL on a private Redis
"""

import asyncio
import sys

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import headgate
from headgate.tracing import processing


async def main() -> None:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    trace.set_tracer_provider(provider)  # before connecting
    async with headgate.connect(sys.argv[1] if len(sys.argv) > 1 else None) as client:
        await client.apply("orders", limit_messages=1)
        async with client.session("shop") as session:
            producer, consumer = await session.producer("orders"), await session.consumer("orders")
            await producer.send(b"first")
            waits = asyncio.create_task(producer.send(b"second"))
            await asyncio.sleep(0.2)
            for _ in range(2):
                message = await anext(consumer)
                with processing(message):
                    await message.accept()
            await waits
    for span in spans.get_finished_spans():
        print(span.name, f"{span.context.trace_id:032x}"[:6], *(event.name for event in span.events))


asyncio.run(main())
