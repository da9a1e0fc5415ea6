"""Messages in flight to one user: no more than its quota allows over all nodes, of which this node holds its part."""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from headgate._util.tasks import stop
from headgate.core.limits.user_limit import IN_FLIGHT
from headgate.core.window import MAX_FETCH
from headgate.errors import HeadgateError
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused
from headgate.redis.backend import Backend
from headgate.redis.keys import PARTS
from headgate.redis.scripts import Script

RETRY: Final = 1.0
"""Seconds until it is asked again for what could not be had."""
ANSWERED_WITHIN: Final = 1.0
"""Seconds within which a consumer that heard of room comes for it; after that, room is for others."""
ASKED_EVERY: Final = 1.0
"""Seconds between questions whether a consumer is gone that is silent here."""
COUNTED: Final = frozenset({"settle", "detach"})
"""Scripts by which consumers take messages, and give them back."""
_MESSAGES: Final = 1 + PARTS.index("messages")
_CONSUMERS: Final = 1 + PARTS.index("consumers")

Make = Callable[[Sequence[Any]], Awaitable[Any]]
"""Makes a call of a script with these arguments, and returns its reply."""
Tell = Callable[[str, list[str]], None]
"""Has those who listen to a channel here hear a hint."""


@dataclass(slots=True, eq=False)
class _Consumer:
    """A consumer of the user that comes through this node.

    Attributes:
        keys: of its destination.
        id: ``<session>.<k>``.
        held: messages that it has and has not settled; those that it may have where no answer came.
        until: when its lease is over, unless a call renewed it that was not seen here.
        sure: whether Redis knows of no other number.
    """

    keys: Sequence[bytes]
    id: str
    held: int = 0
    until: float = math.inf
    sure: bool = True


