"""A consumer of one destination has its feed there, and one of each slice more, all under one window."""

import asyncio
import logging
from collections.abc import Awaitable, Collection, Mapping
from typing import Protocol

from headgate._util.inner_property import InnerProperty
from headgate._util.reconnect import until_answered
from headgate._util.tasks import carried_through, stop
from headgate.consuming.consumer import MessageSource
from headgate.consuming.feed import Feed
from headgate.consuming.shared_pace import SharedPace
from headgate.core.sharing import SharedWindow, WindowUsers
from headgate.core.window import Window
from headgate.errors import Closed, CoordinatorUnavailable, HeadgateError
from headgate.namespace.registry import Registry
from headgate.redis.keys import Address

_log = logging.getLogger("headgate")


class SliceReceivers(WindowUsers, Protocol):
    """A receiver takes what the feeds of all slices fetch."""

    def stir(self) -> None:
        """Have those who wait look again: nothing comes any more."""


class SliceOpener(Protocol):
    """An opener of slices opens the feed of each further one, as the first was opened."""

    async def begin(self, first: Feed) -> None:
        """Begin at the first slice after all, whose master was away as the consumer was opened."""

    async def open(self, address: Address, shared: SharedWindow) -> Feed:
        """Open the feed of another slice."""

    def pace(self, slices: "Slices") -> SharedPace:
        """Return what has the pace of a consumer judged over all slices, where there are several."""

    def gone(self, slices: "Slices") -> None:
        """Forget what is closed."""


