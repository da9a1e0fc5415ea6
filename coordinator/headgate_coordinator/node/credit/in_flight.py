"""Messages in flight to one user, and their bytes, stay within what its quota allows over all nodes.

This node holds its part of that.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from headgate._util.tasks import stop
from headgate.core.limits.limit import Limit
from headgate.core.limits.user_limit import IN_FLIGHT, IN_FLIGHT_BYTES
from headgate.core.segment import payload_size
from headgate.core.window import MAX_FETCH
from headgate.errors import HeadgateError
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused
from headgate.redis.backend import Backend
from headgate.redis.keys import PARTS
from headgate_coordinator.node.credit.load import NOTHING, UNBOUND, Load

RETRY: Final = 1.0
"""Seconds until it is asked again for what could not be had."""
ANSWERED_WITHIN: Final = 1.0
"""Seconds within which a consumer that heard of room comes for it; after that, room is for others."""
ASKED_EVERY: Final = 1.0
"""Seconds between questions whether a consumer is gone that is silent here."""
PAGE: Final = 1000
"""Messages of a consumer of which Redis is asked at a time."""
_MESSAGES: Final = 1 + PARTS.index("messages")
_CONSUMERS: Final = 1 + PARTS.index("consumers")

Make = Callable[[Sequence[Any]], Awaitable[Any]]
"""Makes a call of a script with these arguments, and returns its reply."""
Tell = Callable[[str, list[str]], None]
"""Has those who listen to a channel here hear a hint."""


@dataclass(slots=True, eq=False)
class _Consumer:
    """A consumer of the user comes through this node, and has messages that it has not settled.

    Attributes:
        keys: of its destination.
        id: ``<session>.<k>``.
        sizes: of the messages that it has and has not settled, by their ids.
        held: what that is together, and what it may have where no answer came.
        need: for which there must be room, so that it gets one message.
        until: when its lease is over, unless a call renewed it that was not seen here.
        sure: whether Redis knows of no other number.
    """

    keys: Sequence[bytes]
    id: str
    sizes: dict[str, int] = field(default_factory=dict)
    held: Load = NOTHING
    need: Load = NOTHING
    until: float = math.inf
    sure: bool = True


class InFlight:
    """`InFlight` bounds the messages that a user's consumers have, and have not settled, through one node.

    Each is a part of a hold at the quota's limiter, taken before it is fetched and given back after it is settled. So
    the sum over all nodes is what the limiter has, and that of a node that dies comes back with its lease. Where
    consumers find no room, the node stands in line there for the one that has waited the longest.

    Args:
        limiter: holds the quota over all nodes.
        user: the key there.
        quota: its name.
        limits: its limits, by their names.
        server: of Redis.
        tell: has a consumer fetch again.
    """

    def __init__(
        self, limiter: Limiter, user: str, quota: str, limits: Mapping[str, Limit], server: Backend, tell: Tell
    ) -> None:
        self._quota = quota
        self._limits = {name: limit for name, limit in limits.items() if name in (IN_FLIGHT, IN_FLIGHT_BYTES)}
        self.most = Load.of(self._limits, UNBOUND)
        self._limiter, self._user = limiter, user
        self._server, self._tell = server, tell
        self._holds: dict[Hold, Load] = {}
        self._consumers: dict[tuple[bytes, str], _Consumer] = {}
        self._free = Load.of(dict.fromkeys(self._limits, 0), UNBOUND)
        """Of what is held, the part that nobody has or fetches; below 0 where consumers brought more along."""
        self._hungry: dict[_Consumer, float] = {}
        """Consumers that were given less than they wanted, and since when."""
        self._short_of = IN_FLIGHT
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
    def why(self) -> str:
        """The reason that links give, which wait for it."""
        what = "bytes of messages" if self._short_of == IN_FLIGHT_BYTES else "messages"
        return f"user {self._user!r} holds as many {what} as the quota {self._quota!r} allows over all nodes, unsettled"

    @property
    def is_idle(self) -> bool:
        """Whether nobody here has anything, or wants it."""
        return not self._consumers and not self._holds and self._lining_up is None

    async def settle(self, keys: Sequence[bytes], argv: Sequence[Any], make: Make) -> Any:
        """Make a call of ``settle``, which fetches no more than there is room for; returns its reply."""
        _, _, consumer, ttl_ms, fetch, number, size, *_ = argv
        asked = Load(min(int(number), MAX_FETCH), int(size)) if int(fetch) else NOTHING
        one = await self._known(keys, text_of(consumer), int(fetch))
        one.until = math.inf
        room = wanted = NOTHING
        if asked.messages:
            wanted = await self._wanted(one, asked)
            room = await self._reserve(one, wanted)
        reply = None
        try:
            within = [room.messages, min(room.size, asked.size)]
            reply = await make([*argv[:5], *within, *argv[7:]] if asked.messages else argv)
        finally:
            self._free += room
            one.until = time.monotonic() + int(ttl_ms) / 1000
            if reply is None:  # it may have been done
                self._has(one, one.held + room)
                one.sure = False
        came = self._count(one, argv, reply)
        if one.sure and not room.covers(wanted) and not (room - came).covers(one.need):
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

    def _has(self, one: _Consumer, held: Load) -> None:
        self._free += one.held - held
        one.held = held

    def _has_those(self, one: _Consumer, sizes: dict[str, int]) -> None:
        one.sizes = sizes
        self._has(one, Load(len(sizes), sum(sizes.values())))

    def _forget(self, one: _Consumer) -> None:
        self._has(one, NOTHING)
        self._consumers.pop((one.keys[0], one.id), None)
        self._hungry.pop(one, None)

    def _size(self, size: int) -> int:
        """Return the bytes that a message counts: one that is larger than the quota takes all of it."""
        return min(size, self.most.size)

    def _count(self, one: _Consumer, argv: Sequence[Any], reply: Sequence[Any]) -> Load:
        """Count what a consumer settled, and what came; returns that."""
        code, came = text_of(reply[0]), NOTHING
        if code == "OK":
            ids = {text_of(known).partition("+")[0] for known in argv[13 : 13 + sum(map(int, argv[9:13]))]}
            settled = [one.sizes.pop(known, None) for known in ids]
            pairs = zip(reply[3][::2], reply[3][1::2], strict=True)
            new = {text_of(known): self._size(_size_of(known, body)) for known, body in pairs}
            one.sizes |= new
            came = Load(len(new), sum(new.values()))
            gone = Load(len(settled), sum(size or 0 for size in settled))
            self._has(one, one.held + came - gone)
            one.sure = one.sure and None not in settled and int(reply[2]) == 0
        elif code == "AGAIN":
            one.sure = False
        else:  # it is gone, and what it had is others'
            self._forget(one)
            one.sure = True
        return came

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
            self._has_those(one, await self._found(one) or {})
            one.sure = True

    async def _found(self, one: _Consumer) -> dict[str, int] | None:
        """Return what messages a consumer has by Redis, and their sizes; None where it is gone."""
        key, messages = one.keys[0], one.keys[_MESSAGES]
        record = await self._server.command(key, "HGET", one.keys[_CONSUMERS], one.id)
        if not record:
            return None
        subscription = bytes(record).partition(b" ")[0].removeprefix(b"sub=")
        sizes: dict[str, int] = {}
        after = "-"
        while True:
            page = await self._server.command(key, "XPENDING", messages, subscription, after, "+", PAGE, one.id)
            for known, *_ in page:
                size = one.sizes.get(text_of(known)) or _size_of(known)
                if not size:  # it is spooled, and another node gave it to the consumer
                    entry = await self._server.command(key, "XRANGE", messages, known, known)
                    fields = entry[0][1] if entry else ()
                    size = payload_size(dict(zip(fields[::2], fields[1::2], strict=True)).get(b"m", b""))
                sizes[text_of(known)] = self._size(size)
            if len(page) < PAGE:
                return sizes
            after = f"({text_of(page[-1][0])}"

    async def _wanted(self, one: _Consumer, asked: Load) -> Load:
        """Return for what there should be room: for a message, however large, and no more than could come.

        A script gives at least one message to who has room for any, so there is to be room for the largest.
        """
        if IN_FLIGHT_BYTES not in self._limits:
            one.need = Load(1)
            return asked.least(self.most)
        largest = 0
        with contextlib.suppress(HeadgateError):
            largest = int(await self._server.command(one.keys[0], "HGET", one.keys[0], "largest_bytes") or 0)
        one.need = Load(1, max(1, self._size(largest) or one.need.size))
        could_come = Load(asked.messages, asked.messages * self._size(largest) or asked.size)
        return asked.most(one.need).least(could_come.most(one.need)).least(self.most)

    async def _reserve(self, one: _Consumer, wanted: Load) -> Load:
        """Return for what there is room, and keep it; nothing where there is none for a message."""
        self._hungry.pop(one, None)
        if not self._free.covers(wanted):
            has = self._free.most(NOTHING)
            await self._obtain((wanted - has).most(NOTHING), (one.need - has).most(NOTHING))
        room = wanted.least(self._free)
        if not room.covers(one.need):
            self._short_of = IN_FLIGHT if room.messages < 1 else IN_FLIGHT_BYTES
            room = NOTHING
        self._free -= room
        if one is self._called:
            self._called = None
            self._came.set()
        return room

    async def _obtain(self, wanted: Load, need: Load) -> None:
        """Take that much more at the limiter, or what is left there, if nobody stands in line for it."""
        wanted = wanted.least(self.most)
        with contextlib.suppress(HeadgateError):  # what is to be settled goes on
            if await self._attempt(wanted):
                return
            state = await self._limiter.state(key=self._user)
            left = wanted
            for limits in (state.limits, state.key_limits):
                left = left.least(Load.of({name: one.limit - one.taken for name, one in limits.items()}, UNBOUND))
            if left != wanted and left.covers(need):
                await self._attempt(left)

    async def _attempt(self, wanted: Load) -> bool:
        amounts = wanted.amounts(self._limits)
        hold = await self._limiter.attempt(key=self._user, **amounts)
        if isinstance(hold, Refused):
            return False
        self._take(hold, amounts)
        return True

    def _take(self, hold: Hold, amounts: Mapping[str, int]) -> None:
        if self._closed:  # a call was under way as the quota ended here: nobody would give it back
            hold.release()
            return
        self._holds[hold] = Load.of(amounts)
        self._free += self._holds[hold]

    def _balance(self) -> None:
        """Give back what nobody here has, and stand in line for those who want more."""
        for hold in [hold for hold in self._holds if hold.lost]:
            self._free -= self._holds.pop(hold)
        for hold in tuple(self._holds) if self._called is None else ():
            back = self._holds[hold].least(self._free.most(NOTHING))
            if back == NOTHING:
                continue
            self._free -= back
            if (left := self._holds.pop(hold) - back) == NOTHING:
                hold.release()
            else:
                self._holds[hold] = left
                hold.settle(**{name: left.by_name[name] for name in back.amounts(self._limits)})
        if self._lining_up is None and self._is_short and not self._closed:
            self._lining_up = asyncio.create_task(self._line_up(), name=f"headgate in flight of {self._user}")

    @property
    def _is_short(self) -> bool:
        return bool(self._hungry) or not self._free.covers(NOTHING)

    async def _line_up(self) -> None:
        """Stand in line, and have the consumer fetch that has waited the longest, as long as any does."""
        try:
            while self._is_short:
                need = next((one.need for one in self._hungry), NOTHING)
                amounts = (need - self._free).most(NOTHING).least(self.most).amounts(self._limits)
                if amounts:
                    try:
                        hold = await self._limiter.admit(key=self._user, timeout="unlimited", **amounts)
                    except HeadgateError:
                        await asyncio.sleep(RETRY)
                        continue
                    self._take(hold, amounts)
                if self._hungry and self._free.covers((first := next(iter(self._hungry))).need):
                    await self._call(first)
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
                    self._has_those(one, found)
                    one.until = time.monotonic() + ASKED_EVERY
        self._balance()

    async def close(self) -> None:
        """Give back all that is held, and what is admitted from now on."""
        self._closed = True
        await stop(self._lining_up)
        for hold in self._holds:
            hold.release()
        self._holds.clear()


def _size_of(known: object, body: bytes = b"") -> int:
    """Return the bytes of a message by its id, ``<seq>-<size>``; of one that is spooled by what refers to it."""
    return int(text_of(known).rpartition("-")[2]) or payload_size(body)


def text_of(word: object) -> str:
    """Return a word of a call, or of a reply, as text."""
    return word.decode() if isinstance(word, bytes) else str(word)
