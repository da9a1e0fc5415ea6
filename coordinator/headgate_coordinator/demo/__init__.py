"""`headgate demo`: several processes, real messages, a limit, a `kill -9`, and a verdict from what they wrote down."""

from typing import Final

QUEUE: Final = "demo"
"""The destination."""
TTL: Final = 3.0
"""Seconds until what a dead session held is reclaimed; short, so that it is seen within the demo."""
PRODUCERS: Final = {"fast": None, "medium": 150.0, "slow": 25.0}
"""Messages a second that each may send; None: as fast as it goes."""
VICTIM: Final = "medium"
"""The producer that is killed. Held back by its own rate, it often has credit in hand."""
CONSUMERS: Final = {"slow": 0.008, "fast": 0.001}
"""Seconds of work on each message. The slow one starts alone, so that the limit is reached early on."""
