"""An opener opens the consumers of a session: of one destination, or of every topic that a pattern matches."""

import asyncio
import functools
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from headgate._util.callbacks import Callbacks
from headgate._util.pacing import Pacing
from headgate.consuming.consumer import Consumer, MessageSource
from headgate.consuming.feed import Feed
from headgate.consuming.inbox import Inbox, InboxSink
from headgate.consuming.round_robin import RoundRobin
from headgate.consuming.shared_pace import SharedPace
from headgate.consuming.sink import Sink
from headgate.consuming.slices import SliceReceivers, Slices
from headgate.consuming.terms import ConsumerTerms, FeedOwner
from headgate.consuming.topic_receivers import InboxReceivers, TopicReceivers
from headgate.consuming.wildcard import PatternFeeds
from headgate.core.addresses.pattern import with_parent
from headgate.core.addresses.url_options import split_address
from headgate.core.durability import MEMORY, Durability
from headgate.core.names import encode_name, is_slice
from headgate.core.selector.messages import Matcher
from headgate.core.selector.wanted import word_of
from headgate.core.sharing import SharedWindow
from headgate.core.window import Window
from headgate.errors import CoordinatorUnavailable, HeadgateError, PolicyError
from headgate.message import Message
from headgate.namespace.topics import WildcardSubscription, is_pattern, read_pattern
from headgate.redis.keys import Address
from headgate.redis.stores.paces import PaceStore
from headgate.session.destination import SessionDestination
from headgate.session.destinations import SessionDestinations
from headgate.session.other_slices import has_other_slices
from headgate.units import parse_rate

