"""A limiter is asked here: at the slice of a key, and for limits of all keys together at the first slice too.

A key that lies in another slice than the first takes part in these limits there, under a name of its own. Its callers
hold something only at both, so that each limit is decided by one script, exactly.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, Final

from headgate.core.limiting.amounts import RequestedAmounts
from headgate.core.limiting.calls import MOVED, PARTS, Refusal
from headgate.core.limiting.pins import name_of_part, part_of_hold
from headgate.core.limiting.slices import HandKey, Slice
from headgate.core.limits.bands import terms_text
from headgate.limiting.hold import Hold
from headgate.limiting.limiter_slice import LimiterSlice
from headgate.limiting.slices_of_limiter import NO_BAND, SlicesOfLimiter
from headgate.limiting.waiter import Waiter, WaitingLine
from headgate.options import MAX_TTL

_LONGER: Final = 1.0


@dataclass(frozen=True, slots=True)
class Request:
    """A request asks for an admission.

    Attributes:
        key: for which; None without one.
        encoded: the same, as the script takes it.
        asked: the amounts.
        since: when it was made.
        deadline: when it is given up.
        ttl_ms: of the lease.
        waits: whether it stands in line where it is not admitted at once.
        hold: an id of the caller's own; empty for one of the session's.
        band: that the caller names.
        late: whether it is refused at once where it would be late.
        from_hand: whether it may be admitted from what is in hand.
        hand_band: in which it is in hand, where that is not the one that the caller names.
    """

    key: str | None
    encoded: str
    asked: RequestedAmounts
    since: float
    deadline: float
    ttl_ms: int
    waits: bool = True
    hold: str = ""
    band: int | None = None
    late: bool = False
    from_hand: bool = True
    hand_band: int | None = None

    @property
    def hand_key(self) -> HandKey:
        """Under which a session has amounts for it in hand."""
        band = self.band if self.hand_band is None else self.hand_band
        return self.key if band is None else (self.key, band)


class NotHeld(Exception):
    """A request was refused.

    Attributes:
        refusal: why.
        trouble: why the last call there was not answered, if it was not.
    """

    def __init__(self, refusal: Refusal, trouble: BaseException | None) -> None:
        self.refusal, self.trouble = refusal, trouble
        super().__init__(refusal.why)

    def known_as(self, waited_for: Refusal) -> "NotHeld":
        """Return why it was refused, where the time was over as it was asked for again after it had waited."""
        if self.refusal.why != "unanswered" or self.trouble is not None:
            return self
        return NotHeld(replace(waited_for, why="timeout"), None)


class Asking:
    """One session asks for admissions at the slices of a limiter.

    Args:
        slices: of the limiter.
        line: of those who do nothing else meanwhile.
        hands: amounts in hand that can be handed out, by key; of all slices.
        lock: held while amounts in hand change.
        check: raises where nothing more is asked for.
    """

    def __init__(
        self, slices: SlicesOfLimiter, line: WaitingLine, hands: Mapping[HandKey, Slice],
        lock: contextlib.AbstractContextManager[Any], check: Callable[[Mapping[str, int]], None],
    ) -> None:  # fmt: skip
        self.slices, self.line, self.check = slices, line, check
        self._hands, self._lock = hands, lock

    def from_hand(self, key: str | None, hand_key: HandKey, amounts: dict[str, int]) -> Hold | None:
        """Return a hold from what is in hand; None where that, or its part of limits of all keys, is not there."""
        hold = self.half_from_hand(key, hand_key, amounts)
        if hold is not None and (slice_ := self._hands[hand_key]).hand.of_all:
            part = {name: number for name, number in amounts.items() if name in slice_.hand.of_all}
            band = self.slices.band_of_parts(key, hand_key[1] if isinstance(hand_key, tuple) else None)
            hold.part = self.half_from_hand(None, None if band is None else (None, band), part) if part else None
            if part and hold.part is None:
                hold.undo()
                return None
        return hold

    def half_from_hand(self, key: str | None, hand_key: HandKey, amounts: dict[str, int]) -> Hold | None:
        """Return a hold of what one slice has in hand."""
        slice_ = self._hands.get(hand_key)
        with self._lock:
            if slice_ is None or not slice_.take(amounts, monotonic()):
                return None
        return Hold(self.slices.first, key, amounts, slice_)

    def known(self, request: Request) -> Refusal | None:
        """Return why it would be refused, where that is known, and have it in hand the next time."""
        at, now, amounts = self.slices.at(request.encoded), monotonic(), request.asked.amounts
        if at is None:
            self.slices.open_soon(request.encoded)
            return None
        refusal = at.hand.missed(request.hand_key, amounts, now, hasty=True)
        part = self.slices.part_of(request.encoded, amounts)
        there = None if part is None else self._part_of(request, part)
        if refusal is None and there is not None and there.from_hand:
            refusal = self.slices.first.hand.missed(there.hand_key, there.asked.amounts, now, hasty=True)
        return refusal

    def _part_of(self, request: Request, part: RequestedAmounts) -> Request:
        """Return what is asked for at the first slice, but for its id and its lease."""
        band = self.slices.band_of_parts(request.key, request.band)
        return replace(
            request, key=None, encoded=name_of_part(request.encoded), asked=part, hand_band=band,
            from_hand=request.from_hand and band != NO_BAND,
        )  # fmt: skip

    async def admit(self, request: Request) -> Hold:
        """Return what is held, whichever slices decide it.

        Raises:
            NotHeld: it was refused.
            DestinationFull: the session has too many holds and waits there.
            CoordinatorUnavailable: Redis does not answer for slices of a key that moves.
            Closed: the limiter is closed.
        """
        while True:
            part = self.slices.part_of(request.encoded, request.asked.amounts)
            try:
                return await (self._with_part(request, part) if part else self._whole(request))
            except NotHeld as refused:
                refusal = refused.refusal
                if refusal.why == PARTS:
                    self.slices.learn_of_all(request.asked.amounts)
                if request.waits and refusal.why not in (MOVED, PARTS):
                    raise
                if not await self.slices.worth_asking_again(refusal, request.encoded, request.deadline):
                    raise

    async def _whole(self, request: Request) -> Hold:
        """Return what is held at the slice of its key, which decides it alone."""
        at = await self._slice_of(request)
        return (request.hold and await self._held_before(request)) or await _Half(self, request, at).ask()

    async def _slice_of(self, request: Request) -> LimiterSlice:
        """Return the slice of its key, before it is looked for elsewhere.

        Where that was long ago, as pins change meanwhile, that slice knows its id, or refuses it.
        """
        return self.slices.at(request.encoded) or await self.slices.open(request.encoded)

    async def _held_before(self, request: Request) -> Hold | None:
        """Return what is held under an id of the caller's own where its key was before."""
        before = await self.slices.before(request.encoded) if request.hold else []
        now = monotonic()
        asked = [(at, Waiter(at, now, asyncio.get_running_loop())) for at in before]
        for at, waiter in asked:
            waiter.reservation = at.machine.adopt(request.hold, request.ttl_ms, now, request.deadline, waiter)
            at.stir(request.deadline)
        unknown = None
        refusals = await asyncio.gather(*(waiter.outcome() for _, waiter in asked))
        for (at, waiter), refusal in zip(asked, refusals, strict=True):
            if refusal is None:
                return Hold(at, request.key, request.asked.amounts, None, waiter.reservation)
            if refusal.why != "gone":
                unknown = NotHeld(refusal, at.calls.trouble)
        if unknown is not None:
            raise unknown
        return None

    async def _with_part(self, request: Request, part: RequestedAmounts) -> Hold:
        """Return what is held at the slice of its key, with its part at the first.

        A caller waits for one of the two at a time. Slots of its key it keeps while it waits for its part, without
        which they are of no use to others of that key; rates and quotas it gives back, for they count from when they
        are used. Its part it never keeps while it waits at its slice.
        """
        at = await self._slice_of(request)
        before = await self._held_before(request)
        if before is not None and before.is_at(self.slices.first):
            return before  # its limits of all keys were decided there too
        id_ = request.hold or at.machine.new_id()
        ttl_ms = int(1000 * longer(request.ttl_ms / 1000)) if request.hold else request.ttl_ms
        there = replace(self._part_of(request, part), hold=part_of_hold(id_), ttl_ms=ttl_ms)
        own_half = _Half(self, replace(request, hold=id_), at, "&", keeps=self.slices.keeps(request.asked.amounts))
        part_half = _Half(self, there, self.slices.first)
        own_half.held = before
        try:
            while own_half.held is None or part_half.held is None:
                await (own_half.ask(part_half) if own_half.held is None else part_half.ask(own_half))
            if request.hold and request.waits:  # nobody renews them from now on, and one was held before the other
                await own_half.held.renew(request.ttl_ms / 1000)
        except BaseException as error:
            own_half.give_back()
            part_half.give_back()
            if isinstance(error, NotHeld) and (waited := own_half.waited_for or part_half.waited_for):
                raise error.known_as(waited) from None
            raise
        own_half.held.part = part_half.held
        return own_half.held


