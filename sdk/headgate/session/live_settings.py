"""Producers, gates and consumers of a destination are made to follow its settings where they did not say their own."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakSet

from headgate._util.tasks import Running, stop
from headgate.core.limits.spread import is_spread
from headgate.core.window import Window
from headgate.credit.account import CreditAccount
from headgate.credit.requested_terms import RequestedTerms
from headgate.credit.spread_account import SpreadAccount
from headgate.errors import HeadgateError
from headgate.namespace.defaults import Defaults
from headgate.namespace.registry import Registry
from headgate.redis.keys import Address

if TYPE_CHECKING:
    from headgate._util.pacing import Pacing
    from headgate.consuming.feed import Feed
    from headgate.limiting.gate import Gate
    from headgate.producing.inflow import Inflow
    from headgate.producing.producer import Producer


class SettingsFollower:
    """A settings follower has a session's presence at one destination follow the destination's settings.

    Attributes:
        defaults: what holds now where nothing is set.
        on_spread: called when values come to say which slice a message of the account goes to; None where they do.
    """

    __slots__ = (
        "_account", "_address", "_begun", "_configuring", "_paced", "_registry", "_requested_terms", "_senders",
        "_windowed", "defaults", "on_spread",
    )  # fmt: skip

    def __init__(self, registry: Registry, address: Address) -> None:
        self.defaults = Defaults()
        self._registry = registry
        self._address = address
        self._begun = False
        self.on_spread: Callable[[], None] | None = None
        self._account: CreditAccount | None = None
        self._requested_terms: list[RequestedTerms] = []
        # Made when somebody is in them: empty ones would be a twentieth of an idle connection to a node.
        self._senders: WeakSet[Producer | Inflow | Gate] | None = None
        self._paced: WeakSet[Pacing] | None = None
        self._windowed: dict[Feed, Window] = {}
        self._configuring: Running = {}

    async def begin(self) -> None:
        """Hear of changes from now on; called again, it only looks at what is known."""
        if not self._begun:
            self._begun = True
            await self._registry.follow(self._address, self._changed)
        self.defaults = Defaults.of(self._registry.fields(self._address))

    async def end(self) -> None:
        """Hear of no more changes."""
        if self._begun:
            self._begun = False
            await self._registry.unfollow(self._address, self._changed)
        for task in tuple(self._configuring):
            await stop(task)

    def use(self, account: CreditAccount, window: int | None, weight: int | None) -> RequestedTerms:
        """Note the wish of one more user of an account; the largest of all holds."""
        if account is not self._account:
            self._account, self._requested_terms = account, []
        requested = RequestedTerms(window, weight, self._size)
        self._requested_terms.append(requested)
        self._size()
        self._heed_settings()
        return requested

    def send(self, sender: "Producer | Inflow | Gate") -> None:
        """Tell a producer or a gate what holds, now and whenever it changes."""
        sender.adopt(self.defaults)
        self._senders = self._senders or WeakSet()
        self._senders.add(sender)

    def switch(self, account: SpreadAccount) -> None:
        """Have all that send through an account send through that."""
        for sender in tuple(self._senders or ()):
            sender.switch(account)  # type: ignore[union-attr]  # a gate has no messages

    def receive(self, feed: "Feed", pacing: "Pacing | None", *, window: bool) -> None:
        """Pass changes of window and delivery rate to a feed that has the current ones.

        Args:
            feed: the feed.
            pacing: the rate; None where they have their own.
            window: whether to tell of the window: they did not say their own.
        """
        if window:
            self._windowed = {one: before for one, before in self._windowed.items() if not one.closed}
            self._windowed[feed] = feed.window
        if pacing is not None:
            pacing.set(self.defaults.consumer_rate)
            self._paced = self._paced or WeakSet()
            self._paced.add(pacing)

    def _changed(self, fields: Mapping[str, str]) -> None:
        self.defaults = defaults = Defaults.of(fields)
        if self._account is not None and not self._account.closed:
            self._size()
            self._heed_settings()
        for sender in tuple(self._senders or ()):
            sender.adopt(defaults)
        if self.on_spread is not None and is_spread(fields):
            self.on_spread()
        for pacing in tuple(self._paced or ()):
            pacing.set(defaults.consumer_rate)
        for feed, before in tuple(self._windowed.items()):
            window = defaults.consumer_window(feed.terms.encoded_subscription, durable=feed.durable)
            if feed.closed or feed.window != before:
                del self._windowed[feed]  # it was configured: it has its own
            elif window != before:
                self._windowed[feed] = window
                task = asyncio.create_task(self._configure(feed, window), name=f"headgate {feed.id}")
                self._configuring[task] = None
                task.add_done_callback(self._configuring.pop)

    @staticmethod
    async def _configure(feed: "Feed", window: Window) -> None:
        with contextlib.suppress(HeadgateError):  # in force here all the same; Redis hears of it at the next attach
            await feed.configure(window=window)

    def _size(self) -> None:
        if self._account is not None:
            window = max(
                self.defaults.window if requested.window is None else requested.window
                for requested in self._requested_terms
            )
            weight = max(
                self.defaults.weight if requested.weight is None else requested.weight
                for requested in self._requested_terms
            )
            self._account.resize(window, weight)
            durability = self.defaults.durability
            for requested in self._requested_terms:
                durability |= requested.durability
            self._account.secure(durability)

    def _heed_settings(self) -> None:
        if self._account is not None:
            self._account.heed(self.defaults.fields)
