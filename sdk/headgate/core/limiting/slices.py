"""A slice has amounts admitted ahead for a key, which a session hands out and takes back without a call.

A slice is a hold of many admissions' amounts. It is taken only where many admissions come at a time and nobody waits,
hands out for a quarter of a second at the most, and then says what was used: what is held at once goes back with every
call, rates and quotas are settled once the last that it handed out is over.
"""

import contextlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.core.limiting.amounts import MAX_AMOUNT, amounts_text, encode_key
from headgate.core.limiting.calls import Refusal, Reservation, State
from headgate.core.limiting.machine import Limiter
from headgate.core.limits import Limit
from headgate.core.limits.bands import terms_text

LIFE: Final = 0.25
"""Seconds for which a slice hands out."""
IDLE: Final = 0.1
"""Seconds without an admission after which it is given back."""
MANY: Final = 8
"""Admissions of a key within :data:`IDLE` from which on a slice is worth more than it costs."""
FIRST: Final = 16
"""Admissions that a first slice is for."""
MOST_AHEAD: Final = 1 << 20
GROWTH: Final = 4
BACK_OFF: Final = 1.0
"""Seconds without slices after others waited."""
MOST_KEYS: Final = 10_000
"""Keys of which a session may have slices, or know how many admissions come."""
SHARE: Final = 4
"""A session takes in hand at most this fraction of a concurrency limit, a burst or a quota."""
REFUSED_FOR: Final = 0.05
"""Seconds for which a refusal is believed that does not say when to try again."""
HandKey = str | None | tuple[str | None, int]
"""A key, and with it the band where callers name one."""


@dataclass(slots=True, eq=False)
class Slice:
    """A slice holds amounts in hand for one key, or for a band of it.

    Attributes:
        total: what was admitted, by the names of limits.
        at_once: the names of those that are held at once: what is not used any more can be handed out again.
        left: what can be handed out; below zero where more was used than reserved.
        until: when it stops to hand out; minus infinity once it does not.
        out: holds that it handed out and that are not over.
        uses: admissions so far.
        reservation: the hold in Redis; None until it is asked for.
        gone: whether it is held no more, and so is nothing that it handed out.
    """

    hand: "LimiterSlices"
    key: HandKey
    total: dict[str, int]
    at_once: tuple[str, ...]
    left: dict[str, int] = field(default_factory=dict)
    until: float = -math.inf
    out: int = 0
    uses: int = 0
    reservation: Reservation | None = None
    gone: bool = False

    def take(self, amounts: Mapping[str, int], now: float) -> bool:
        """Hand out amounts, if all of them are there."""
        left = self.left
        if now >= self.until:
            return False
        for name, number in amounts.items():
            if number.__class__ is not int or not 0 <= number <= left.get(name, -1):
                return False
        for name, number in amounts.items():
            left[name] -= number
        self.out += 1
        self.uses += 1
        return True

    def put_back(self, amounts: Mapping[str, int]) -> bool:
        """Take back what a hold had at once, which is over; returns whether that is to be passed on."""
        self.out -= 1
        for name in self.at_once:
            self.left[name] += amounts.get(name, 0)
        return self.until == -math.inf

    def settle(self, reserved: Mapping[str, int], used: Mapping[str, int]) -> bool:
        """Count what a hold used of what it reserved; returns whether that is to be passed on."""
        for name, number in used.items():
            self.left[name] += reserved[name] - number
        return self.until == -math.inf

    def in_line(self, reservation: Reservation) -> None:
        """Do nothing: what is taken in hand never waits."""

    def admitted(self, reservation: Reservation) -> None:
        """Begin to hand out."""
        self.hand.arrived(self, reservation)

    def refused(self, reservation: Reservation, refusal: Refusal) -> None:  # noqa: ARG002 - as all takers
        """Note that there is nothing to be had ahead."""
        self.hand.refused(self, refusal)

    def lost(self, reservation: Reservation) -> None:  # noqa: ARG002 - as all takers
        """Note that nothing of it is held any more."""
        self.gone = True
        self.hand.close_one(self)


