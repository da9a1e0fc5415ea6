"""Settings are checked here that exclude one another: a destination's levels have an order, and a kind lacks some."""

from collections.abc import Mapping
from typing import Final

from headgate.errors import PolicyError

NOT_OF: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "queue": (
        ("durable_window", "subscription_windows"), "belongs to a topic: a queue has no subscriptions; leave it out"
    ),
    "topic": (
        ("fair_by", "fair_weights", "max_overtaken"),
        "belongs to a queue: subscriptions of a topic share nothing; leave it out",
    ),
}  # fmt: skip
"""Settings that destinations with messages of that kind do not have, and why."""
_LEVELS: Final = (
    ("limit_bytes", "hard_bytes", "hard_limit {1} is below limit {0}", ("hard_limit", "limit")),
    ("retry_delay_ms", "retry_max_ms", "retry_max {1} ms is below retry_delay {0} ms", ("retry_max", "retry_delay")),
    ("resume_bytes", "limit_bytes", "resume_at {0} is above limit {1}", ("resume_at", "limit")),
    (
        "resume_messages",
        "limit_messages",
        "resume_at_messages {0} is above limit_messages {1}",
        ("resume_at_messages", "limit_messages"),
    ),
)
"""Fields of which the second may not be less than the first, and what is wrong else, about which settings."""


def check_levels(fields: Mapping[str, str], given: Mapping[str, str]) -> None:
    """See that a destination's levels are in order, as far as ``given`` is about them.

    Raises:
        PolicyError: the hard limit is below the limit, or a destination that was full would resume above it.
    """
    for low, high, text, names in _LEVELS:
        a, b = fields.get(low, ""), fields.get(high, "")
        if {low, high} & set(given) and b.isdigit() and (int(a) > int(b) if a.isdigit() else a == "unlimited"):
            raise PolicyError(text.format(a, b), settings=names)
