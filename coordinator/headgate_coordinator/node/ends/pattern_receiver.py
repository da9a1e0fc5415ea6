"""A pattern's receiver gets messages from every topic that the pattern matches, under one credit and one window."""

from collections.abc import Iterable
from functools import partial
from typing import Final

from headgate.amqp.link import Terminus
from headgate.client import Client
from headgate.consuming.feed import Feed
from headgate.consuming.round_robin import RoundRobin
from headgate.consuming.wildcard import PatternFeeds
from headgate.core.addresses.pattern import with_parent
from headgate.message import Holder, Message
from headgate.namespace.topics import read_pattern
from headgate.session.opening import ConsumerOpener, ConsumerRequest
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.conditions import TooManyTopics
from headgate_coordinator.node.ends.receiver import LinkReceiver
from headgate_coordinator.node.ends.sinks import ClientSink, MessageSource

MOST_TOPICS: Final = 1024
"""Topics that the receivers by pattern of one connection are on, each counted for itself."""


def refusal_by_pattern(pattern: str, source: Terminus) -> str | None:
    """Return why a client does not get what it asks for by pattern; None where it gets it.

    Raises:
        InvalidName: it is no pattern.
    """
    read_pattern(pattern)
    words = set(source.capabilities)
    if "shared" in words:
        hint = "a shared subscription belongs to one topic"
    elif "queue" in words:
        hint = "receive from queues by name, one on each link"
    elif source.browse and not source.durable and "topic" not in words:
        hint = "browse a destination by its name, one on each link"
    else:
        return None
    return f"{pattern!r} is a pattern, which subscribes to topics; {hint}"


def as_meant(client: Client, address: str) -> str:
    """Return a pattern's address under the policy in force, for which the user needs a grant."""
    pattern, mark, options = address.partition("?")
    wider = client.parts.registry.policies.policy.include_parent
    return f"{with_parent(pattern)}{mark}{options}" if wider else address


class TopicSink(ClientSink):
    """A topic's sink takes what the feed of one topic fetches, which it does when it is its turn."""

    def __init__(self, receivers: "PatternReceiver", feed: Feed) -> None:
        super().__init__(receivers.receiver, feed, receivers.rotation.lane())
        self._receivers = receivers

    def room(self, most: int) -> int:
        """Return ``most``: the window that all topics share keeps to the link's credit."""
        return most

    def delivered(self, *, found_all: bool) -> None:
        """Hand on messages, and note the topics still to look at for credit that is being drained."""
        receivers, feed = self._receivers, self._feed
        self._receiver.pump()
        if found_all:
            receivers.unseen.discard(feed)
        if feed.recalls:
            receivers.recalling.add(feed)
        receivers.looked()

    def recalled(self) -> None:
        """Hand on what came from a store."""
        receivers = self._receivers
        self._receiver.pump()
        if not self._feed.recalls:
            receivers.recalling.discard(self._feed)
            receivers.topics.shared.freed()
            receivers.looked()

    def take_back(self, _holder: Holder, most: int) -> list[Message]:
        """Take out up to ``most`` messages that were not sent, the newest first; the feed then rests."""
        back = [self._buffer.pop() for _ in range(min(most, len(self._buffer)))]
        if back:
            self._receivers.resting.add(self._feed)
        return back

    def expired(self) -> None:
        """Forget what others were given."""
        self.clear()
        self._receiver.expired(self._feed.settlements)
        self._receivers.looked()


