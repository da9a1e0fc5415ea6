"""A slice of a limiter is a limiter of its own in Redis: it decides for the keys that are pinned to it."""

import contextlib
import itertools
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, Final

from headgate.core.limiting.calls import Refusal, Reservation
from headgate.core.limiting.machine import Limiter as Machine
from headgate.core.limiting.pins import numbered
from headgate.core.limiting.samples import Outcome, Samples, one_sample
from headgate.core.limiting.slices import HandKey, LimiterSlices, Slice
from headgate.core.limits import Limit, bounding, limits_of
from headgate.core.limits.shadow import shadow_fields, tightest
from headgate.core.names import slice_number
from headgate.credit.calls import Ensure
from headgate.errors import DestinationFull, PolicyError
from headgate.limiting.limiter_calls import LimiterCalls
from headgate.namespace.defaults import durability_of
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore

AHEAD_MS: Final = 100
"""Of a rate, what may be in hand where the limiter does not say."""


class LimiterSlice:
    """One session's holds and waits at one slice of a limiter, and what it has in hand there.

    Args:
        store: the scripts.
        wake_ups: hints.
        address: the slice; of a limiter without others its own.
        session: the session's id.
        ttl_ms: of leases.
        ensure: makes it exist.
        met: called with a new epoch.
        lock: held while amounts in hand change.
        open_slices: amounts in hand at all slices of the limiter, by key.

    Attributes:
        name: of the limiter.
        at_once: names of those of its limits that are held at once.
    """

    def __init__(
        self, store: LimiterStore, wake_ups: WakeUps, address: Address, session: str, ttl_ms: int, ensure: Ensure,
        met: Callable[[int], None], lock: contextlib.AbstractContextManager[Any], open_slices: dict[HandKey, Slice],
    ) -> None:  # fmt: skip
        self.name = address.shown
        self.at_once: frozenset[str] = frozenset()
        self._store, self._session, self._lock = store, session, lock
        self.machine = Machine(session, lambda _, epoch: met(epoch))
        self.machine.ids = itertools.count(numbered(slice_number(address.name), 1))
        self.hand = LimiterSlices(self.machine, ttl_ms, monotonic, lock, open_slices)
        self.calls = LimiterCalls(store, wake_ups, address, session, ensure, self.machine, self.hand)
        self.stir = self.calls.stir

    def adopt(self, fields: Mapping[str, str], limits: Mapping[str, Limit]) -> None:
        """Go by the limiter's settings, as the state spells them; ``limits`` are those of all keys together."""
        self.at_once = frozenset(name for name, limit in limits.items() if limit.form == "at_once")
        ahead = int(fields.get("lease_ahead_ms") or AHEAD_MS) / 1000
        shadows, key_shadows = shadow_fields(fields)
        key_limits = limits_of(fields.get("key_limits", ""))
        self.hand.adopt(tightest(limits, shadows), tightest(key_limits, key_shadows), ahead)
        is_first = not slice_number(self.calls.address.name)
        self.hand.of_all = frozenset() if is_first else bounding(limits, shadows)
        adapting = next((name for name, limit in limits.items() if limit.adapt and is_first), None)
        samples = self.machine.samples
        if samples is None or samples.limit != adapting:
            self.machine.samples = Samples(self._session, adapting) if adapting else None
        self.hand.adapting = adapting or ""
        self.calls.secure(durability_of(fields))

    async def hold_off(self, key: str, ms: int, reason: str) -> int:
        """Have nothing admitted for a while, of an encoded key or of all; returns for how many ms.

        Raises:
            PolicyError: it is no limiter.
            DestinationFull: it has the most keys allowed.
            CoordinatorUnavailable: Redis does not answer.
        """
        address = self.calls.address
        code, lasts = await self._store.hold_off(address, self._session, key=key, ms=ms, reason=reason)
        if code == "UNKNOWN":
            await self.calls.ensure(True)
            code, lasts = await self._store.hold_off(address, self._session, key=key, ms=ms, reason=reason)
        if code == "KEYS":
            raise DestinationFull(self.name, 1, "it has the most keys allowed", gate=True)
        if code != "OK":
            raise PolicyError(f"{self.name!r} is not a limiter")
        return lasts

    async def close(self, refusal: Refusal) -> None:
        """Release all that is held and refuse those who wait; never longer than half a second."""
        self.hand.recall()
        self.machine.close(refusal)
        await self.calls.close()

    # What holds ask of it.

    def settle(self, one: Reservation, used: str) -> None:
        """Say what a hold used."""
        self.machine.settle(one, used)
        self.stir()

    def release(self, one: Reservation) -> None:
        """End a hold or a wait."""
        self.machine.release(one)
        self.stir()

    def end(self, one: Reservation, outcome: Outcome, amounts: Mapping[str, int]) -> None:
        """End a hold, and count how it ended, where a limit adapts."""
        samples = self.machine.samples
        if samples is not None and one.foreign:
            self.machine.settle(one, one_sample(outcome), "sample")
        elif samples is not None and (amount := amounts.get(samples.limit)):
            samples.add(outcome, monotonic() - one.heard_at, amount)
        self.machine.release(one)
        self.stir()

    def renew(self, one: Reservation, ttl_ms: int, done: Callable[[bool], None]) -> None:
        """Renew a hold."""
        self.machine.renew(one, ttl_ms, done)
        self.stir()

    def leave(self, one: Reservation) -> None:
        """Forget a hold."""
        self.machine.leave(one)

    def settle_slice(self, slice_: Slice, reserved: Mapping[str, int], used: Mapping[str, int]) -> None:
        """Say what a hold of what is in hand used."""
        with self._lock:
            passes = slice_.settle(reserved, used)
        if passes:
            slice_.hand.changed(slice_)

    def release_slice(self, slice_: Slice, amounts: Mapping[str, int]) -> None:
        """End a hold of what is in hand."""
        with self._lock:
            passes = slice_.put_back(amounts)
        if passes:
            slice_.hand.changed(slice_)
