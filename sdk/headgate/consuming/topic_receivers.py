"""A pattern's topics have receivers, to which their feeds deliver, and which keep an eye on these."""

from collections.abc import Iterable
from typing import Protocol

from headgate.consuming.feed import Feed
from headgate.consuming.inbox import Inbox, InboxSink
from headgate.consuming.round_robin import RoundRobin
from headgate.consuming.sink import Sink
from headgate.core.sharing import WindowUsers
from headgate.message import Message


class TopicReceivers(WindowUsers, Protocol):
    """Takes what the feeds of all topics fetch, and says how to keep an eye on these."""

    def sink(self, feed: Feed) -> Sink:
        """Return where the feed of one topic is to deliver."""

    async def find_queue(self) -> str | None:
        """Return a queue that the pattern matches, where it matches no topic; None for none."""

    def joining(self, names: Iterable[str]) -> None:
        """Refuse to be on the topics of these names too, by raising."""

    def joined(self, feed: Feed) -> None:
        """Note a feed that is open."""

    def left(self, feed: Feed) -> None:
        """Note a feed that is closed."""

    def looked(self) -> None:
        """Note that a step is done: what was heard of topics is attended to."""

    def stir(self) -> None:
        """Have those who wait look again: nothing comes any more, or there is a failure."""

    def closing(self) -> None:
        """Let go of those who wait: nothing comes any more."""


class QueueSearch(Protocol):
    """A pattern's feeds are asked here for a queue that it matches."""

    async def find_queue(self) -> str | None:
        """Return a queue that the pattern matches, or None."""


class InboxReceivers:
    """One consumer's inbox receives from every topic, each of which has a lane there."""

    def __init__(self, inbox: Inbox, rotation: RoundRobin[Message], topics: QueueSearch) -> None:
        self._topics = topics
        self._inbox = inbox
        self._rotation = rotation
        self.room, self.stir, self.closing = inbox.room, inbox.stir, inbox.close

    @property
    def asked(self) -> int:
        """How many wait for a message."""
        return self._inbox.asked

    def sink(self, feed: Feed) -> InboxSink:
        """Return a lane for the feed of one topic."""
        return InboxSink(self._inbox, self._rotation.lane(), feed)

    async def find_queue(self) -> str | None:
        """Return a queue that the pattern matches, if there is one."""
        return await self._topics.find_queue()

    def joining(self, names: Iterable[str]) -> None:
        """Let it be on as many topics as there are."""

    def joined(self, feed: Feed) -> None:
        """Do nothing more for a new topic: its feed fetches when it is its turn."""

    def left(self, feed: Feed) -> None:
        """Do nothing more: its lane is empty."""

    def looked(self) -> None:
        """Do nothing: those who wait hear of messages only."""
