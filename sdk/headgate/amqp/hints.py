"""Wake-up hints that come from a node, for a whole client.

Nothing depends on them but speed: whoever waits also looks again by itself, at least once a second.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Final

from headgate.errors import HeadgateError
from headgate.redis.backend import ChannelListeners, Listener, Words

CHANNELS: Final = 64
"""Channels in one call: one that may do little is not to be longer than a node takes of such a user."""
CONFIRM_WITHIN: Final = 0.5
"""Seconds for which a subscription waits to be confirmed: a hint before that is lost, and costs its receiver a poll."""


def in_calls(channels: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield channels in as many lists as it takes for each to fit into a call."""
    for at in range(0, len(channels), CHANNELS):
        yield channels[at : at + CHANNELS]


class NodeWakeUps:
    """Subscriptions to channels are kept here, and a new connection gets all of them.

    ``ask`` makes a call within that many seconds.
    """

    def __init__(self, ask: Callable[..., Awaitable[Any]]) -> None:
        self._ask = ask
        self._listeners = ChannelListeners()

    @property
    def channels(self) -> list[str]:
        """The channels that are listened to."""
        return list(self._listeners)

    async def subscribe(self, channels: tuple[str, ...], listener: Listener, words: Words = None) -> None:
        """Call ``listener`` with the hints on these channels that it cares for; without a node, from its return on."""
        if fresh := self._listeners.add(channels, listener, words):
            with contextlib.suppress(HeadgateError):
                for some in in_calls(fresh):
                    await self._ask("hear", some, within=CONFIRM_WITHIN)

    async def unsubscribe(self, channels: tuple[str, ...], listener: Listener) -> None:
        """Stop calling ``listener``."""
        if gone := self._listeners.drop(channels, listener):
            with contextlib.suppress(HeadgateError):
                for some in in_calls(gone):
                    await self._ask("unhear", some, within=CONFIRM_WITHIN)

    @staticmethod
    def sure(channels: tuple[str, ...]) -> bool:  # noqa: ARG004 -- as the protocol has it
        """Return False: what a node cannot tell is not counted on."""
        return False

    def tell(self, channel: str, words: list[str]) -> None:
        """Have those who listen to a channel hear a hint."""
        for listener, cared in tuple(self._listeners.get(channel, {}).items()):
            if cared is None or words[0] in cared:
                listener(words)

    async def close(self) -> None:
        """Stop listening."""
        self._listeners.clear()
