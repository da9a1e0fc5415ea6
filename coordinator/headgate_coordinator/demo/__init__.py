"""The command `headgate demo` runs here: processes, two nodes, real messages, a limit, two `kill -9`, and a verdict."""

from typing import Final

QUEUE: Final = "demo"
"""The destination."""
TTL: Final = 3.0
"""Seconds until what a dead session held is reclaimed; short, so that it is seen within the demo."""
PRODUCERS: Final = {"fast": None, "medium": 150.0, "slow": 25.0}
"""Messages a second that each may send with the SDK; None: as fast as it goes."""
VICTIM: Final = "medium"
"""The producer that is killed. Held back by its own rate, it often has credit in hand."""
CONSUMERS: Final = {"slow": 0.008, "fast": 0.001}
"""Seconds of work on each message. The slow one starts alone, so that the limit is reached early on."""
NODES: Final = ("a", "b")
NODE_VICTIM: Final = "a"
"""The node that is killed."""
AMQP_PRODUCERS: Final = {"amqp-a": None, "amqp-b": 60.0}
"""The same for clients of the nodes; each begins at the node that its name ends with."""
AMQP_CONSUMERS: Final = {"amqp-a": 0.004}
