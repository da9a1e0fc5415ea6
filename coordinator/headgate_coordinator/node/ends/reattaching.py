"""A client may reattach to a durable subscription without saying its topic, to close it, as JMS does."""

import asyncio
import contextlib
from typing import Final

from headgate.amqp.handler import Incoming
from headgate.amqp.link import NOT_FOUND, Link, Terminus
from headgate.core.names import encode_name
from headgate.errors import HeadgateError, PolicyError
from headgate.redis.keys import PARTS, Address
from headgate_coordinator.node.ends.end import LinkEnd
from headgate_coordinator.node.host import Connection
from headgate_coordinator.security import Action

_SUBSCRIPTIONS: Final = PARTS.index("subscriptions") + 1
AT_ONCE: Final = 32
"""Topics that are looked at at a time."""
TRIES: Final = 60
"""Looks, 0.05 s apart, for consumers of the subscription to be gone: they may be of any node, and give no hint."""


class SubscriptionCloser(LinkEnd):
    """The closer finds the patterns and topics that have the subscription; a close of the link ends it.

    It delivers nothing.
    """

    def __init__(self, connection: Connection, link: Link, subscription: str) -> None:
        super().__init__(connection, link, "")
        self._subscription = subscription
        self._topics: list[str] | None = None

    async def open(self) -> None:
        """Answer the client's attach with the topic, or say that there is none.

        Raises:
            HeadgateError: Redis does not answer.
        """
        self._topics = await self._search()
        if not self._topics:
            self.fail(NOT_FOUND, f"there is no durable subscription {self.link.name!r} of this client")
        elif self.link.alive:
            self.destination = self._topics[0]
            self.link.accept(Terminus(self.destination, durable=True, capabilities=("topic",)), self.link.target)
            self.connection.flush_soon()

    async def _search(self) -> list[str]:
        node, access, topics = self.connection.node, self.connection.access, list[str]()
        async with node.searching:
            entries = await node.client.parts.registry.index.entries(node.client.namespace)
            patterns = [
                entry.pattern.text for entry in entries if entry.durable and entry.subscription == self._subscription
            ]
            topics += [pattern for pattern in patterns if access.may(Action.CONSUME, pattern)]
            names = [name for name in await node.client.destinations() if access.may(Action.CONSUME, name)]
            for at in range(0, len(names), AT_ONCE):
                found = await asyncio.gather(*map(self._has, names[at : at + AT_ONCE]))
                topics += [name for name, has in zip(names[at:], found, strict=False) if has]
        return topics

    async def _has(self, topic: str) -> bool:
        client = self.connection.node.client
        key = Address.of(client.namespace, topic).shared[_SUBSCRIPTIONS]
        name = encode_name(self._subscription, "subscription")
        return bool(await client.store.server.command(key, "HEXISTS", key, name))

    def received(self, messages: list[Incoming]) -> None:
        """Nothing comes in over a link that goes out."""

    def gone(self, *, lost: bool) -> None:
        """End the subscription, if the client closed the link; it hears of it when that is done."""
        del lost
        if self.link.closed:
            self.link.linger()
            self.connection.node.spawn(self._remove())

    async def _remove(self) -> None:
        with contextlib.suppress(HeadgateError):
            for topic in await self._search() if self._topics is None else self._topics:
                if self.connection.access.may(Action.CONSUME, topic):  # still
                    await unsubscribe(self.connection, topic, self._subscription)
        self.link.leave()
        self.connection.flush_soon()


async def unsubscribe(connection: Connection, topic: str, subscription: str) -> None:
    """Remove a subscription, once its last consumer is gone.

    Raises:
        PolicyError: it has others.
        CoordinatorUnavailable: Redis does not answer.
    """
    for left in reversed(range(TRIES)):
        try:
            await connection.node.client.unsubscribe(topic, subscription)
        except PolicyError:
            if not left:
                raise
        else:
            return
        await asyncio.sleep(0.05)
