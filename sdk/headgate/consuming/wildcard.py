"""A pattern has a feed for each topic that it matches, future ones included, under one window and one subscription."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final

from headgate._util.forks import FORKED, watch
from headgate._util.reconnect import AWAY, until_answered
from headgate._util.tasks import Running, carried_through, in_background, stop
from headgate.consuming.feed import Feed
from headgate.consuming.shared_pace import SharedPace
from headgate.consuming.terms import ConsumerTerms
from headgate.consuming.topic_receivers import TopicReceivers
from headgate.context import Context
from headgate.core.credit import Lease
from headgate.core.names import read_name, whole_name
from headgate.core.sharing import SharedWindow
from headgate.core.window import Window
from headgate.credit.account import CLOSE_WITHIN
from headgate.credit.calls import Ensure
from headgate.errors import AccessDenied, Closed, HeadgateError, PolicyError, TooManySubscriptions
from headgate.explain.self_wait import ConsumerUser
from headgate.namespace.registry import Follower
from headgate.namespace.topics import WildcardSubscription
from headgate.redis.keys import Address, namespace_channel
from headgate.redis.stores.paces import PaceStore

_log = logging.getLogger("headgate")
LOOK_EVERY: Final = 5.0
"""Seconds between looks at the topics there are; a quarter of the session's TTL if that is less."""

AT_ONCE: Final = 64
"""Topics that are joined at a time."""


class TopicRemovedError(HeadgateError):
    """Feeds by pattern were on a topic that was removed; they go on without it."""


Open = Callable[["PatternFeeds", str], Awaitable[Feed]]