class Slices:
    """One consumer's feeds at all slices of a destination are kept here; where it has no others, that is one feed.

    Args:
        first: the feed of the destination itself, which is its first slice.
        takers: those who receive.
        registry: says how many slices there are.
        opener: opens the feeds of the other slices, and hears of its end.
    """

    __slots__ = (
        "_opener", "_pace", "_registry", "_shared", "_takers", "_task", "_widening", "feeds", "first", "is_closed",
    )  # fmt: skip

    id = InnerProperty(MessageSource.id, "first")
    address = InnerProperty(MessageSource.address, "first")
    session = InnerProperty(MessageSource.session, "first")
    subscription = InnerProperty(MessageSource.subscription, "first")
    durable = InnerProperty(MessageSource.durable, "first")
    topics = InnerProperty(MessageSource.topics, "first")
    window = InnerProperty(MessageSource.window, "first")
    source = InnerProperty(MessageSource.source, "first")
    use = InnerProperty(MessageSource.use, "first")

    def __init__(
        self,
        first: Feed,
        takers: SliceReceivers,
        registry: Registry,
        opener: SliceOpener,
    ) -> None:
        self.first = first
        self.feeds = [first]
        self.is_closed = False
        self._takers, self._registry, self._opener = takers, registry, opener
        self._shared: SharedWindow | None = None
        self._task: asyncio.Task[None] | None = None
        self._widening = asyncio.Lock()
        self._pace: SharedPace | None = None

    async def start(self, *, everywhere: bool) -> None:
        """Open the feeds of the slices that there are, and follow how many that is.

        A slice whose master is away, be it the first, is left out until it answers, unless it is to be ``everywhere``:
        a subscription begins with it, and misses what is sent before.

        Raises:
            CoordinatorUnavailable: Redis does not answer, at any slice.
        """
        if self._missing():  # the first leaves the others their part from its first fetch on
            self._shared = self.first.share(self._takers)
            if self._registry.fields(self.first.address).get("fair_by"):  # and fetches nothing before they do
                self._shared.is_held = self._shared.of_keys = True
            if not self.first.has_begun and (leads := self.first.machine.leads):  # it makes no call at which it would
                self.first.machine.hold(leads(()))
        try:
            await self._registry.follow(self.first.address, self._changed)
            if everywhere:  # there may be more since it was read; from now on those who make one see this subscription
                await self._registry.refresh(self.first.address)
            await self._widen({self.first.address})  # which was tried
        except CoordinatorUnavailable:
            if everywhere or not any(feed.has_begun for feed in self.feeds):
                await self.close()
                raise
        except BaseException:
            await self.close()
            raise
        finally:
            if self._shared is not None:
                self._shared.is_held = False
                self._shared.freed()
        self._changed({})

    @property
    def is_slow(self) -> bool:
        """Whether it settles too little of what there is at one of them."""
        return any(feed.is_slow for feed in self.feeds)

    @property
    def held_messages(self) -> int:
        """Messages delivered and not settled."""
        return sum(feed.held_messages for feed in self.feeds)

    @property
    def held_bytes(self) -> int:
        """Their bytes."""
        return sum(feed.held_bytes for feed in self.feeds)

    def configure(self, *, window: Window) -> Awaitable[None]:
        """Change the window, which all feeds share; see :meth:`Consumer.configure`."""
        changes = [feed.configure(window=window) for feed in self.feeds]
        return changes[0] if len(changes) == 1 else asyncio.gather(*map(asyncio.ensure_future, changes))  # type: ignore[return-value]

    def resume(self) -> None:
        """Look whether to fetch: somebody waits."""
        if self._shared is None:
            self.first.resume()
            return
        self._shared.freed()
        for feed in self.feeds:
            feed.resume()

    async def flush(self, *, timeout: float | str = 5.0) -> None:
        """Wait until every settlement made so far is in Redis; see :meth:`Consumer.flush`."""
        for error in await asyncio.gather(
            *(feed.flush(timeout=timeout) for feed in self.feeds), return_exceptions=True
        ):
            if error is not None:
                raise error

    @carried_through
    async def close(self) -> None:
        """Settle what was settled, give the rest back; about 1 s at the most."""
        if self.is_closed:
            return
        self.is_closed = True
        await stop(self._task)
        if self._pace is not None:
            await self._pace.close()
        await self._registry.unfollow(self.first.address, self._changed)
        await asyncio.gather(*(feed.close() for feed in self.feeds))
        self._opener.gone(self)

    def _changed(self, _fields: Mapping[str, str]) -> None:
        if len(self._missing()) and (self._task is None or self._task.done()) and not self.is_closed:
            self._task = asyncio.create_task(self._keep_up(), name=f"headgate slices {self.first.id}")
        self._look_at_pace()

    def _look_at_pace(self) -> None:
        if self._shared is not None:
            self._pace = self._pace or self._opener.pace(self)
            self._pace.look()

    def _missing(self) -> list[Address]:
        there = {feed.address for feed in self.feeds if feed.has_begun}
        return [address for address in self._registry.slices(self.first.address) if address not in there]

    async def _keep_up(self) -> None:
        try:
            await until_answered(lambda _: None)(self._widen)
        except HeadgateError as error:
            if not self.is_closed:
                self._end(error)

    async def _widen(self, tried: Collection[Address] = ()) -> None:
        """Open the feeds of all slices that have none, together: whoever waits for one waits for no other."""
        away: CoordinatorUnavailable | None = None
        tried = set(tried)
        async with self._widening:  # a change that is heard as it begins opens no slice once more
            # More may come meanwhile.
            while missing := [one for one in self._missing() if one not in tried and not self.is_closed]:
                tried.update(missing)
                shared = self._shared = self._shared or self.first.share(self._takers)
                joining = [self._join(address, shared) for address in missing]
                for error in await asyncio.gather(*joining, return_exceptions=True):
                    if isinstance(error, CoordinatorUnavailable):
                        away = error
                    elif error is not None:
                        raise error
        self._look_at_pace()
        if away is not None:
            raise away

    async def _join(self, address: Address, shared: SharedWindow) -> None:
        if address == self.first.address:
            await self._opener.begin(self.first)
            return
        feed = await self._opener.open(address, shared)
        if self.is_closed:
            await feed.close()
            return
        feed.settlements.use = self.first.use.include(feed.use)
        feed.on_end = lambda _, error: self._end(error)
        feed.on_slow = lambda _: self.first.on_slow(self.first)
        self.feeds.append(feed)

    def _end(self, error: BaseException) -> None:
        """End with one of the feeds: a consumer that leaves out a slice would leave messages there for ever."""
        source = self.first.source
        if source.failure is None and not source.closed:
            _log.error("consumer %s of %r ends: %s", self.first.id, self.first.address.name, error)
            source.failure = error if isinstance(error, HeadgateError) else Closed(str(error))
            self._takers.stir()
            self.first.on_end(self.first, source.failure)
