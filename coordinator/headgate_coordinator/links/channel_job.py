"""A node sends one topic of a channel for as long as it has the lease."""

import contextlib

from headgate.client import Client
from headgate.core.links.channel import Feed, feed_of
from headgate.core.links.trouble import Trouble
from headgate.redis.keys import Address, link_id
from headgate_coordinator.links.channel_worker import Feeder, Progress
from headgate_coordinator.links.job import Job, LinkTotals
from headgate_coordinator.links.multicast_socket import Multicaster
from headgate_coordinator.links.removal import end_source
from headgate_coordinator.links.spooled_reads import SpooledReads


class ChannelJob(Job[Feed]):
    """A channel job works on one topic of a channel. The topic is made as the policy says.

    Attributes:
        progress: how far it is.
    """

    def __init__(self, client: Client, feed: Feed, fence: int) -> None:
        super().__init__(feed, fence)
        self.progress = Progress()
        self._client = client
        self._feeder: Feeder | None = None

    @property
    def trouble(self) -> Trouble | None:
        """Why nothing is sent, None while it is."""
        return self._trouble or self.progress.trouble

    @property
    def carried(self) -> LinkTotals:
        """Messages and bytes sent so far."""
        sent = self.progress
        return LinkTotals(sent.committed, sent.committed_bytes, sent.packets, sent.backlog)

    async def _work(self) -> int:
        parts, namespace = self._client.parts, self._client.namespace
        await parts.registry.ensure(Address.of(namespace, self.link.source), ("topic",), recover=False)
        with contextlib.closing(Multicaster(self.link.channel)) as socket:
            self._feeder = feeder = Feeder(
                parts.store, parts.wake_ups, namespace, self.link, SpooledReads(parts.registry.spooling).whole, socket,
                self.progress, fence=self.fence,
            )  # fmt: skip
            self._trouble = None
            await feeder.run()
        return self.progress.later

    async def _leave(self) -> None:
        if self._feeder is not None:
            await self._feeder.leave()  # else readers drop what was sent, when it is sent again


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