class PatternReceiver:
    """A pattern's receiver is on all topics of the pattern, and their feeds share the link's credit.

    Attributes:
        receiver: the link's end.
        topics: the feeds.
        rotation: messages that are here, in a lane a topic.
        unseen: the feeds that may still have something since the client last wanted its credit used up.
        recalling: the feeds that wait for payloads.
        resting: the feeds that gave back what could not be handed on.
        reach: topics that it is on, or about to be.
    """

    def __init__(self, receiver: LinkReceiver, topics: PatternFeeds) -> None:
        self.receiver, self.topics = receiver, topics
        self.address, self.subscription, self.durable = topics.address, topics.subscription, topics.durable
        self.rotation: RoundRobin[Message] = RoundRobin()
        self.unseen: set[Feed] = set()
        self.recalling: set[Feed] = set()
        self.resting: set[Feed] = set()
        self.reach = 0
        self._resumed = receiver.started
        receiver.buffer, receiver.supply = self.rotation, self

    @property
    def asked(self) -> int:
        """For how many messages the link has credit."""
        return self.receiver.asked

    @property
    def recalls(self) -> int:
        """Messages that are here but for their payloads, which a spool store has."""
        return sum(feed.recalls for feed in self.recalling)

    @property
    def seeks(self) -> bool:
        """Whether a look may bring something: there are topics, and there is room for what they have."""
        topics, shared = self.topics, self.topics.shared
        return bool(topics.feeds or topics.created) and (bool(shared.under_way) or shared.room(0, 0)[0] > 0)

    def room(self, most: int) -> int:
        """Return how many of ``most`` messages there is credit for, beside those that are here."""
        return min(most, self.receiver.credit - len(self.rotation) - self.recalls)

    def sink(self, feed: Feed) -> TopicSink:
        """Return where the feed of one topic is to deliver."""
        return TopicSink(self, feed)

    async def find_queue(self) -> str | None:
        """Return a queue that the pattern matches, but for those that are made for links."""
        async with self.receiver.connection.node.searching:
            return await self.topics.find_queue(hidden=is_reply_queue)

    def joining(self, names: Iterable[str]) -> None:
        """Count the topics that are to be joined.

        Raises:
            TooManyTopics: its connection may not be on that many.
        """
        self.reach = len(self.topics.feeds.keys() | set(names))
        supplies = (getattr(end, "supply", None) for end in self.receiver.connection.ends.values())
        others = sum(each.reach for each in supplies if isinstance(each, PatternReceiver) and each is not self)
        if others + self.reach > MOST_TOPICS:
            raise TooManyTopics(
                f"{self.address.name!r} matches {self.reach} topics, and other patterns of this connection {others}; "
                f"together at most {MOST_TOPICS}: use narrower patterns, or another connection"
            )

    def joined(self, feed: Feed) -> None:
        """Have a new topic looked at, if the client wants its credit used up; credit may have come meanwhile."""
        if self.receiver.drains:
            self.unseen.add(feed)
        feed.resume()

    def left(self, feed: Feed) -> None:
        """Forget a topic that is gone."""
        self.receiver.expired(feed.settlements)
        for feeds in (self.unseen, self.recalling, self.resting):
            feeds.discard(feed)
        self.reach = len(self.topics.feeds)

    def looked(self) -> None:
        """Answer a client's drain once all topics were looked at or no room is left."""
        topics = self.topics
        if not self.receiver.drains or topics.shared.under_way or topics.created or self.rotation:
            return
        if not self.unseen or not topics.shared.room(0, 0)[0]:
            self.receiver.exhausted()

    def stir(self) -> None:
        """End the link if nothing can come any more."""
        if self.topics.failure is not None:
            self.receiver.failed(self.topics.failure)

    def closing(self) -> None:
        """Do nothing: nobody waits here."""

    def resume(self) -> None:
        """Let those fetch again that gave back what could not be handed on, and the first in line."""
        if self.receiver.credit and not self._resumed:
            self._resumed = True
            self.resting.update(self.topics.feeds.values())
        while self.resting:
            self.resting.pop().resume()
        self.topics.shared.freed()

    def look(self) -> None:
        """Have every topic looked at, and say when that is done."""
        self.unseen = set(self.topics.feeds.values())
        for feed in self.unseen:
            feed.look()

    async def close(self) -> None:
        """Give back what the client was not sent, and leave the topics."""
        await self.topics.close()


async def by_pattern(receiver: LinkReceiver, consumers: ConsumerOpener, request: ConsumerRequest) -> MessageSource:
    """Open the feeds of all topics that a pattern matches.

    Raises:
        HeadgateError: it cannot receive from there.
    """
    await consumers.topics(request, partial(PatternReceiver, receiver))
    if receiver.supply is None:
        raise AssertionError("feeds were opened for nobody")
    return receiver.supply
