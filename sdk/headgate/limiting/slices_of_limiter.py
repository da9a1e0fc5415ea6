"""A limiter may be spread over slices: each key has one, which is found by its name, and may become another."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic
from typing import Final

from headgate._util.tasks import stop
from headgate.core.limiting.amounts import NO_KEY, RequestedAmounts, amounts_text, encode_key
from headgate.core.limiting.calls import MOVED, PARTS, Refusal
from headgate.core.limiting.pins import Pins, slice_of_hold, slice_of_key
from headgate.core.limits import Limit, bounding, limits_of
from headgate.core.limits.bands import asked_band
from headgate.core.limits.shadow import shadow_fields
from headgate.core.names import slice_name
from headgate.errors import AccessDenied, HeadgateError
from headgate.limiting.limiter_slice import LimiterSlice
from headgate.namespace.pinned_keys import PinnedKeys
from headgate.redis.keys import Address

RECOUNT_EVERY: Final = 0.1
"""Seconds between two looks at what waiting keys still hold where they were before."""
MOST_RECOUNTED: Final = 64
"""Keys of one such look."""
MOST_KEPT: Final = 10_000
"""Keys of which it is remembered that they hold nothing elsewhere."""
KEPT_FOR: Final = 3.0
"""Seconds for which that is so: a process that stood still may yet say that they do, as it knew it before."""
NO_BAND: Final = -1
"""Stands for a band in which nothing is in hand."""
FIRST_CHANGE: Final = 2
"""Version of the pins after it; later ones do not say where keys were before the last."""


class SlicesOfLimiter:
    """One session has these slices of a limiter open; each is opened as a key comes for it.

    Args:
        make: returns a slice that is not started.
        address: of the limiter.
        pinned: moves keys; None for a limiter that never has slices.

    Attributes:
        first: the slice under the limiter's own key.
        count: slices that there ever were, as far as is known.
    """

    def __init__(self, make: Callable[[Address], LimiterSlice], address: Address, pinned: PinnedKeys | None) -> None:
        self._make, self._address, self._pinned = make, address, pinned
        self._pins = Pins()
        self._fields: Mapping[str, str] = {}
        self._limits: Mapping[str, Limit] = {}
        self._of_all: frozenset[str] = frozenset()  # names of limits, and shadow limits, of all keys together
        self._bands = ""  # of keys
        self._passing: frozenset[str] = frozenset()  # names of limits of each key that are no slots
        self._opening = asyncio.Lock()
        self._waiting: Counter[str] = Counter()  # encoded keys that were at another slice before, and wait
        self._whole: tuple[Pins, dict[tuple[str, int], float]] = Pins(), {}
        """Keys that hold nothing elsewhere under these pins, with their slice's epoch, for another may have lost that;
        and until when this is believed."""
        self._recounting: asyncio.Task[None] | None = None
        self._next_look: asyncio.TimerHandle | None = None
        self._for_later: asyncio.Task[None] | None = None
        self.first = make(address)
        self.count = 1
        self._there = {0: self.first}

    def __len__(self) -> int:
        """Return how many holds and waits there are."""
        return sum(len(at.machine) for at in self._there.values())

    async def start(self) -> None:
        """Begin to hear hints and to make calls."""
        await self.first.calls.start()
        if self.count > 1 and self._pinned is not None:
            await self._learn(self._pinned)

    def adopt(self, fields: Mapping[str, str], limits: Mapping[str, Limit]) -> None:
        """Go by the limiter's settings."""
        self._fields, self._limits = fields, limits
        self.count = max(self.count, int(fields.get("sliced") or 1))
        self._of_all = bounding(limits, shadow_fields(fields)[0])
        self._bands = fields.get("bands", "")
        key_limits = limits_of(fields.get("key_limits", ""))
        self._passing = frozenset(name for name, limit in key_limits.items() if limit.form != "at_once")
        for at in tuple(self._there.values()):
            at.adopt(fields, limits)

    def forked(self) -> None:
        """Make no call any more."""
        self._recounting = self._for_later = self._next_look = None
        for at in self._there.values():
            at.calls.forked()

    async def close(self, refusal: Refusal) -> None:
        """Release all that is held and refuse those who wait; never longer than half a second."""
        await stop(self._recounting)
        if self._next_look is not None:
            self._next_look.cancel()
        await stop(self._for_later)
        await asyncio.gather(*(at.close(refusal) for at in self._there.values()))

    def number_of(self, key: str) -> int:
        """Return the number of an encoded key's slice."""
        return slice_of_key(key, self._pins.slices) if self._pins.slices > 1 else 0

    def part_of(self, key: str, amounts: Mapping[str, int]) -> RequestedAmounts | None:
        """Return what an encoded key takes at the first slice of limits of all keys together; None for nothing."""
        if not self._of_all or not self.number_of(key):
            return None
        part = {name: number for name, number in amounts.items() if number and name in self._of_all}
        return RequestedAmounts(part, amounts_text(part)) if part else None

    def band_of_parts(self, key: str | None, band: int | None) -> int | None:
        """Return the band in which parts of a key's calls are in hand, beside those of other keys.

        None and a band mean what they do for calls without a key. Where no such call may have the key's band, which
        a reserve or shedding goes by, each part is asked for by its name: :data:`NO_BAND`.
        """
        bands = self._bands
        if not bands:
            return band
        asked = asked_band(bands, encode_key(key), band)
        if asked == asked_band(bands, NO_KEY, band):
            return band
        return asked if asked_band(bands, NO_KEY, asked) == asked else NO_BAND

    @property
    def has_parts(self) -> bool:
        """Whether limits bound all keys together, so that what other slices hold needs a part at the first."""
        return bool(self._of_all)

    def learn_of_all(self, names: Iterable[str]) -> None:
        """Take these limits for some that bound all keys together, until the settings that say so are heard."""
        self._of_all = self._of_all.union(names)

    def keeps(self, amounts: Iterable[str]) -> bool:
        """Return whether what a key has of these limits is as good later as now."""
        return self._passing.isdisjoint(amounts)

    def at(self, key: str) -> LimiterSlice | None:
        """Return the slice of an encoded key; None where it is not open."""
        return self._there.get(self.number_of(key))

    async def open(self, key: str) -> LimiterSlice:
        """Return the slice of an encoded key, opened if it is not."""
        return await self._numbered(self.number_of(key))

    def open_soon(self, key: str) -> None:
        """Open the slice of an encoded key, for whoever asks again; one at a time."""
        if self._for_later is None or self._for_later.done():
            self._for_later = asyncio.create_task(self._open_it(key), name=f"headgate slice of {self._address.name}")

    async def _open_it(self, key: str) -> None:
        with contextlib.suppress(HeadgateError):  # whoever asks again hears of it
            await self.open(key)

    async def all(self) -> list[LimiterSlice]:
        """Return all slices that there ever were, opened."""
        return [await self._numbered(number) for number in range(max(self.count, self._pins.slices))]

    async def of_hold(self, hold: str) -> tuple[LimiterSlice, list[LimiterSlice]]:
        """Return the slice that the id of a hold names, and all others."""
        there = await self.all()
        named = slice_of_hold(hold) if slice_of_hold(hold) < len(there) else 0
        return there[named], there[:named] + there[named + 1 :]

    async def before(self, key: str) -> list[LimiterSlice]:
        """Return the slices where an encoded key was before, and may hold something.

        Raises:
            CoordinatorUnavailable: Redis does not answer for one of them.
        """
        own, last = self.number_of(key), slice_of_key(key, self._pins.before)
        if self._pins.version > FIRST_CHANGE and self._may_be_elsewhere(key):
            await self.recount(key)
            if self._may_be_elsewhere(key):
                there = await self.all()
                return there[:own] + there[own + 1 :]
        return [] if last == own else [await self._numbered(last)]

    async def _numbered(self, number: int) -> LimiterSlice:
        async with self._opening:
            at = self._there.get(number)
            if at is None:
                at = self._make(Address.of(self._address.namespace, slice_name(self._address.name, number)))
                at.adopt(self._fields, self._limits)
                await at.calls.start()
                self._there[number] = at
        return at

    async def follow(self, deadline: float) -> bool:
        """Learn where keys are now; returns False where that comes too late.

        Raises:
            CoordinatorUnavailable: Redis does not answer for a slice, so that keys which move have to wait.
        """
        if self._pinned is None:
            return False
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, deadline - monotonic())):
                await self._learn(self._pinned)
        return monotonic() < deadline

    async def _learn(self, pinned: PinnedKeys) -> None:
        self._pins = await pinned.settle(self._address)
        self.count = max(self.count, self._pins.slices, self._pins.before)

    async def worth_asking_again(self, refusal: Refusal, key: str, deadline: float) -> bool:
        """Return whether what was refused for an encoded key may be admitted: at another slice, or there by now.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        if refusal.why in (MOVED, PARTS):
            return await self.follow(deadline)
        if refusal.why != "late" or refusal.rule != "key":
            return False
        is_less = await self.recount(key)
        if not is_less:
            self._look_again()
        return is_less

    async def recount(self, key: str) -> bool:
        """Have the slice of an encoded key hear what that holds elsewhere; returns whether that is less than it knew.

        Raises:
            CoordinatorUnavailable: Redis does not answer.
        """
        pinned = self._pinned
        if pinned is None or not self._may_be_elsewhere(key):
            return False
        try:
            is_less, may_be_more = await pinned.recount(self._address, self._pins, key)
        except AccessDenied:  # nodes see to it, some seconds later
            return False
        if may_be_more:
            return is_less
        whole = self._whole[1]
        if len(whole) >= MOST_KEPT:
            whole.clear()
        whole[self._in_epoch(key)] = monotonic() + KEPT_FOR
        return False

    def _may_be_elsewhere(self, key: str) -> bool:
        if self._whole[0] != self._pins:
            self._whole = self._pins, {}
        return self._has_moved(key) and self._whole[1].get(self._in_epoch(key), 0.0) <= monotonic()

    def _has_moved(self, key: str) -> bool:
        pins = self._pins
        return pins.version > FIRST_CHANGE or slice_of_key(key, pins.before) != slice_of_key(key, pins.slices)

    def _in_epoch(self, key: str) -> tuple[str, int]:
        at = self.at(key)
        return key, at.machine.epoch if at is not None else 0

    def met(self) -> None:
        """Look again at what those hold elsewhere who wait, for an epoch began at a slice."""
        if self._waiting:
            self._look_again()

    @contextlib.contextmanager
    def recounting(self, key: str) -> Iterator[None]:
        """See to it, while an encoded key waits, that its slice hears what it holds elsewhere no more."""
        if self._pinned is None or self.count == 1:
            yield
            return
        self._waiting[key] += 1
        self._look_again()
        try:
            yield
        finally:
            self._waiting[key] -= 1
            if not self._waiting[key]:
                del self._waiting[key]

    def _look_again(self) -> None:
        """Learn soon where keys are: a session whose own keys are where they were hears of no change.

        A refused caller does not wait for it, since the master of another slice may be away.
        """
        if self._pinned is not None and self.count > 1 and (self._recounting is None or self._recounting.done()):
            task = self._recount(self._pinned)
            self._recounting = asyncio.create_task(task, name=f"headgate keys of {self._address.name}")

    async def _recount(self, pinned: PinnedKeys) -> None:
        """Look again and again, until none of the keys that wait holds anything elsewhere; and later once more."""
        while True:
            await asyncio.sleep(RECOUNT_EVERY)
            try:
                await self._learn(pinned)
                for key in [key for key in self._waiting if self._may_be_elsewhere(key)][:MOST_RECOUNTED]:
                    await self.recount(key)
            except HeadgateError:  # the next look may be answered
                if self._waiting:
                    continue
            if not any(map(self._may_be_elsewhere, self._waiting)):
                break
        if self._next_look is not None:
            self._next_look.cancel()
        if any(map(self._has_moved, self._waiting)):
            self._next_look = asyncio.get_running_loop().call_later(KEPT_FOR, self._look_again)
