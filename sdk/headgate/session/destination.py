"""A session has a presence at each destination that it uses."""

import asyncio
from collections.abc import Callable
from typing import Final

from headgate.consuming.feed import Feed
from headgate.credit.account import CreditAccount
from headgate.credit.observer import Observer
from headgate.errors import InvalidValue
from headgate.redis.keys import Address
from headgate.session.live_settings import SettingsFollower

MAX_CONSUMERS: Final = 64


class SessionDestination:
    """A session has at most one account at a destination, and its consumers there, under one lease."""

    __slots__ = ("_number", "_observe", "_observer", "account", "address", "consumers", "follower", "kind")

    def __init__(self, address: Address, follower: SettingsFollower, observe: Callable[[], Observer]) -> None:
        self.address = address
        self.follower = follower
        self._observe = observe
        self._observer: Observer | None = None
        self.kind = ""
        """The destination's kind, as last seen."""
        self.account: CreditAccount | None = None
        self.consumers: dict[Feed, None] = {}
        self._number = 0

    @property
    def observer(self) -> Observer:
        """How its sends see the destination; a session that only consumes there has none."""
        if self._observer is None:
            self._observer = observer = self._observe()
            observer.consumers = observer.self_wait.consumers = self.consumers
        return self._observer

    def start_anew(self) -> None:
        """Forget how the destination was: the lease there has ended."""
        if self._observer is not None:
            self._observer.start_anew()

    def next_number(self, rather: int = 0) -> int:
        """Return a number no consumer of the session has now: ``rather`` that one, if it is one."""
        taken = {feed.number for feed in self.consumers}
        if rather and rather not in taken:
            return rather
        for _ in range(MAX_CONSUMERS):
            self._number = self._number % MAX_CONSUMERS + 1
            if self._number not in taken:
                return self._number
        raise InvalidValue(f"a session has at most {MAX_CONSUMERS} consumers of one destination; open another session")

    async def close(self) -> None:
        """Close all of it."""
        await asyncio.gather(*(consumer.close() for consumer in tuple(self.consumers)))
        if self.account:
            self.account.state.consumers = 0
            await self.account.close(ends=True)
        await self.follower.end()

    def join(self, feed: Feed) -> None:
        """Note that a consumer of it opens."""
        self.consumers[feed] = None
        if self.account:
            self.account.state.consumers += 1

    def part_with(self, feed: Feed) -> bool:
        """Note that a consumer closed; returns whether nothing is left that needs the lease."""
        self.consumers.pop(feed, None)
        if self.account and not self.account.closed:
            self.account.state.consumers = len(self.consumers)
            self.account.freed()
            return False
        return not self.consumers