class PatternFeeds:
    """The feeds of a pattern, each opened as its topic is found.

    Args:
        context: the session's.
        entry: the pattern's in the namespace's index, with its subscription.
        terms: what is asked for of every topic.
        receivers: returns those who take the messages.
        open_feed: opens the feed of a topic.
        on_close: called with this once it is closed.

    Attributes:
        shared: the window of all topics together.
        feeds: by topic.
        created: names of topics that were heard of, and are not looked at yet.
        failure: why it cannot go on; None while it can.
        denied: why Redis or a node does nothing for it now.
    """

    is_slow = False

    def __init__(
        self,
        context: Context,
        entry: WildcardSubscription,
        terms: ConsumerTerms,
        receivers: Callable[["PatternFeeds"], TopicReceivers],
        open_feed: Open,
        on_close: Callable[["PatternFeeds"], None],
    ) -> None:
        self.address = Address(context.namespace, entry.pattern.text, "", ())
        self.session = context.session
        self.subscription, self.durable, self.terms = terms.subscription, terms.durable, terms
        self.entry = entry
        self.feeds: dict[str, Feed] = {}
        self.created: set[str] = set()
        self.receivers = receivers(self)
        self.shared = SharedWindow(terms.window, self.receivers)
        self.closed = False
        self.failure: BaseException | None = None
        self.denied: BaseException | None = None
        self._context, self._index = context, context.registry.index
        self._holder = f"{self.session}~{secrets.token_hex(2)}"
        self._open_feed = open_feed
        self._on_close = on_close
        self._ended_feeds: list[Feed] = []
        self._followers: dict[str, Follower] = {}
        self._paces: dict[str, SharedPace] = {}
        self._opened = self._made = False
        self._full: set[str] = set()
        self._lease = Lease(context.options.ttl)
        self._look_at = 0.0
        self._wake = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._configuring: Running = {}
        self.use = ConsumerUser(self._loop)
        watch(self)

    def __repr__(self) -> str:
        return f"Topics({self.address.name!r}, {'closed' if self.closed else f'{len(self.feeds)} topics'})"

    @property
    def id(self) -> str:
        """Their name in the namespace's index."""
        return self._holder

    @property
    def source(self) -> "PatternFeeds":
        """The lease, which shows whether messages still come."""
        return self

    @property
    def topics(self) -> list[str]:
        """The names of the topics."""
        return sorted({whole_name(name) for name in self.feeds})

    @property
    def window(self) -> Window:
        """The window in force."""
        return self.shared.total.window

    @property
    def held_messages(self) -> int:
        """Messages delivered and not settled."""
        return self.shared.total.messages

    @property
    def held_bytes(self) -> int:
        """Their bytes."""
        return self.shared.total.bytes

    async def start(self) -> None:
        """Subscribe, attach to every topic there is, and begin to fetch.

        Raises:
            PolicyError: the pattern matches queues only.
            InvalidValue: a topic has 64 consumers of this session already.
            CoordinatorUnavailable: Redis does not answer.
        """
        namespace = self.address.namespace
        await self._check(await self._index.topics(namespace, self.entry.pattern))
        await self._context.wake_ups.subscribe((namespace_channel(namespace),), self._hear)
        await self._look()
        self._opened = True
        self._task = asyncio.create_task(self._keep(), name=f"headgate {self.id}")
        self._task.add_done_callback(self._ended)

    async def undo(self) -> None:
        """End the subscription where it could not be opened on all topics, and is not older than that."""
        if self._made and self.entry.durable:
            namespace, pattern = self.address.namespace, self.entry.pattern.text
            with contextlib.suppress(HeadgateError):  # the caller hears why it could not be opened
                await self._index.unsubscribe_pattern(namespace, pattern, self.subscription)

    async def find_queue(self, *, hidden: Callable[[str], bool] = lambda _: False) -> str | None:
        """Return a queue that the pattern matches, or None; ``hidden`` says which are not looked at."""
        return await self._index.queue(self.address.namespace, self.entry.pattern, hidden=hidden)

    def configure(self, *, window: Window) -> Awaitable[None]:
        """Change the window that all topics share; see :meth:`Consumer.configure`."""
        self.shared.configure(window)
        return in_background(self._tell_feeds(), self._configuring, f"headgate {self.id}")

    def resume(self) -> None:
        """Let the first in line fetch: somebody waits."""
        self.shared.freed()

    async def flush(self, *, timeout: float | str = 5.0) -> None:
        """Wait until every settlement made so far is in Redis; see :meth:`Consumer.flush`."""
        await self._each(feed.flush(timeout=timeout) for feed in tuple(self.feeds.values()))

    @carried_through
    async def close(self) -> None:
        """Settle what was settled, give the rest back; about 1 s at the most. A durable subscription stays."""
        if self.closed:
            return
        self.closed = True
        self.receivers.closing()
        await asyncio.gather(*map(stop, (self._task, *self._configuring)))
        await asyncio.gather(*(pace.close() for pace in self._paces.values()))
        with contextlib.suppress(HeadgateError, TimeoutError):
            async with asyncio.timeout(CLOSE_WITHIN):
                await self._index.leave(self.address.namespace, self.entry, self._holder)
        await asyncio.gather(*(feed.close() for feed in tuple(self.feeds.values())))
        await self._context.wake_ups.unsubscribe((namespace_channel(self.address.namespace),), self._hear)
        for name, follower in self._followers.items():
            await self._context.registry.unfollow(Address.of(self.address.namespace, name), follower)
        self._followers.clear()
        self.feeds.clear()
        self._on_close(self)

    def forked(self) -> None:
        """Refuse from now on: what is here was delivered to the parent process."""
        self.closed = True
        self.failure = Closed(f"the consumer of {self.address.name!r} cannot be used: {FORKED}")

    def ensure(self, topic: Address, recover_it: Ensure) -> Ensure:
        """Return what makes a topic exist again that Redis lost, and ends its feed if it was removed on purpose."""

        async def ensure(recover: bool) -> str:  # noqa: FBT001
            if recover:
                await self._renew()
            if not recover or not await self._index.has(topic.whole):
                raise TopicRemovedError(f"topic {topic.name!r} was removed")
            return str(await recover_it(recover))

        return ensure

    async def began(self, feed: Feed) -> None:
        """Send home the paused consumer that a topic's producer may have put in the place of its feed."""
        address, registry = feed.address, self._context.registry
        if address.name == address.shown and address.name not in self._followers:
            follower = self._followers[address.name] = partial(self._spread, address)
            await registry.follow(address, follower)
            await registry.refresh(address)  # from now on those who make a slice see this subscription
        with contextlib.suppress(HeadgateError):  # it leaves by itself too
            if address.name == address.shown:
                await self._index.relieve(address, self.entry)
            else:
                await self._index.relieve_copy(address, self.subscription)

    def _slices(self, name: str) -> list[str]:
        """Return the names of the slices that a topic has beside itself, as far as is known."""
        return [part.name for part in self._context.registry.slices(Address.of(self.address.namespace, name))[1:]]

    def _spread(self, address: Address, _: Mapping[str, str]) -> None:
        """Join the slices that a topic has now."""
        if more := [name for name in self._slices(address.name) if name not in self.feeds]:
            self.created.update(more)
            self._wake.set()
        self._pace(address.name)

    def _pace(self, name: str) -> None:
        """Have the pace at a topic with slices judged over all of them."""
        feeds, context = self.feeds, self._context
        if name not in self._paces and name in feeds and self._slices(name):
            self._paces[name] = SharedPace(
                PaceStore(context.store.server),
                context.registry,
                feeds[name],
                lambda: [feeds[one] for one in (name, *self._slices(name)) if one in feeds],
            )
        if name in self._paces:
            self._paces[name].look()

    def feed_ended(self, feed: Feed, error: BaseException) -> None:
        """Note that a feed cannot go on; waiters hear of it unless its topic is just not there any more."""
        self._ended_feeds.append(feed)
        if not isinstance(error, TopicRemovedError | PolicyError):
            self.failure = error
            self.receivers.stir()
        self._wake.set()

    async def _check(self, names: set[str]) -> None:
        """Refuse a pattern that matches queues only, before anything is made that would outlive this."""
        self.receivers.joining(names)
        if not names and (queue := await self.receivers.find_queue()):
            raise PolicyError(
                f"{self.address.name!r} matches {whole_name(queue)!r}, which is a queue; patterns subscribe to topics, "
                f"so open a consumer for each queue"
            )

    async def _tell_feeds(self) -> None:
        await self._each(feed.configure(window=self.window) for feed in tuple(self.feeds.values()))
        self.shared.freed()

    @staticmethod
    async def _each(work: Iterable[Awaitable[None]]) -> None:
        """Do all of it, and then raise the first error."""
        for error in await asyncio.gather(*work, return_exceptions=True):
            if error is not None:
                raise error

    def _hear(self, words: list[str]) -> None:
        if words[0] == "created" and (name := read_name(words[1])) is not None:
            self.created.add(name)
            self._wake.set()

    async def _keep(self) -> None:
        while True:
            try:
                worked = await self._step()
            except AWAY as error:
                self._missing(error)
                worked = await until_answered(self._missing)(self._step)
            self.denied = None
            self.receivers.looked()
            if not worked and not self._wake.is_set():
                timer = self._loop.call_at(self._look_at, self._wake.set)
                await self._wake.wait()
                timer.cancel()

    def _missing(self, error: BaseException) -> None:
        if isinstance(error, AccessDenied):
            self.denied = error
            self.receivers.stir()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()):  # it cannot go on; whoever waits gets the error
            failed = HeadgateError(f"{self.address.name!r} failed: {error!r}")
            self.failure = error if isinstance(error, HeadgateError) else failed
            self.receivers.stir()

    async def _step(self) -> bool:
        self._wake.clear()
        while self._ended_feeds:
            await self._leave(self._ended_feeds[-1])
            self._ended_feeds.pop()
        if self._loop.time() >= self._look_at:
            await self._look()
            return True
        if created := tuple(self.created):
            await self._join(name for name in created if self.entry.pattern.matches(whole_name(name)))
            self.created.difference_update(created)
            return True
        return False

    async def _look(self) -> None:
        """Keep the entry, and then be on the topics that there are: whoever makes one later sees the entry."""
        asked_at = self._loop.time()
        await self._renew()
        names = await self._index.topics(self.address.namespace, self.entry.pattern)
        for name in [name for name in self.feeds if whole_name(name) not in names]:
            await self._leave(self.feeds[name])
        await self._join(names)
        self._look_at = min(self._lease.renew_at, asked_at + LOOK_EVERY)

    async def _renew(self) -> None:
        asked_at = self._loop.time()
        made = await self._index.keep(self.address.namespace, self.entry, self._holder)
        self._lease.renewed(asked_at)
        if not self._opened:
            self._made = made
        elif made:  # Redis lost the entry, and so perhaps the topics
            topics = (Address.of(self.address.namespace, name) for name in self.topics)
            await asyncio.gather(*map(self._index.announce, topics))

    async def _join(self, names: Iterable[str]) -> None:
        names = tuple(names)
        self.receivers.joining(names)
        new = [name for name in names if name not in self.feeds]
        failed: BaseException | None = None
        for at in range(0, len(new), AT_ONCE):  # they are opened one after the other, and none waits long for its turn
            opening = map(self._open, new[at : at + AT_ONCE])
            for error in await asyncio.gather(*opening, return_exceptions=True):
                if isinstance(error, TooManySubscriptions) and self._opened:  # goes on without, as the topic's senders
                    if error.destination not in self._full:
                        _log.warning("wildcard subscription %r: %s", self.entry.name, error)
                    self._full.add(error.destination)
                elif error is not None and not isinstance(error, TopicRemovedError | PolicyError):
                    failed = error
        if failed is not None:
            raise failed
        if more := [
            part for name in names if name in self.feeds for part in self._slices(name) if part not in self.feeds
        ]:
            await self._join(more)

    async def _open(self, name: str) -> None:
        """Open a feed, and note it before anybody can end this: what is noted is closed with the whole."""
        self.feeds[name] = feed = await self._open_feed(self, name)
        self.receivers.joined(feed)
        self._pace(whole_name(name))

    async def _leave(self, feed: Feed) -> None:
        if self.feeds.get(feed.address.name) is feed:
            del self.feeds[feed.address.name]
            if (follower := self._followers.pop(feed.address.name, None)) is not None:
                await self._context.registry.unfollow(feed.address, follower)
            if (pace := self._paces.pop(feed.address.name, None)) is not None:
                await pace.close()
        await feed.close()
        self.receivers.left(feed)
