"""A node has a part of a user's rates in hand: a slice is taken ahead, and the user's links send out of it."""

import asyncio
import contextlib
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Final, Protocol
from weakref import WeakSet

from headgate.core.limits import Limit
from headgate.core.limits.user_limit import BYTES, MESSAGES
from headgate.errors import HeadgateError
from headgate.limiting.limiter import Limiter

AHEAD: Final = 0.1
"""Seconds' worth of a rate that a node has in hand for one user."""
UNSURE: Final = 1000
"""Batches of a user that are remembered until it is known what of them was stored."""
RETRY: Final = 1.0
"""Seconds until a slice is asked for again that could not be had."""


class Sender(Protocol):
    """A sender is a link that waits for what its user may send."""

    def look_soon(self) -> None:
        """See what credit is due."""


class Waiter:
    """A waiter is a caller that waits for what its user may send."""

    def __init__(self) -> None:
        self.due = asyncio.Event()

    def look_soon(self) -> None:
        """Go on."""
        self.due.set()


class Allowance:
    """An allowance counts the messages and bytes that one user may still send through this node.

    More than that is owed, and paid before anything else. So at most a slice is taken ahead of what is sent, and at
    most what links had credit for comes beyond it.

    Args:
        limiter: holds the quota over all nodes.
        user: the key there.
        limits: the user's rates by name.
        why: what a link says that waits for it.
    """

    def __init__(self, limiter: Limiter, user: str, limits: Mapping[str, Limit], why: str) -> None:
        self.why = why
        self.links: WeakSet[Sender] = WeakSet()
        self._limiter, self._user = limiter, user
        self._slices = {
            name: max(1, min(limit.most, int((limit.rate or 1.0) * AHEAD))) for name, limit in limits.items()
        }
        self._most = {name: limit.most for name, limit in limits.items()}
        self._left = dict.fromkeys(limits, 0)
        self._size = 1
        self._unsure: OrderedDict[Hashable, tuple[int, int]] = OrderedDict()
        self._since: float | None = None
        self._asking: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether something of each rate is in hand."""
        return min(self._left.values()) > 0

    @property
    def withheld(self) -> float | None:
        """Seconds for which nothing is in hand; None where something is."""
        return None if self._since is None else time.monotonic() - self._since

    def spend(self, messages: int, size: int) -> None:
        """Note what was sent."""
        self._size = max(1, size // max(messages, 1))
        self._count(-messages, -size)
        self.ask()

    def counts(self, batch: Hashable) -> bool:
        """Return whether a batch counts already: it came before, and no answer did."""
        return batch in self._unsure

    def begin(self, batch: Hashable, bodies: Sequence[bytes]) -> None:
        """Count a batch until it is known what of it was stored; one that comes again counts once."""
        before, now = self._unsure.pop(batch, (0, 0)), (len(bodies), sum(map(len, bodies)))
        self._unsure[batch] = now
        if now != before:
            self.spend(now[0] - before[0], now[1] - before[1])
        while len(self._unsure) > UNSURE:
            self._unsure.popitem(last=False)

    def end(self, batch: Hashable, bodies: Sequence[bytes], stored: int) -> None:
        """Count no more of a batch than was stored."""
        self._unsure.pop(batch, None)
        self.give_back(len(bodies) - stored, sum(map(len, bodies[stored:])))

    def give_back(self, messages: int, size: int) -> None:
        """Note what of it was not stored; another slice may have come meanwhile, and more than both is not kept."""
        most = {name: max(left, 2 * self._slices[name]) for name, left in self._left.items()}
        self._count(messages, size)
        self._left = {name: min(left, most[name]) for name, left in self._left.items()}
        self._tell()

    def _tell(self) -> None:
        """Have those go on who wait, if there is something for them."""
        if self.is_open:
            self._since = None
            for link in tuple(self.links):
                link.look_soon()

    def _count(self, messages: int, size: int) -> None:
        for name, amount in ((MESSAGES, messages), (BYTES, size)):
            if name in self._left:
                self._left[name] += amount

    def credit(self, most: int) -> int:
        """Return for how many messages one of the user's links may have credit; 0 until more is in hand."""
        self.ask()
        if not self.is_open:
            return 0
        share = max(1, len(self.links))
        if MESSAGES in self._left:
            most = min(most, max(1, self._left[MESSAGES] // share))
        if BYTES in self._left:
            most = min(most, max(1, self._left[BYTES] // share // self._size))
        return most

    def ask(self) -> None:
        """Have another slice fetched, where less than half of one is left."""
        if not self.is_open and self._since is None:
            self._since = time.monotonic()
        if self._asking is None and any(2 * left < self._slices[name] for name, left in self._left.items()):
            self._asking = asyncio.create_task(self._fetch(), name=f"headgate quota of {self._user}")

    async def _fetch(self) -> None:
        try:
            while wanted := self._wanted():
                try:
                    hold = await self._limiter.admit(key=self._user, timeout="unlimited", ttl=None, **wanted)
                except HeadgateError:
                    await asyncio.sleep(RETRY)
                    continue
                hold.release()
                for name, amount in wanted.items():
                    self._left[name] += amount
                self._tell()
        finally:
            self._asking = None

    def _wanted(self) -> dict[str, int]:
        """Return what is to be asked for: what is owed, and a slice; never more than there is at once."""
        return {
            name: min(self._slices[name] - left, self._most[name])
            for name, left in self._left.items()
            if 2 * left < self._slices[name]
        }

    async def opened(self, seconds: float) -> bool:
        """Wait until something of each rate is in hand, for so long at the most, and return whether it is.

        Of those who wait one goes on, and the others once more is there than it spends, before it awaits anything.
        """
        waiter = Waiter()
        self.links.add(waiter)
        self.ask()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not self.is_open:
                    waiter.due.clear()
                    await waiter.due.wait()
        return self.is_open

    def stop(self) -> None:
        """Ask for nothing any more."""
        if self._asking is not None:
            self._asking.cancel()
