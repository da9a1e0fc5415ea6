"""A delivery line is where feeds of one client wait that lack the rate of deliveries at the same slice."""

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Final, Protocol

from headgate._util.tasks import in_background, stop
from headgate.errors import HeadgateError
from headgate.namespace.shared_rates import LOOK_MS, Lent, SharedRates
from headgate.redis.keys import Address
from headgate.redis.stores.rates import Sender

FETCHED_WITHIN: Final = 0.1
"""Seconds for which the line waits for those that were woken: the slice keeps it for as long, too."""
MOST_WEIGHT: Final = 1000
"""Feeds that count at the most where clients share the rate by how many of theirs wait."""


class Member(Protocol):
    """A member of the line is a feed."""

    @property
    def session(self) -> str:
        """Its session."""

    def lent(self) -> None:
        """Fetch, for the slice has some for it."""

    def short(self) -> None:
        """Note that nothing is to be had now."""


class DeliveryLine:
    """One call asks for all of them, and each fetches as its slice has some for it.

    Each by itself would ask for the same, and mostly find that another took it. At the first slice they stand in one
    line with the others of all slices and clients, with as much weight as there are of them.

    Args:
        rates: lends.
        part: the slice.
    """

    __slots__ = ("__weakref__", "_changed", "_fetching", "_members", "_part", "_rates", "_session", "_short", "_task")

    def __init__(self, rates: SharedRates, part: Address) -> None:
        self._rates, self._part = rates, part
        self._members: dict[Member, tuple[int, int]] = {}
        self._fetching: set[Member] = set()
        self._changed = asyncio.Event()
        self._session = ""
        """By which it is known at the first slice, as long as that one is here."""
        self._short = False
        """Whether there was nothing to be had a moment ago."""
        self._task: asyncio.Task[None] | None = None

    @classmethod
    def at(cls, part: Address, rates: SharedRates, lines: MutableMapping[bytes, "DeliveryLine"]) -> "DeliveryLine":
        """Return the line at a slice, of those of a client."""
        return lines.get(part.shared[0]) or lines.setdefault(part.shared[0], cls(rates, part))

    def stand(self, member: Member, need: int, want: int) -> bool:
        """Put a feed in line, or note what it lacks by now; returns whether there may be some for it at once."""
        self._members[member] = (need, want)
        self._session = self._session or member.session
        self._fetched(member)
        if self._task is None:
            self._task = in_background(self._serve(), {}, f"headgate rate of {self._part.name}")
        return not self._short

    def leave(self, member: Member) -> None:
        """Take a feed out, which lacks nothing any more."""
        self._members.pop(member, None)
        self._fetched(member)

    async def close(self, member: Member) -> None:
        """Take a feed out for good; the line ends with its last one."""
        self.leave(member)
        if member.session == self._session:
            self._session = next((other.session for other in self._members), "")
        if not self._members:
            task = self._task
            self._task, self._short = None, False  # whoever comes while it ends is served by another
            await stop(task)

    def _fetched(self, member: Member) -> None:
        self._fetching.discard(member)
        if not (self._members if self._short else self._fetching):
            self._changed.set()

    async def _serve(self) -> None:
        try:
            while self._members:
                await self._serve_some()
        finally:  # whatever ended it: who stands in line from now on begins anew, and knows nothing
            if self._task is asyncio.current_task():
                self._task, self._short = None, False

    async def _serve_some(self) -> None:
        lent = await self._lend()
        self._short = lent.again_ms > 0
        if self._short:
            for member in tuple(self._members):
                member.short()
        else:
            self._wake(lent.in_hand)
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(min(lent.again_ms, LOOK_MS) / 1000 or FETCHED_WITHIN):
                await self._changed.wait()
        self._fetching.clear()

    async def _lend(self) -> Lent:
        """Have the slice lent as much as the first needs, or as all want of a moment of the rate."""
        (need, want), *others = self._members.values()
        most = self._rates.at_once(self._part, "delivery")
        want = max(want, min(want + sum(wanted for _, wanted in others), most))
        try:
            sender = Sender(self._session, min(len(self._members), MOST_WEIGHT))
            return await self._rates.lend(self._part, "delivery", need, want, sender, max(need, most))
        except HeadgateError:
            return Lent(LOOK_MS)  # the feeds look again, and hear of it themselves

    def _wake(self, in_hand: int) -> None:
        """Have the first fetch, and as many behind it as there is enough for.

        Others may have taken by now what the first was lent.
        """
        for member, (need, want) in tuple(self._members.items()):
            if need > in_hand and self._fetching:
                break
            in_hand -= want
            del self._members[member]
            self._fetching.add(member)
            member.lent()