class InFlight:
    """The messages that a user's consumers have, and have not settled, through one node.

    Each is a part of a hold at the quota's limiter, taken before it is fetched and given back after it is settled. So
    the sum over all nodes is what the limiter has, and that of a node that dies comes back with its lease. Where
    consumers find no room, the node stands in line there for the one that has waited the longest.

    Args:
        limiter: holds the quota over all nodes.
        user: the key there.
        most: the quota.
        why: what links say that wait for it.
        server: of Redis.
        tell: has a consumer fetch again.
    """

    def __init__(self, limiter: Limiter, user: str, most: int, why: str, server: Backend, tell: Tell) -> None:
        self.most, self.why = most, why
        self._limiter, self._user = limiter, user
        self._server, self._tell = server, tell
        self._holds: dict[Hold, int] = {}
        self._consumers: dict[tuple[bytes, str], _Consumer] = {}
        self._free = 0
        """Of what is held, the part that nobody has or fetches; below 0 where consumers brought more along."""
        self._hungry: dict[_Consumer, float] = {}
        """Consumers that were given less than they wanted, and since when."""
        self._called: _Consumer | None = None
        """One that may fetch, for which what is free is kept."""
        self._came = asyncio.Event()
        self._lining_up: asyncio.Task[None] | None = None
        self._closed = False

    @property
    def withheld(self) -> float | None:
        """Seconds for which a consumer has waited for room; None where none does."""
        return time.monotonic() - min(self._hungry.values()) if self._hungry else None

    @property
    def is_idle(self) -> bool:
        """Whether nobody here has anything, or wants it."""
        return not self._consumers and not self._holds and self._lining_up is None

    async def settle(self, keys: Sequence[bytes], argv: Sequence[Any], make: Make) -> Any:
        """Make a call of ``settle``, which fetches no more than there is room for; returns its reply."""
        _, _, consumer, ttl_ms, fetch, asked, *_ = argv
        wanted = min(int(asked), MAX_FETCH) if int(fetch) else 0
        one = await self._known(keys, text_of(consumer), int(fetch))
        one.until = math.inf
        room = await self._reserve(one, wanted) if wanted else 0
        reply = None
        try:
            reply = await make([*argv[:5], room, *argv[6:]] if wanted else argv)
        finally:
            self._free += room
            one.until = time.monotonic() + int(ttl_ms) / 1000
            if reply is None:  # it may have been done
                self._has(one, one.held + room)
                one.sure = False
        self._count(one, argv, reply)
        if room < wanted and one.sure and len(reply) > 4 and len(reply[3]) // 2 == room:
            self._hungry.setdefault(one, time.monotonic())
        if not one.sure:
            await self._compare(one)
        self._balance()
        return reply

    def detached(self, keys: Sequence[bytes], consumer: object) -> None:
        """Note that a consumer gives back what it had."""
        if (one := self._consumers.get((keys[0], text_of(consumer)))) is not None:
            self._forget(one)
            self._balance()

    def _has(self, one: _Consumer, held: int) -> None:
        self._free += one.held - held
        one.held = held

    def _forget(self, one: _Consumer) -> None:
        self._has(one, 0)
        self._consumers.pop((one.keys[0], one.id), None)
        self._hungry.pop(one, None)

    def _count(self, one: _Consumer, argv: Sequence[Any], reply: Sequence[Any]) -> None:
        code = text_of(reply[0])
        if code == "OK":
            settled = sum(map(int, argv[9:13])) - int(reply[2])
            self._has(one, one.held + len(reply[3]) // 2 - settled)
            one.sure = one.sure and one.held >= 0 and int(reply[2]) == 0
        elif code == "AGAIN":
            one.sure = False
        else:  # it is gone, and what it had is others'
            self._forget(one)
            one.sure = True

    async def _known(self, keys: Sequence[bytes], consumer: str, fetch: int) -> _Consumer:
        """Return what is known of a consumer; of one that came from another node, what Redis knows."""
        known = (keys[0], consumer)
        if (one := self._consumers.get(known)) is None:
            one = self._consumers[known] = _Consumer(keys, consumer)
            if fetch != 1:
                await self._compare(one)
        return one

    async def _compare(self, one: _Consumer) -> None:
        """Count what a consumer has by Redis; where that does not answer, it is asked the next time."""
        one.sure = False
        with contextlib.suppress(HeadgateError):
            self._has(one, await self._found(one) or 0)
            one.sure = True

    async def _found(self, one: _Consumer) -> int | None:
        """Return how many messages a consumer has by Redis; None where it is gone."""
        record = await self._server.command(one.keys[0], "HGET", one.keys[_CONSUMERS], one.id)
        if not record:
            return None
        subscription = bytes(record).partition(b" ")[0].removeprefix(b"sub=")
        pending = await self._server.command(one.keys[0], "XPENDING", one.keys[_MESSAGES], subscription)
        return next((int(n) for name, n in pending[3] or () if text_of(name) == one.id), 0)

    async def _reserve(self, one: _Consumer, wanted: int) -> int:
        """Return for how many messages there is room, and keep it for them."""
        self._hungry.pop(one, None)
        if self._free < wanted:
            await self._obtain(wanted - max(0, self._free))
        room = max(0, min(wanted, self._free))
        self._free -= room
        if one is self._called:
            self._called = None
            self._came.set()
        return room

    async def _obtain(self, wanted: int) -> None:
        """Take that much more at the limiter, or what is left there, if nobody stands in line for it."""
        wanted = min(wanted, self.most)
        with contextlib.suppress(HeadgateError):  # what is to be settled goes on
            if self._take(await self._limiter.attempt(key=self._user, in_flight=wanted), wanted):
                return
            state = await self._limiter.state(key=self._user)
            levels = [limits[IN_FLIGHT] for limits in (state.limits, state.key_limits) if IN_FLIGHT in limits]
            left = min((level.limit - level.taken for level in levels), default=0)
            if 0 < left < wanted:
                self._take(await self._limiter.attempt(key=self._user, in_flight=left), left)

    def _take(self, hold: Hold | Refused, amount: int) -> bool:
        if isinstance(hold, Refused):
            return False
        self._holds[hold] = amount
        self._free += amount
        return True

    def _balance(self) -> None:
        """Give back what nobody here has, and stand in line for those who want more."""
        for hold in [hold for hold in self._holds if hold.lost]:
            self._free -= self._holds.pop(hold)
        for hold in tuple(self._holds) if self._called is None else ():
            if self._free <= 0:
                break
            back = min(self._holds[hold], self._free)
            self._free -= back
            if left := self._holds.pop(hold) - back:
                self._holds[hold] = left
                hold.settle(**{IN_FLIGHT: left})
            else:
                hold.release()
        if self._lining_up is None and self._is_short and not self._closed:
            self._lining_up = asyncio.create_task(self._line_up(), name=f"headgate in flight of {self._user}")

    @property
    def _is_short(self) -> bool:
        return bool(self._hungry) or self._free < 0

    async def _line_up(self) -> None:
        """Stand in line, and have the consumer fetch that has waited the longest, as long as any does."""
        try:
            while self._is_short:
                wanted = max(1, min(-self._free, self.most))
                try:
                    hold = await self._limiter.admit(key=self._user, timeout="unlimited", in_flight=wanted)
                except HeadgateError:
                    await asyncio.sleep(RETRY)
                    continue
                self._take(hold, wanted)
                if self._free > 0 and self._hungry:
                    await self._call(next(iter(self._hungry)))
                self._balance()
        finally:
            self._lining_up = None

    async def _call(self, one: _Consumer) -> None:
        """Have a consumer fetch, and keep what is free for it until it comes."""
        del self._hungry[one]
        self._called = one
        self._came.clear()
        self._tell(f"{text_of(one.keys[0])}:wake:{one.id.rpartition('.')[0]}", ["ready", one.id])
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(ANSWERED_WITHIN):
                await self._came.wait()
        self._called = None

    async def look(self) -> None:
        """Forget consumers that are gone, of those whose leases are over by what came through here.

        Every call renews a lease, also one that is not counted here, or comes through another node.
        """
        now = time.monotonic()
        for one in [one for one in self._consumers.values() if one.until < now]:
            with contextlib.suppress(HeadgateError):
                found = await self._found(one)
                if one.until >= now or self._consumers.get((one.keys[0], one.id)) is not one:
                    continue  # it came meanwhile
                if found is None:
                    self._forget(one)
                else:
                    self._has(one, found)
                    one.until = time.monotonic() + ASKED_EVERY
        self._balance()

    async def close(self) -> None:
        """Give back all that is held."""
        self._closed = True
        await stop(self._lining_up)
        for hold in self._holds:
            hold.release()
        self._holds.clear()


class CountingBackend:
    """Redis for the consumers of one user's links: what they fetch counts in the user's quota, where there is one.

    Args:
        server: of Redis.
        counts: returns what is in flight to the user; None where no quota bounds it.
    """

    def __init__(self, server: Backend, counts: Callable[[], Awaitable[InFlight | None]]) -> None:
        self._server, self._counts = server, counts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)

    async def call(self, script: Script, keys: Sequence[bytes], argv: Sequence[Any]) -> Any:
        """Call a script; errors as :meth:`Backend.call`."""
        in_flight = await self._counts() if script.name in COUNTED else None
        return await counted(in_flight, self._server, script, keys, argv)


async def counted(
    in_flight: InFlight | None, server: Backend, script: Script, keys: Sequence[bytes], argv: Sequence[Any]
) -> Any:
    """Call a script by which a consumer takes messages, or gives them back; returns its reply."""
    if in_flight is None:
        return await server.call(script, keys, argv)
    if script.name == "settle":
        return await in_flight.settle(keys, argv, partial(server.call, script, keys))
    reply = await server.call(script, keys, argv)
    if script.name == "detach":
        in_flight.detached(keys, argv[2])
    return reply


def text_of(word: object) -> str:
    """Return a word of a call, or of a reply, as text."""
    return word.decode() if isinstance(word, bytes) else str(word)
