"""A provider of OpenTelemetry of one test alone."""

from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
"""What a message says that was sent in some trace."""
TRACE_ID = PARENT.split("-")[1]


def begin_tracing(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """Set a provider, for clients that connect from now on."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr("opentelemetry.trace._TRACER_PROVIDER", provider)
    return exporter


def named(spans: InMemorySpanExporter, name: str) -> list[Any]:
    """Return the spans of a name that have ended."""
    return [span for span in spans.get_finished_spans() if span.name == name]
