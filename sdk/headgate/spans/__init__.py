"""Spans and histograms of OpenTelemetry, where a provider is set; else nothing.

The API is looked for once, as a client connects. A program that sets a provider has imported it, so nothing is imported
here for others. The context of a trace travels in the headers ``traceparent`` and ``tracestate``, which AMQP
clients see as application properties, and which nodes, links and Spark keep.
"""

from headgate.spans.provided import Tracing, context_of, found
from headgate.spans.span import Span

__all__ = ["Span", "Tracing", "context_of", "found"]
