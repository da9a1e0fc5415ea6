"""One topic of a channel that this node sends, for as long as it has the lease."""

import asyncio
import contextlib
import logging
from typing import Final

from headgate._util.reconnect import AWAY
from headgate._util.tasks import stop
from headgate.client import Client
from headgate.core.channel import Feed, feed_of
from headgate.errors import HeadgateError
from headgate.redis.keys import Address, link_id
from headgate_coordinator.links.channel_worker import Feeder, Progress
from headgate_coordinator.links.multicast_socket import Multicaster
from headgate_coordinator.links.removal import end_source
from headgate_coordinator.links.spooled_reads import Entries

_log = logging.getLogger("headgate.explain.links")
AGAIN: Final = 0.5
"""Seconds between two tries."""


class ChannelDuty:
    """The work on one topic of a channel under one lease. The topic is made as the policy says.

    Args:
        client: connected.
        feed: what the policy says.
        fence: number of the lease.

    Attributes:
        done: set when a later lease was found to be in force: nothing more will come of this one.
    """

    def __init__(self, client: Client, feed: Feed, fence: int) -> None:
        self.link, self.fence = feed, fence
        self.done = False
        self._client = client
        self.forwarder = Progress()
        """How far it is."""
        self._feeder: Feeder | None = None
        self._trouble: str | None = "it begins"
        self._task = asyncio.create_task(self._run(), name=f"headgate channel {feed.link}")

    @property
    def trouble(self) -> str | None:
        """Why nothing is sent, None while it is."""
        return self._trouble or self.forwarder.trouble

    @property
    def later(self) -> int:
        """The number of the lease that was found to be in force, 0 where this one is."""
        return self.forwarder.later

    async def stop(self, *, lost: bool = False) -> None:
        """Stop at once. What was read and not sent stays with the link; what was sent leaves the topic."""
        await stop(self._task)
        if self._feeder is not None and not lost and not self.done:
            with contextlib.suppress(HeadgateError):  # else readers drop it, when it is sent again
                await self._feeder.leave()

    async def _run(self) -> None:
        while not self.done:
            try:
                await self._work()
            except AWAY as error:
                self._trouble = str(error)
            except (HeadgateError, OSError) as error:
                where = f"cannot send to {self.link.where}: " if isinstance(error, OSError) else ""
                if self._trouble != f"{where}{error}":
                    _log.warning("channel %s (%s) does not work: %s%s", self.link.name, self.link.link, where, error)
                self._trouble = f"{where}{error}"
            if not self.done:
                await asyncio.sleep(AGAIN)

    async def _work(self) -> None:
        parts, namespace = self._client.parts, self._client.namespace
        await parts.registry.ensure(Address.of(namespace, self.link.source), ("topic",), recover=False)
        with contextlib.closing(Multicaster(self.link.channel)) as socket:
            self._feeder = feeder = Feeder(
                parts.store, parts.wake_ups, namespace, self.link, Entries(parts.registry.spooling).whole, socket,
                self.forwarder, fence=self.fence,
            )  # fmt: skip
            self._trouble = None
            await feeder.run()
        self.done = True


async def end_feed(client: Client, link: str, *, fence: int) -> None:
    """End a link to a channel that the policy does not name any more; its subscription goes, with what it had not sent.

    The bucket of the channel's rate goes with the last of its topics. May be repeated; what is gone does not matter.

    Args:
        client: connected.
        link: the name of its lease.
        fence: above the number of any lease that a worker of it had.

    Raises:
        CoordinatorUnavailable: no answer; call again.
    """
    topic, channel = feed_of(link) or ("", "")
    await end_source(client, Address.of(client.namespace, topic), link_id(link), fence)
    if all(one.name != channel for one in (await client.policy()).channels):
        await client.store.remove(Address.of_channel(client.namespace, channel), everything=True)
