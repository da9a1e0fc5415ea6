"""A link's selector takes little of a node's time however it and the messages are written."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from headgate.amqp.link import RESOURCE_LIMIT, Terminus
from headgate.core.selector.messages import head_size, matcher
from headgate.core.selector.parser import Selector
from headgate.errors import InvalidValue

MOST_READ: Final = 16 << 10
"""Bytes before a message's body that are read for a selector; a message with more is for every receiver."""
LONGEST: Final = 1024
"""Characters of a client's selector; a policy's may have more."""
MOST_TIME: Final = 0.05
"""Seconds of processor time for one message, above which the link ends: everybody at the node waits for it."""


def refusal_by_filter(source: Terminus) -> str | None:
    """Return why a client does not get what it asks for by its filters; None where it gets it, as far as is known."""
    if source.filters:
        return f"the only filters are selectors, not {source.filters[0]!r}; receive all messages, and select there"
    words = set(source.capabilities)
    if source.selector and (words & {"queue", "temporary-queue"} or looks_only(source)):
        return "selectors are for subscriptions of topics; receive all messages of a queue, and select there"
    return None


def looks_only(source: Terminus) -> bool:
    """Return whether a client wants to see what is stored, and no subscription."""
    return source.browse and not source.durable and not {"topic", "shared"} & set(source.capabilities)


class LinkSelector:
    """A link's selector decides which messages are for the link.

    Args:
        text: the selector, as the client wrote it.
        fail: ends the link with an AMQP error.

    Raises:
        InvalidValue: it is no selector, or too long.
    """

    def __init__(self, text: str, fail: Callable[[str, str], None]) -> None:
        if len(text) > LONGEST:
            raise InvalidValue(f"selector: it has {len(text)} characters; a link's may have {LONGEST}")
        self._matches = matcher(Selector.parse(text))
        self._fail = fail
        self._over = False

    def __call__(self, stored: bytes) -> bool:
        """Return whether a stored message is for the link.

        Raises:
            MessageFormatError: it cannot be read.
        """
        if self._over or (len(stored) > MOST_READ and head_size(stored) > MOST_READ):
            return True
        began = time.thread_time()
        try:
            return self._matches(stored)
        finally:
            if time.thread_time() - began > MOST_TIME:
                self._over = True  # the rest of what has just come goes back with the link
                reason = f"the selector took more than {MOST_TIME * 1000:g} ms for one message; use a simpler one"
                asyncio.get_running_loop().call_soon(self._fail, RESOURCE_LIMIT, reason)
