"""A node makes reply queues and topics for one link each, and removes them with it: replies to a client are sent there.

Anyone who knows its name may send there, so it cannot be guessed, and only a manager of the namespace sees it in a
list.
"""

import secrets
from typing import Final

from headgate.namespace.topics import UNLISTED

REPLY: Final = UNLISTED
"""How the names begin of what is made for one link; the node's name, and what nobody guesses, follow."""


def reply_queue(node: str) -> str:
    """Return the name of a new queue that a node makes for one link."""
    return f"{REPLY}{node}~{secrets.token_hex(16)}"


def is_reply_queue(name: str) -> bool:
    """Return whether a name is one that nodes give to the queues of single links."""
    return name.startswith(REPLY)


def owner_of(name: str) -> str | None:
    """Return the node that made a reply queue; None for any other name."""
    return name.removeprefix(REPLY).rpartition("~")[0] if is_reply_queue(name) else None
