"""A receiving link has sinks and a source: one feed, or one for each slice of its destination."""

from collections import deque
from functools import partial
from typing import Protocol

from headgate.consuming.feed import Feed
from headgate.consuming.inbox import take_own
from headgate.consuming.slices import Slices
from headgate.message import Holder, Message
from headgate.redis.keys import Address
from headgate.session.opening import ConsumerOpener, ConsumerRequest


class Backlog(list[Message]):
    """A backlog holds messages on their way to a client, at most one fetch: an empty deque takes 0.7 KiB."""

    __slots__ = ()

    def popleft(self) -> Message:
        """Take the oldest out."""
        return self.pop(0)


Buffer = Backlog | deque[Message]


class MessageSource(Protocol):
    """A message source fetches for a link: it is one destination's feed, or those of all topics of a pattern."""

    address: Address
    subscription: str
    durable: bool

    @property
    def recalls(self) -> int:
        """Messages that are here but for their payloads, which a spool store has."""

    @property
    def seeks(self) -> bool:
        """Whether a look may bring something, by the window."""

    def look(self) -> None:
        """Fetch now."""

    def resume(self) -> None:
        """Look what is due: there is more credit, or what was handed back may be fetched again."""

    async def close(self) -> None:
        """Give back what the client was not sent."""


class ReceivingLink(Protocol):
    """A receiving link is the end of a client's link, as far as its sinks need it."""

    buffer: Buffer
    supply: MessageSource | None
    credit: int
    asked: int
    handed: int

    @property
    def started(self) -> bool:
        """Whether its client ever gave credit."""

    @property
    def drains(self) -> bool:
        """Whether its client wants to hear when nothing is left."""

    def pump(self) -> None:
        """Send what is here."""

    def exhausted(self) -> None:
        """Give the credit back to a client that wants it used up."""

    def expired(self, holder: Holder) -> None:
        """Forget what others were given meanwhile."""

    def failed(self, error: BaseException) -> None:
        """End the link."""


class ClientSink:
    """A client's sink hands messages on to its link, whose credit says how much is wanted."""

    __slots__ = ("_buffer", "_feed", "_receiver", "clear", "deliver")

    resumes = False

    def __init__(self, receiver: ReceivingLink, feed: Feed, buffer: Buffer) -> None:
        self._receiver, self._feed, self._buffer = receiver, feed, buffer
        self.deliver, self.clear = buffer.append, buffer.clear

    @property
    def asked(self) -> int:
        """For how many messages the link has credit."""
        return self._receiver.asked

    @property
    def waits(self) -> int:
        """One, if the client has credit and nothing in hand: what it does with what it has, nobody here knows."""
        return 1 if self._receiver.asked and not self._feed.held_messages else 0

    @property
    def received(self) -> int:
        """How many messages went to the client."""
        return self._receiver.handed

    @property
    def started(self) -> bool:
        """Whether the client ever gave credit: a receiver that asks for nothing is not started."""
        return self._receiver.started

    def stir(self) -> None:
        """Do nothing: nobody waits here, and the client hears of what lasts."""

    def close(self) -> None:
        """Do nothing: the client hears of the end by :attr:`Feed.on_end`, or the link goes on without this feed."""


class LinkSink(ClientSink):
    """A link's sink is that of its only feed: it fetches within the link's credit, and delivers at once."""

    __slots__ = ()

    def __init__(self, receiver: ReceivingLink, feed: Feed) -> None:
        super().__init__(receiver, feed, receiver.buffer)
        receiver.supply = feed
        feed.on_end = self._ended

    def room(self, most: int) -> int:
        """Return how many of ``most`` messages there is credit for, beside those that are here."""
        return min(most, self._receiver.credit - len(self._buffer) - self._feed.recalls)

    def delivered(self, *, found_all: bool) -> None:
        """Hand on what came, and give back credit that is to be used up if nothing is left."""
        self._receiver.pump()
        if found_all:
            self._receiver.exhausted()

    def recalled(self) -> None:
        """Hand on messages from a store, and look for more if the client drains its credit."""
        self._receiver.pump()
        if not self._feed.recalls and self._receiver.drains:
            self._feed.look()

    def take_back(self, _holder: Holder, most: int) -> list[Message]:
        """Take out up to ``most`` messages that were not sent, the newest first."""
        return [self._buffer.pop() for _ in range(min(most, len(self._buffer)))]

    def expired(self) -> None:
        """Forget what others were given."""
        self.clear()
        self._receiver.expired(self._feed.settlements)

    def _ended(self, _feed: Feed, error: BaseException) -> None:
        self._receiver.failed(error)


