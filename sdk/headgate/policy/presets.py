"""A preset adds rules below all rules of a document: defaults of destinations in source systems, and usual limiters.

Artemis blocks after 10 MiB and buffers 1 MiB a consumer. ActiveMQ Classic prefetches by kind of consumer, calls one
slow for which more than twice its prefetch waits, and blocks when all messages together fill the memory of its system
usage. That is the pool ``memory``; the pools ``store`` and ``temp`` are for rules that name them. EMS has flow control
off until it is switched on, and then holds those destinations that a rule gives a limit, while somebody consumes.
BlazingMQ bounds unconfirmed messages and bytes. ``llm`` and ``http-api`` have the limits of such a service, for
limiters named ``llm`` and ``api``, and below them (``llm.chat``): a document says its own numbers beside them.

Artemis pages, and the file cursors of Classic spool; both need to know where to. So once a document says that of a
store that the system has, by its name, destinations spool there, within what the system has as its limit.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

from headgate.core.policy import Policy
from headgate.policy.read import parse

PRESETS: Final = {
    "artemis": """
[[destination]]
match = "#"
limit = { bytes = "10MiB" }
when_full = "block"
producer = { window = "64KiB" }
consumer = { window = { bytes = "1MiB" } }
""",
    "activemq": """
[[destination]]
match = "#"
kind = "topic"
pools = ["memory"]
when_full = "block"

[destination.consumer]
window = 32766
top_up = 0.5
durable = { window = 100 }
browser = { window = 500 }
slow = { multiple = 2, action = "notify" }

[[destination]]
match = "#"
kind = "queue"
pools = ["memory"]
when_full = "block"

[destination.consumer]
window = 1000
top_up = 0.5
browser = { window = 500 }
slow = { multiple = 2, action = "notify" }

[[pool]]
name = "memory"
limit = "64MiB"

[[pool]]
name = "store"
limit = "100GiB"

[[pool]]
name = "temp"
limit = "10GiB"
""",
    "tibco-ems": """
[[destination]]
match = "#"
enforce = "with-consumers"
when_full = "block"
""",
    "llm": """
[[limiter]]
match = "llm.#"

[[limiter.limit]]
name = "requests"
rate = "500/min"

[[limiter.limit]]
name = "tokens"
rate = "200k/min"

[[limiter.limit]]
name = "in_flight"
at_once = 50

[limiter.per_key]
requests = "100/min"
tokens = "40k/min"
in_flight = 10
""",
    "http-api": """
[[limiter]]
match = "api.#"

[[limiter.limit]]
name = "requests"
rate = "100/s"
burst = 200

[[limiter.limit]]
name = "in_flight"
at_once = 100

[[limiter.limit]]
name = "bytes"
at_once = "64MiB"

[limiter.per_key]
requests = "10/s"
in_flight = 10
bytes = "8MiB"
""",
    "blazingmq": """
[[destination]]
match = "#"
consumer = { window = { messages = 1000, bytes = 33554432 } }
""",
}

SWITCHED_OFF: Final = frozenset({"tibco-ems"})
"""Presets whose system has flow control off until it is switched on."""
STORES: Final[dict[str, dict[str, dict[str, Any]]]] = {
    "artemis": {"paging": {"limit": "unlimited", "segment": "10MiB"}},
    "activemq": {"store": {"limit": "100GiB"}, "temp": {"limit": "10GiB"}},
}
"""Stores of the source systems, for documents that give them a URL: limits, and the size of a segment."""
_SPOOLING: Final = {("artemis", "paging"), ("activemq", "store")}
"""Stores of the systems that are for every destination. The temp store is for those that are named."""
_EVERY: Final = """
[[destination]]
match = "#"
kind = "{kind}"
when_full = "spool"
store = "{store}"
limit_references = "256MiB"
"""
"""These systems page and spool up to their stores' limits: some five million messages at a time."""


@functools.cache
def preset(name: str, compile_document: Callable[..., Policy], stores: frozenset[str] = frozenset()) -> Policy:
    """Return the rules of a source system, for these stores of a document; their origin is ``preset <name>``."""
    spooling = "".join(
        _EVERY.format(kind=kind, store=store)
        for store in sorted(stores)
        if (name, store) in _SPOOLING
        for kind in ("queue", "topic")
    )
    document, source = parse(PRESETS[name] + spooling, f"preset {name}")
    return compile_document(document, source, origin=lambda _path: source.name)
