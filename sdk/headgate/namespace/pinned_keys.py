"""This module moves keys of a limiter between its slices: when their number changes, and where one lost something.

Any client may take any step, twice or late, and may die between two of them: the next one looks at what all slices
know, and goes on from there. Meanwhile nothing is admitted for keys that move; all others go on.
"""

import asyncio
import itertools
import random
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from headgate.core.limiting.pins import Change, PinnedSlice, Pins, due_change, slice_of_key
from headgate.core.names import slice_name
from headgate.errors import AccessDenied, CoordinatorUnavailable
from headgate.redis.backend import Backend
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from headgate.redis.stores.pinned_keys import KeyRecord, Parted, PinnedKeyStore

PATIENCE: Final = 1.0
"""Seconds for which somebody else is left to bring keys where they belong, before this client does it too."""
PAUSE: Final = 0.05
"""Seconds between two looks, at the most."""
LEARNING_PAUSE: Final = 0.2
LEASES_EVERY: Final = 1.0
"""Seconds between two looks at the leases of a slice where a key holds something still, at the most."""
_AWAY: Final = re.compile(r"(?:^|;)A(\d+)_([^;]+)")

Make = Callable[[Address], Awaitable[object]]


class PinnedKeys:
    """The keys of limiters with slices, as one client moves them.

    Args:
        server: the way to Redis.
        make: makes a slice exist.
    """

    def __init__(self, server: Backend, make: Make) -> None:
        self._server = server
        self._store = PinnedKeyStore(server)
        self._make = make
        self._limiters = LimiterStore(server)
        self._lease_ends: dict[str, float] = {}  # by the key of a slice
        self._most: dict[str, int] = {}  # slices that a limiter ever had, also where a failover forgot that
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def settle(self, whole: Address) -> Pins:
        """Have all keys of a limiter lie where they belong, and return over how many slices they are spread.

        A client that may not move them leaves that to others, and returns what is so at this moment.

        Raises:
            CoordinatorUnavailable: Redis does not answer for one of the slices.
        """
        async with self._locks[whole.key]:
            try:
                return await self._settle(whole)
            except AccessDenied:
                await asyncio.sleep(PAUSE)
                return Pins.read((await self._read(whole, "pins"))[0])[0]

    async def _settle(self, whole: Address) -> Pins:
        loop = asyncio.get_running_loop()
        until, last = loop.time(), Pins()
        while True:
            parts = await self._parts(whole)
            slices = int((await self._read(whole, "slices"))[0] or 1)
            found = list(await asyncio.gather(*map(self._look_at, parts)))
            change = due_change(found, slices)
            if change is None:
                return max(one.pins for one in found)
            needed = max(change.moving.slices, change.moving.before)
            if needed > len(parts):  # there are more since they were counted
                self._most[whole.key] = needed
                continue
            newest = max(one.pins for one in found)
            if newest != last and (newest.is_moving or newest == change.settled):  # somebody is at it, or soon will be
                until, last = loop.time() + PATIENCE * (newest.is_moving or 0.1), newest
            if loop.time() < until:
                await asyncio.sleep(random.uniform(0, PAUSE))  # noqa: S311 - so that not all clients do the same
                continue
            await self._carry_out(parts, found, change)

    async def _read(self, whole: Address, *names: str) -> list[str]:
        key = whole.shared[0]
        return [(value or b"").decode() for value in await self._server.command(key, "HMGET", key, *names)]

    async def _parts(self, whole: Address) -> list[Address]:
        """Return the slices that a limiter ever had."""
        sliced = int((await self._read(whole, "sliced"))[0] or 1)
        count = self._most[whole.key] = max(sliced, self._most.get(whole.key, 1))
        return [Address.of(whole.namespace, slice_name(whole.name, number)) for number in range(count)]

    async def _look_at(self, part: Address) -> PinnedSlice:
        found = await self._store.pin(part)
        if found is None:
            await self._make(part)
            found = await self._store.pin(part)
        if found is None:
            raise CoordinatorUnavailable(f"a slice of {part.shown!r} is gone")
        return found

    async def _carry_out(self, parts: Sequence[Address], found: Sequence[PinnedSlice], change: Change) -> None:
        """Take the steps of a change, as far as nobody else takes others."""
        epochs = [0 if number in change.doubted else one.epoch for number, one in enumerate(found)]
        late = [number for number in range(len(parts)) if change.moves_all or number in change.doubted]
        await asyncio.gather(*(self._store.pin(parts[number], change.moving, epochs[number]) for number in late))
        for source in range(len(parts)):
            only = None if change.moves_all else change.doubted - {source}
            if (only is None or only) and not await self._bring(parts, change.moving, source, only):
                return
        pairs = zip(parts, found, strict=True)
        await asyncio.gather(*(self._store.pin(part, change.settled, one.epoch) for part, one in pairs))

    async def _bring(
        self, parts: Sequence[Address], pins: Pins, source: int, only: frozenset[int] | None = None
    ) -> bool:
        """Bring what one slice has of keys that belong to others, or only to some; returns False under other pins."""
        cursor = -1
        while cursor:
            parted = await self._parted(parts, source, pins.slices, max(cursor, 0))
            cursor = parted.cursor
            by_slice: defaultdict[int, list[KeyRecord]] = defaultdict(list)
            for record in parted.records:
                if only is None or slice_of_key(record.key, pins.slices) in only:
                    by_slice[slice_of_key(record.key, pins.slices)].append(record)
            # First there, then not here any more: whoever dies in between brings them twice, which changes nothing.
            joins = (self._store.join(parts[at], pins.version, source, some) for at, some in by_slice.items())
            brought = [record for records in by_slice.values() for record in records]
            if not all(await asyncio.gather(*joins)):
                return False
            if brought and not await self._store.join(parts[source], pins.version, source, brought):
                return False
        return True

    async def _parted(self, parts: Sequence[Address], source: int, slices: int, cursor: int) -> Parted:
        """Return a look at some keys of a slice, once it is known what they hold there.

        Meanwhile the others are looked at in turn: one that failed over begins to learn with that, too.
        """
        for other in itertools.cycle(parts):
            parted = await self._store.parted(parts[source], slices, cursor)
            if not parted.learning_ms:
                return parted
            await asyncio.sleep(min(parted.learning_ms / 1000, LEARNING_PAUSE))
            await self._look_at(other)
        raise AssertionError(parts)

    async def tidy(self, whole: Address) -> None:
        """Tell each slice what of its keys is held elsewhere still, for keys that nobody waits for.

        Raises:
            CoordinatorUnavailable: Redis does not answer for one of the slices.
        """
        pins = await self.settle(whole)
        if pins.version:
            parts = await self._parts(whole)
            for source in range(len(parts)):
                await self._bring(parts, pins, source)

    async def recount(self, whole: Address, pins: Pins, key: str) -> tuple[bool, bool]:
        """Tell the slice of a key, encoded, what the key holds at others.

        Returns:
            Whether that is less than it knew, and whether it may be something still.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        parts = await self._parts(whole)
        own = slice_of_key(key, pins.slices)
        parted = await self._store.parted(parts[own], pins.slices, key=key)
        known = _AWAY.findall("".join(record.text for record in parted.records))
        is_less = False
        for source in {int(number) for number, _ in known}:
            await self._end_leases(parts[source])
            there = await self._store.parted(parts[source], pins.slices, key=key)
            if not there.learning_ms and not there.is_gone:
                held = [KeyRecord(key, _held(record.text)) for record in there.records]
                is_heard = await self._store.join(parts[own], pins.version, source, held)
                before = sorted(rest for number, rest in known if int(number) == source)
                after = sorted(filter(None, ";".join(record.text for record in held).split(";")))
                is_less |= is_heard and before != after  # else the pins have changed since, and nothing else
        return is_less, bool(known or parted.learning_ms)

    async def _end_leases(self, part: Address) -> None:
        """End what the dead hold at a slice, for perhaps nobody else calls it, as their leases are over."""
        now = asyncio.get_running_loop().time()
        if now >= self._lease_ends.get(part.key, 0.0):
            left_ms = await self._limiters.sweep(part)
            self._lease_ends[part.key] = now + min(left_ms / 1000, LEASES_EVERY)


def _held(record: str) -> str:
    """Return what is held of a record, and nothing of what is owed.

    >>> _held("slots:5;tokens=900;A3_slots:2")
    'slots:5'
    """
    return ";".join(entry for entry in record.split(";") if ":" in entry and not entry.startswith("A"))