class SliceSink(LinkSink):
    """A slice's sink is that of the feed of one of a link's slices: all of them fill one buffer."""

    __slots__ = ("_unseen",)

    def __init__(self, receiver: ReceivingLink, unseen: list[Feed], feed: Feed) -> None:
        supply = receiver.supply
        super().__init__(receiver, feed)
        receiver.supply = supply or feed
        self.clear = self._clear
        self._unseen = unseen

    def delivered(self, *, found_all: bool) -> None:
        """Hand on messages, and answer a drain if nothing is left at any slice."""
        self._receiver.pump()
        if found_all:
            if self._feed in self._unseen:
                self._unseen.remove(self._feed)
            if not self._unseen:
                self._receiver.exhausted()

    def take_back(self, holder: Holder, most: int) -> list[Message]:
        """Take out up to ``most`` messages of the slice that were not sent, the newest first."""
        return take_own(self._buffer, holder, most)

    def _clear(self) -> None:
        take_own(self._buffer, self._feed.settlements, len(self._buffer))


class LinkSlices:
    """A link's slices are the source of its messages: the feeds of all slices of a destination; most have one."""

    __slots__ = ("_receiver", "_slices", "_unseen", "address", "durable", "subscription")

    def __init__(self, receiver: ReceivingLink, unseen: list[Feed], slices: Slices) -> None:
        self.address, self.subscription, self.durable = slices.address, slices.subscription, slices.durable
        self._receiver, self._unseen, self._slices = receiver, unseen, slices

    @property
    def recalls(self) -> int:
        """Messages that are here but for their payloads, which a spool store has."""
        return sum(feed.recalls for feed in self._slices.feeds)

    @property
    def seeks(self) -> bool:
        """Whether a look may bring something, by the window."""
        return any(feed.seeks for feed in self._slices.feeds)

    def look(self) -> None:
        """Have every slice looked at, and say when that is done."""
        self._unseen[:] = self._slices.feeds
        for feed in self._slices.feeds:
            feed.look()

    def resume(self) -> None:
        """Look what is due: there is more credit, or what was handed back may be fetched again."""
        for feed in self._slices.feeds:
            feed.resume()

    async def close(self) -> None:
        """Give back what the client was not sent."""
        await self._slices.close()


class LinkReceivers:
    """`LinkReceivers` shows the link to the window that the feeds of all slices share."""

    __slots__ = ("_receiver",)

    def __init__(self, receiver: ReceivingLink) -> None:
        self._receiver = receiver

    @property
    def asked(self) -> int:
        """For how many messages the link has credit."""
        return self._receiver.asked

    def room(self, most: int) -> int:
        """Return how many of ``most`` messages there is credit for, beside those that are here."""
        return min(most, self._receiver.credit - len(self._receiver.buffer))

    def stir(self) -> None:
        """Do nothing: nobody waits here, and the client hears of the end."""


async def by_name(receiver: ReceivingLink, consumers: ConsumerOpener, request: ConsumerRequest) -> MessageSource:
    """Open the feed of one destination.

    Raises:
        HeadgateError: it cannot receive from there.
    """
    unseen: list[Feed] = []
    sink = partial(SliceSink, receiver, unseen)
    feed = await consumers.feed(request, sink)
    feed.use.by_others()
    unseen.append(feed)
    receiver.supply = LinkSlices(receiver, unseen, await consumers.slices(feed, LinkReceivers(receiver), sink))
    return receiver.supply