class _Half:
    """One half of an admission, or all of it, is decided at one slice.

    Args:
        asking: of the limiter.
        request: for this half.
        at: the slice.
        terms: behind its amounts.
        keeps: whether it is held while the other half waits.

    Attributes:
        held: what it has; None while that is not admitted.
        waited_for: what it stood in line for last; None where it never did.
    """

    def __init__(
        self, asking: Asking, request: Request, at: LimiterSlice, terms: str = "", *, keeps: bool = False
    ) -> None:
        self._asking, self._request, self._at, self.keeps = asking, request, at, keeps
        self._text = request.asked.text + terms_text(request.band, fail_if_late=request.late) + terms
        self._again = False  # whether its id was asked for before
        self.held: Hold | None = None
        self.waited_for: Refusal | None = None

    def give_back(self) -> None:
        """Leave it as if it had not been admitted."""
        if self.held is not None:
            self.held.undo()
            self.held = None

    async def ask(self, other: "_Half | None" = None) -> Hold:
        """Wait until it is held; what the other half holds is given back as this begins to wait, unless it keeps it."""
        request, slices = self._request, self._asking.slices
        if request.from_hand:
            self.held = self._asking.half_from_hand(request.key, request.hand_key, request.asked.amounts)
        if self.held is None:
            if request.from_hand:
                self._at.hand.missed(request.hand_key, request.asked.amounts, monotonic())
            with slices.recounting(request.encoded) if request.waits else contextlib.nullcontext():
                self.held = await self._ask(other)
        return self.held

    async def _ask(self, other: "_Half | None") -> Hold:
        request, asking, at = self._request, self._asking, self._at
        if request.hold:
            await at.calls.listen(request.hold.rpartition(".")[0])
        asking.check(request.asked.amounts)
        now = monotonic()
        waiter = Waiter(at, now, asyncio.get_running_loop())
        waiter.reservation = at.machine.admit(
            request.encoded, self._text, request.ttl_ms, now, request.deadline, waiter, waits=request.waits,
            hold=request.hold, again=self._again,
        )  # fmt: skip
        at.stir(request.deadline)
        self._again = True
        if other is not None and request.waits and not await waiter.soon(at.calls.patience) and not other.keeps:
            other.give_back()
        refusal = await (asking.line.outcome(waiter) if request.waits else waiter.outcome())
        self.waited_for = waiter.reservation.binding or self.waited_for
        if refusal is not None:
            raise NotHeld(refusal, at.calls.trouble)
        return Hold(at, request.key, request.asked.amounts, None, waiter.reservation)


def longer(ttl: float) -> float:
    """Return the lease in seconds of what counts beside a hold elsewhere, which ends first where nobody renews it.

    So nothing renews a hold that counts no more, and nothing is held at a slice alone.
    """
    return min(ttl + _LONGER, MAX_TTL)
