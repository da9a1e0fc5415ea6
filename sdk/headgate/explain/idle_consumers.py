"""An idle consumer has nothing while others of its subscription hold messages. No I/O and no clock."""

from typing import Final

from headgate.explain.destination_facts import DestinationFacts
from headgate.explain.views import count

NAMED: Final = 3
"""How many sessions or consumers one sentence names."""
ELSEWHERE: Final = (
    "those that nobody has begun go to who waits within 2 s, but for what was sent to AMQP receivers; "
    "settle the others, or give such consumers a smaller window, or their links less credit"
)
"""Advice for a consumer that has no messages while others hold some."""


def beside(facts: DestinationFacts, subscription: str) -> str:
    """Return which consumers of a subscription hold most; empty where nobody holds any."""
    holders = [one for one in facts.consumers if one.subscription == subscription and one.messages]
    most = sorted(holders, key=lambda one: -one.messages)[:NAMED]
    return ", ".join(f"{one.consumer} {count(one.messages)} of {one.window}" for one in most)