SlowCallback = Callable[[Consumer], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class ConsumerRequest:
    """A consumer as it was asked for.

    Attributes:
        destination: a name or a pattern, with options.
        kinds: that the destination may be, the one first that an unknown name becomes.
        window: as it was given; None where it was not.
        subscription: likewise; of a queue it plays no part.
        durable: whether the subscription stays.
        selects: says which stored messages it is for; None for all.
        durability: that its settlements are to have, at least.
        selector: the text that ``selects`` was made of.
    """

    destination: str
    kinds: tuple[str, ...]
    window: Window | int | str | None = None
    subscription: str | None = None
    durable: bool = False
    selects: Matcher | None = None
    durability: Durability = MEMORY
    selector: str | None = None


class SliceFeeds:
    """It opens the further slices of one consumer, which deliver where its first feed does."""

    __slots__ = ("_first", "_opener", "_sink")

    def __init__(self, opener: "ConsumerOpener", first: Feed, sink: Callable[[Feed], Sink]) -> None:
        self._opener, self._first, self._sink = opener, first, sink

    async def begin(self, first: Feed) -> None:
        """Begin at the first slice after all."""
        await self._opener.begin(first)

    async def open(self, address: Address, shared: SharedWindow) -> Feed:
        """Open the feed of another slice."""
        return await self._opener.slice_feed(self._first, address, self._sink, shared)

    def pace(self, slices: Slices) -> SharedPace:
        """Return what has the pace of the consumer judged over all slices."""
        return self._opener.pace(slices)

    def gone(self, slices: Slices) -> None:
        """Forget the consumer."""
        self._opener.gone(slices)


class ConsumerOpener:
    """A consumer opener opens the consumers of one session, and for nodes the feeds of their links.

    Attributes:
        on_slow: whom it tells of each that becomes slow.
    """

    __slots__ = ("_destinations", "_guarded", "_open", "on_slow")

    def __init__(self, destinations: SessionDestinations) -> None:
        self.on_slow: list[SlowCallback] = []
        self._destinations = destinations
        self._open: dict[PatternFeeds | Slices, None] = {}
        self._guarded = Callbacks("on_slow")

    async def open(
        self,
        request: ConsumerRequest,
        rate: float | str | None,
        make: Callable[[Inbox, MessageSource], Consumer] = Consumer,
    ) -> Consumer:
        """Open a consumer; other arguments and errors are those of :meth:`Session.consumer`."""
        name, url_options = split_address(request.destination, self._destinations.context.options.connection)
        own = parse_rate(rate, "rate") if rate is not None else url_options.consumer_rate
        if is_pattern(name):
            rotation: RoundRobin[Message] = RoundRobin()
            inbox = Inbox(own, rotation)

            def slow_feed(feed: Feed) -> None:
                self._tell_slow(Consumer(inbox, feed))

            return make(
                inbox,
                await self.topics(request, lambda topics: InboxReceivers(inbox, rotation, topics), slow=slow_feed),
            )
        inbox = Inbox(own)
        pacing = inbox.pacing if own is None else None
        feed = await self.feed(request, lambda one: InboxSink(inbox, inbox.buffer, one), pacing=pacing)
        slices = await self.slices(feed, inbox, lambda one: InboxSink(inbox, inbox.buffer, one))
        consumer = make(inbox, slices)
        feed.on_slow = lambda _: self._tell_slow(consumer)
        if feed.is_slow:  # already
            feed.on_slow(feed)
        return consumer

    async def feed(
        self,
        request: ConsumerRequest,
        sink: Callable[[Feed], Sink],
        *,
        pacing: Pacing | None = None,
    ) -> Feed:
        """Open a feed of one destination; errors are those of :meth:`Session.consumer`.

        Where the first slice of a queue does not answer, it has not begun: :meth:`slices` has it begin.

        Args:
            request: what is asked for.
            sink: returns where the feed delivers.
            pacing: a rate that follows the destination's settings; None where there is none, or it is set already.
        """
        destinations = self._destinations
        destination, url_options = split_address(request.destination, destinations.context.options.connection)
        if request.subscription is not None:
            encode_name(request.subscription, "subscription")
        checked = Window.of(request.window) if request.window is not None else None
        presence = destinations.at(destination)
        ensure = destinations.ensure(presence.address, request.kinds)
        async with destinations.opening(destination):
            is_away = False
            try:
                kind = await ensure(False)
            except CoordinatorUnavailable:
                registry = destinations.context.registry
                is_away = "queue" in request.kinds and await has_other_slices(registry, presence.address)
                if not is_away:
                    raise
                kind = "queue"
            presence.kind = kind
            if request.selects is not None and kind == "queue":  # what it does not match would be gone for others
                raise PolicyError(
                    f"{destination!r} is a queue; a selector is for the subscription of a topic, so receive all of a "
                    "queue, and select there"
                )
            follower = presence.follower
            await follower.begin()
            defaults = follower.defaults
            destinations.context.store.server.promise(defaults.durability)
            lasting = request.durable and kind == "topic"
            checked = checked or url_options.window(kind, durable=lasting)
            name = "queue" if kind == "queue" else request.subscription or self._name()
            window = checked or defaults.consumer_window(encode_name(name), durable=lasting)
            wants = word_of(request.selector)
            terms = ConsumerTerms(name, lasting, window, request.selects, request.durability, wants)
            owner = FeedOwner(presence.next_number, ensure, destinations.ensure_messages, self._closes(presence))
            feed = Feed(destinations.context, presence.address, terms, owner, sink)
            follower.receive(feed, pacing, window=checked is None)
            presence.join(feed)
            try:
                if is_away:
                    feed.number = presence.next_number()  # for its name is the same at those that answer
                else:
                    await feed.start()
            except BaseException:
                await self._closed(presence, feed)
                raise
        return feed

    async def begin(self, first: Feed) -> None:
        """Begin at the first slice of a queue, whose master was away as its consumer was opened."""
        destinations = self._destinations
        async with destinations.opening(first.address.name, alone=False):
            destinations.at(first.address.name).kind = await destinations.ensure(first.address, ("queue",))(True)
            await first.start()

    async def slices(self, first: Feed, takers: SliceReceivers, sink: Callable[[Feed], Sink]) -> Slices:
        """Return the feeds of all slices of a destination, under the window of the first.

        Args:
            first: the feed of the destination, which is its first slice; closed where the others cannot be opened.
            takers: those who receive from all of them.
            sink: returns where each feed delivers.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        kind = self._destinations.at(first.address.name).kind
        feeds = Slices(first, takers, self._destinations.context.registry, SliceFeeds(self, first, sink))
        self._open[feeds] = None
        await feeds.start(everywhere=kind == "topic")
        return feeds

    async def slice_feed(
        self, first: Feed, address: Address, sink: Callable[[Feed], Sink], shared: SharedWindow
    ) -> Feed:
        """Open the feed of a further slice; arguments are those of :meth:`slices`, and the window that all share."""
        destinations = self._destinations
        kind = destinations.at(first.address.name).kind
        presence = destinations.at(address.name)
        ensure = destinations.ensure(address, (kind,))
        number = functools.partial(presence.next_number, first.number)  # one consumer is one at all slices
        owner = FeedOwner(number, ensure, destinations.ensure_messages, self._closes(presence))
        feed = Feed(destinations.context, address, first.terms, owner, sink, shared=shared)
        async with destinations.opening(first.address.name, alone=False):
            presence.kind = await ensure(False)
            presence.join(feed)
            try:
                await feed.start()
                if kind == "topic":
                    await destinations.context.registry.index.relieve_copy(address, first.subscription)
            except BaseException:  # its consumer was closed meanwhile, too: nobody else would close this feed
                await feed.close()
                raise
        return feed

    async def topics(
        self,
        request: ConsumerRequest,
        receivers: Callable[[PatternFeeds], TopicReceivers],
        *,
        slow: Callable[[Feed], None] = lambda _: None,
    ) -> PatternFeeds:
        """Open the feeds of all topics that a pattern matches; arguments and errors as for :meth:`feed`.

        Args:
            request: what is asked for.
            receivers: returns those who take the messages.
            slow: called with each feed that becomes slow.
        """
        context = self._destinations.context
        destination, url_options = split_address(request.destination, context.options.connection)
        if request.subscription is not None:
            encode_name(request.subscription, "subscription")
        window = Window.of(request.window) if request.window is not None else None
        window = window or url_options.window("topic", durable=request.durable) or Window()
        name = request.subscription or self._name()
        pattern = read_pattern(destination)
        if (await context.registry.policies.current()).include_parent:
            pattern = read_pattern(with_parent(destination))
        topics = PatternFeeds(
            context,
            WildcardSubscription(pattern, name, request.durable, context.ttl_ms),
            ConsumerTerms(name, request.durable, window, request.selects, request.durability),
            receivers,
            lambda topics, topic: self._feed_of(topics, topic, slow),
            self.gone,
        )
        self._open[topics] = None
        try:
            await topics.start()
        except BaseException as error:
            await topics.close()
            if isinstance(error, HeadgateError):
                await topics.undo()
            raise
        return topics

    async def close(self) -> None:
        """Close all consumers, and open no feeds of new topics and slices for them."""
        await asyncio.gather(*(feeds.close() for feeds in tuple(self._open)))

    async def close_callbacks(self) -> None:
        """Give callbacks that still run a moment, and end them."""
        await self._guarded.close()

    async def _feed_of(self, topics: PatternFeeds, topic: str, slow: Callable[[Feed], None]) -> Feed:
        destinations = self._destinations
        presence = destinations.at(topic)
        make = destinations.ensure(presence.address, ("topic",))
        ensure = topics.ensure(presence.address, make)
        owner = FeedOwner(presence.next_number, ensure, destinations.ensure_messages, self._closes(presence))
        feed = Feed(
            destinations.context, presence.address, topics.terms, owner, topics.receivers.sink, shared=topics.shared
        )
        feed.on_end, feed.on_slow = topics.feed_ended, slow
        async with destinations.opening(topic):
            presence.join(feed)
            try:
                if is_slice(topic) and await destinations.context.registry.index.has(presence.address.whole):
                    await make(False)  # nobody may have used it yet
                await feed.start()
                await topics.began(feed)
            except BaseException:
                await feed.close()  # it may have attached; a subscription must not stay because of it
                raise
        return feed

    def pace(self, slices: Slices) -> SharedPace:
        """Return what has the pace of a consumer judged over all slices."""
        context = self._destinations.context
        return SharedPace(PaceStore(context.store.server), context.registry, slices.first, lambda: slices.feeds)

    def gone(self, feeds: PatternFeeds | Slices) -> None:
        """Forget what is closed."""
        self._open.pop(feeds, None)

    def _tell_slow(self, consumer: Consumer) -> None:
        for callback in self.on_slow:
            self._guarded.call(callback, consumer)

    def _name(self) -> str:
        """Return a name for a subscription that has none."""
        return f"{self._destinations.context.session}-{secrets.token_hex(2)}"

    def _closes(self, presence: SessionDestination) -> Callable[[Feed], Awaitable[None]]:
        return functools.partial(self._closed, presence)

    async def _closed(self, presence: SessionDestination, feed: Feed) -> None:
        if presence.part_with(feed):
            await self._destinations.end_lease(presence)
