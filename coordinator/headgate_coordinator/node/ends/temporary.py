"""A node makes a temporary destination for one link, at either end of it; JMS has temporary queues and topics."""

import asyncio
import contextlib

from headgate.amqp.link import Terminus
from headgate.errors import HeadgateError
from headgate.redis.keys import Address
from headgate_coordinator.fleet.reply_queues import reply_queue
from headgate_coordinator.node.conditions import TooManyQueues
from headgate_coordinator.node.ends.sender import LinkSender
from headgate_coordinator.node.host import Connection
from headgate_coordinator.security.access import REPLY_QUEUES


def claim(connection: Connection) -> str:
    """Return the name of a new queue for one of a connection's links.

    Raises:
        TooManyQueues: it has as many as it may.
    """
    replies = connection.access.replies
    if len(replies) >= REPLY_QUEUES:
        connection.node.counters.refused("reply-queues")
        raise TooManyQueues(f"this connection has {REPLY_QUEUES} queues that were made for its links; close one first")
    replies[name := reply_queue(connection.node.id)] = None
    return name


def kind_of(terminus: Terminus) -> str:
    """Return what a client wants for its link: a queue, unless it asks for a topic."""
    return "queue" if {"topic", "temporary-topic"}.isdisjoint(terminus.capabilities) else "topic"


async def make(connection: Connection, name: str, kind: str) -> None:
    """Make a queue or topic as the policy says, but never without a limit: strangers who know its name may fill it.

    Raises:
        HeadgateError: it cannot be made.
    """
    node = connection.node
    bound = {"limit_bytes": str(node.options.limits.message)}
    address = Address.of(node.client.namespace, name)
    await node.client.parts.registry.ensure(address, (kind,), recover=False, otherwise=bound)


async def remove(connection: Connection, name: str) -> None:
    """Remove a queue with all that it holds; where Redis does not answer, the sweep of reply queues does it."""
    try:
        with contextlib.suppress(HeadgateError):
            await connection.node.client.remove(name)
    finally:
        connection.access.replies.pop(name, None)


class TemporarySender(LinkSender):
    """A temporary sender makes a queue or a topic for its link, where the client may send; it goes with the link."""

    async def open(self) -> None:
        """Make the queue and answer the client's attach with its name.

        Raises:
            HeadgateError: it cannot be made.
        """
        await make(self.connection, self.destination, self._kind)
        await super().open()

    async def finish(self) -> None:
        """Let what was begun come to its end: the queue is made whole before it is removed."""
        if self._task:
            await asyncio.wait((self._task,))

    def gone(self, *, lost: bool) -> None:
        """Remove the queue: whatever it holds, its owner has left."""
        super().gone(lost=lost)
        self.connection.node.spawn(self._close())

    async def _close(self) -> None:
        await self.finish()
        await remove(self.connection, self.destination)
