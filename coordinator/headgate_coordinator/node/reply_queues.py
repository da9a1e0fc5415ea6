"""Queues that a node makes for one link each, and removes with it: where replies to a client are sent."""

from typing import Final

REPLY: Final = "reply~"
"""How the names of queues begin that are made for one link; the node's name, and letters, follow after ``~``."""


def reply_queue(node: str, letters: str) -> str:
    """Return the name of a queue that a node makes for one link."""
    return f"{REPLY}{node}~{letters}"


def owner_of(name: str) -> str | None:
    """Return the node that made a reply queue; None for any other name."""
    return name.removeprefix(REPLY).rpartition("~")[0] if name.startswith(REPLY) else None