@dataclass(slots=True)
class Demand:
    """A demand counts how many admissions come for one key, and what for.

    Attributes:
        ahead: how many admissions the next slice is for.
        since: when the count began.
        misses: admissions since then that found nothing in hand.
        shape: the largest amounts among them.
        off_until: until when no slice is asked for.
        asked: whether one is asked for.
        refusal: of a slice for a single admission, and so of any like it; None where none is known.
    """

    ahead: int = FIRST
    since: float = -math.inf
    misses: int = 0
    shape: dict[str, int] = field(default_factory=dict)
    off_until: float = -math.inf
    asked: bool = False
    refusal: Refusal | None = None


class LimiterSlices:
    """One session holds these slices at one limiter.

    Args:
        machine: has them admitted.
        ttl_ms: of their leases.
        clock: returns the time.
        lock: held while amounts change, where other threads hand out of them.
        open_slices: those that hand out, by key; of a limiter over several slots those of all of them.

    Attributes:
        open: slices that hand out, by key.
        stir: called when a call is due, with the time at which a wait that begins is over.
        look_at: when :meth:`look` has something to do.
        of_all: names of limits of all keys together, of which a part is asked for at another slice.
    """

    def __init__(
        self,
        machine: Limiter,
        ttl_ms: int,
        clock: Callable[[], float],
        lock: contextlib.AbstractContextManager[Any],
        open_slices: dict[HandKey, Slice] | None = None,
    ) -> None:
        self.open: dict[HandKey, Slice] = {} if open_slices is None else open_slices
        self.stir: Callable[[float], None] = lambda _at: None
        self._machine = machine
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._lock = lock
        self._limits: Mapping[str, Limit] = {}
        self._key_limits: Mapping[str, Limit] = {}
        self._ahead = 0.1
        self.adapting = ""
        self.of_all: frozenset[str] = frozenset()
        self._demands: dict[HandKey, Demand] = {}
        self._off_until = -math.inf
        self._seen: dict[HandKey, int] = {}
        self.look_at = math.inf

    def adopt(self, limits: Mapping[str, Limit], key_limits: Mapping[str, Limit], ahead: float) -> None:
        """Go by these limits; ``ahead``: seconds of a rate that may be in hand."""
        self._limits, self._key_limits, self._ahead = limits, key_limits, ahead
        self.recall(0.0)

    def missed(self, key: HandKey, amounts: Mapping[str, int], now: float, *, hasty: bool = False) -> Refusal | None:
        """Note an admission that found nothing in hand; returns why it would be refused, where that is known.

        Args:
            key: of the admission.
            amounts: that it is for.
            now: when.
            hasty: whether it does not ask Redis itself: then a slice is worth its call for a single one.
        """
        demand = self._demands.get(key)
        if demand is None:
            if len(self._demands) >= MOST_KEYS:
                self._demands.clear()
            demand = self._demands[key] = Demand()
        if now - demand.since > IDLE:
            demand.since, demand.misses, demand.shape = now, 0, dict(amounts)
        demand.misses += 1
        for name, number in amounts.items():
            if number > demand.shape.get(name, 0):
                demand.shape[name] = number
        if hasty or demand.misses >= MANY:
            if key in self.open and not demand.asked:
                demand.ahead = min(demand.ahead * GROWTH, MOST_AHEAD)  # it was used up before its time
            self._ask(key, demand, now, hasty=hasty)
        refusal = demand.refusal
        if refusal is not None and now < (refusal.retry_at or 0.0) and _is_like(amounts, demand.shape):
            return refusal
        return None

    def _ask(self, key: HandKey, demand: Demand, now: float, *, hasty: bool = False) -> None:
        if demand.asked or now < max(demand.off_until, self._off_until) or not any(demand.shape.values()):
            return
        if demand.shape.get(self.adapting):
            return  # what is in hand would count as held
        total = {}
        for name, number in demand.shape.items():
            if number:
                most = max(1, self._most(key, name, number)) if hasty else self._most(key, name, number)
                if most < (1 if self._is_at_once(name) else 2) and not hasty:
                    return  # as good as an admission of its own
                total[name] = number * min(demand.ahead, most)
        demand.asked = True
        one = Slice(self, key, total, tuple(name for name in total if self._is_at_once(name)))
        of, band = key if isinstance(key, tuple) else (key, None)
        text = amounts_text(total) + terms_text(band) + ("&" if self.of_all else "")
        self._machine.admit(encode_key(of), text, self._ttl_ms, now, now + LIFE, one, waits=False)
        self.stir(now + LIFE)

    def _is_at_once(self, name: str) -> bool:
        limit = self._limits.get(name)
        return limit is not None and limit.form == "at_once"

    def _most(self, key: HandKey, name: str, number: int) -> int:
        """Return for how many admissions there may be in hand: a share of a limit, of a rate what is soon there."""
        most = MAX_AMOUNT // number
        for limits in (self._limits, self._key_limits if key is not None else {}):
            if (limit := limits.get(name)) is not None:
                soon = limit.rate * self._ahead if limit.rate else math.inf
                most = min(most, int(min(limit.most // SHARE, soon) // number))
        return most

    # What becomes of a slice.

    def arrived(self, one: Slice, reservation: Reservation) -> None:
        """Have a slice hand out; one before it stops."""
        now = self._clock()
        demand = self._demands.setdefault(one.key, Demand())
        demand.asked, demand.refusal = False, None
        before = self.open.get(one.key)
        one.reservation = reservation
        with self._lock:
            one.left = dict(one.total)
            if now >= max(self._off_until, demand.off_until):
                one.until = min(now + LIFE, reservation.use_until)
                self.open[one.key] = one
        if before is not None:
            before.hand.close_one(before)
        if one.until == -math.inf:
            self.changed(one)
        self.look_at = min(self.look_at, now + IDLE)

    def refused(self, one: Slice, refusal: Refusal) -> None:
        """Ask for less the next time, and after a refusal of the least for none until it could be had."""
        now = self._clock()
        demand = self._demands.setdefault(one.key, Demand())
        demand.asked = False
        if any(number > demand.shape.get(name, 0) for name, number in one.total.items()):
            demand.ahead = max(1, demand.ahead // GROWTH)
            return
        if refusal.why == "moved":  # the next one is asked for at another slot
            return
        until = refusal.retry_at if refusal.retry_at is not None else now + REFUSED_FOR
        demand.refusal = Refusal(refusal.why, refusal.limit, refusal.rule, until, refusal.most)
        demand.off_until = until

    def recall(self, seconds: float = BACK_OFF) -> None:
        """Give back all that is in hand, and take nothing for so long: others wait, or the limits changed."""
        self._off_until = max(self._off_until, self._clock() + seconds)
        for one in self._own():
            self.close_one(one)

    def _own(self) -> list[Slice]:
        return [one for one in tuple(self.open.values()) if one.hand is self]

    def look(self, now: float) -> None:
        """Give back what was not used since the last look; ask for more where a slice that is used soon ends."""
        seen: dict[HandKey, int] = {}
        own = self._own()
        for one in own:
            key = one.key
            if one.uses == self._seen.get(key, 0) or now >= one.until:
                self._seen.pop(key, None)
                self.close_one(one)
                continue
            seen[key] = one.uses
            if one.until - now <= IDLE and one.uses >= MANY:
                demand = self._demands.setdefault(key, Demand())
                demand.ahead = max(FIRST, min(2 * one.uses, MOST_AHEAD))
                demand.shape = demand.shape or dict.fromkeys(one.total, 1)
                self._ask(key, demand, now)
        self._seen = seen
        self.look_at = now + IDLE if own else math.inf

    def close_one(self, one: Slice) -> None:
        """Have a slice hand out no more."""
        with self._lock:
            one.until = -math.inf
            if self.open.get(one.key) is one:
                del self.open[one.key]
        self.changed(one)

    def changed(self, one: Slice) -> None:
        """Say what is used of a slice that hands out no more; with the last of what it handed out it ends."""
        held = one.reservation
        if held is None or held.state is not State.HELD:
            return
        with self._lock:
            over = one.out == 0
            used = {name: max(0, number - one.left[name]) for name, number in one.total.items()}
        if over:
            charged = {name: number for name, number in used.items() if name not in one.at_once}
            if any(number != one.total[name] for name, number in charged.items()):
                self._machine.settle(held, amounts_text(charged))
            self._machine.release(held)
        elif one.at_once:
            held.amounts = amounts_text(used)  # if Redis loses it, this is claimed
            self._machine.settle(held, amounts_text({name: used[name] for name in one.at_once}))
        self.stir(math.inf)


def _is_like(amounts: Mapping[str, int], shape: Mapping[str, int]) -> bool:
    return all(amounts.get(name, 0) >= number for name, number in shape.items())
