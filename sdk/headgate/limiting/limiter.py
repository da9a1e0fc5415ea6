"""A limiter decides several limits at once, for any number of keys, with costs that may be known afterwards."""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from typing import Any, Final

from headgate._util.forks import FORKED, watch
from headgate._util.tasks import carried_through
from headgate.core.limiting.amounts import AmountChecker, encode_key
from headgate.core.limiting.calls import MOVED, PARTS, Refusal
from headgate.core.limiting.pins import part_of_hold
from headgate.core.limiting.samples import outcome_of
from headgate.core.limiting.slices import HandKey, Slice
from headgate.core.limits import Limit, limits_of
from headgate.core.limits.bands import check_band
from headgate.core.limits.hold_off import read_reason
from headgate.credit.calls import Ensure
from headgate.errors import Closed, DestinationFull, HeadgateError, InvalidValue, PolicyError, SessionExpired
from headgate.explain.levels import LimiterState
from headgate.limiting.admission import Admission
from headgate.limiting.asking import Asking, NotHeld, Request
from headgate.limiting.hold import Hold, check_hold, read_ttl
from headgate.limiting.limiter_slice import LimiterSlice
from headgate.limiting.refusals import Refused, error_of, refused_by
from headgate.limiting.slices_of_limiter import SlicesOfLimiter
from headgate.limiting.waiter import Waiter, WaitingLine
from headgate.namespace.pinned_keys import PinnedKeys
from headgate.options import DEFAULT_TIMEOUT
from headgate.redis.backend import WakeUps
from headgate.redis.keys import Address
from headgate.redis.stores.limiters import LimiterStore
from headgate.units import check_timeout, parse_duration, parse_timeout
from headgate.waits import Kind, Waits

ATTEMPT_WITHIN: Final = 2.5
"""Seconds that a decision without a wait may take."""
MOST_HERE: Final = 1 << 17
"""Holds and waits of one session at one limiter."""


class Limiter:
    """Admits under several limits at once, shared by all sessions. Get one from :meth:`Session.limiter`.

    Where many admissions come at a time and nobody waits, the session takes the amounts of many in hand, and admits
    without a call; see ``in_hand`` of :meth:`Session.limiter`.
    """

    def __init__(
        self, store: LimiterStore, wake_ups: WakeUps, address: Address, session: str, ttl: float,
        ensure_at: Callable[[Address], Ensure], met: Callable[[Address, int], None], *, waits: Waits,
        pinned: PinnedKeys | None = None, kind: Kind = "limiter", in_hand: bool = True,
        timeout: float = DEFAULT_TIMEOUT, lock: Any = None,
    ) -> None:  # fmt: skip
        self.lock = lock or contextlib.nullcontext()
        self.address = address
        self.name = address.name
        self.limits: Mapping[str, Limit] = {}
        self._amounts = AmountChecker()
        self._store = store
        self._session, self._ttl_ms = session, int(ttl * 1000)
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._open: dict[HandKey, Slice] = {}

        def make(at: Address) -> LimiterSlice:
            def met_epoch(epoch: int) -> None:
                met(at, epoch)
                self._slices.met()

            return LimiterSlice(
                store, wake_ups, at, session, self._ttl_ms, ensure_at(at), met_epoch, self.lock, self._open
            )

        self._slices = SlicesOfLimiter(make, address, pinned)
        self._first = self._slices.first
        self.line = WaitingLine(self._slices, self._loop)
        self._asking = Asking(self._slices, self.line, self._open, self.lock, self._check_room)
        self._in_hand = in_hand
        self._waits, self._kind = waits, kind
        self._closed = ""
        """Why nothing is admitted any more; empty while something is."""
        watch(self)

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{len(self._slices)} holds and waits"
        return f"Limiter({self.name!r}, {state})"

    # Its life.

    @property
    def at_once(self) -> frozenset[str]:
        """Names of those of its limits that are held at once."""
        return self._first.at_once

    @property
    def slices(self) -> int:
        """How many slices it ever had, as far as is known: 1 for none beside itself."""
        return self._slices.count

    @property
    def has_parts(self) -> bool:
        """Whether holds at other slices than the first are held only with a part at the first."""
        return self._slices.has_parts

    def slice_of(self, key: str | None) -> int:
        """Return the slice that a key is pinned to, as far as is known; 0 is the limiter itself."""
        return self._slices.number_of(encode_key(key))

    async def start(self) -> None:
        """Begin to hear hints and to make calls."""
        await self._slices.start()

    def check_options(self, *, in_hand: bool, timeout: float) -> None:
        """See that it was opened like that.

        Raises:
            InvalidValue: it was not.
        """
        for setting, asked, own in (("in_hand", in_hand, self._in_hand), ("timeout", timeout, self._timeout)):
            if asked != own:
                raise InvalidValue(
                    f"the session has the limiter {self.name!r} open with {own!r}, not {asked!r}; open another session",
                    setting=setting,
                )

    def adopt(self, fields: Mapping[str, str]) -> None:
        """Go by the limiter's settings, as the state spells them."""
        self.limits = limits_of(fields.get("limits", ""))
        self._amounts = AmountChecker(self.limits)
        self._slices.adopt(fields, self.limits)

    def forked(self) -> None:
        """Admit nothing from now on: what is held is the parent process's."""
        self._closed = FORKED
        self._open.clear()
        self._slices.forked()

    @carried_through
    async def close(self) -> None:
        """Release all that is held and refuse those who wait; never longer than half a second."""
        if self._closed:
            return
        self._closed = "it was closed"
        await self._slices.close(Refusal("failed", error=Closed(f"the limiter {self.name!r} was closed")))

    # Admissions.

    def admit(
        self, *, key: str | None = None, timeout: float | str | None = None, ttl: float | str | None = None,
        band: int | None = None, fail_if_late: int = False, outcome_of: Any = outcome_of, **amounts: int | str,
    ) -> Admission:  # fmt: skip
        """Return an ``async with`` block that is entered once all amounts are admitted; awaited, it gives the hold.

        Args:
            key: for whom, such as a tenant: limits of each key hold for it, and keys that wait take turns.
            timeout: seconds to wait, or ``"unlimited"``; the limiter's own (30 s) when None.
            ttl: seconds of the hold's lease, that it is renewed for; the session's when None.
            band: 0 goes first of those who wait, 7 last; that of the key, or 3, when None.
            outcome_of: returns an outcome, of the exception that ended the block; ``overload`` for a timeout, else
                ``ignore``. Only a limit that adapts goes by it.
            fail_if_late: refuse at once what, by all that is in line, would not be admitted in time.
            amounts: what is reserved, by the names of limits: ``requests=1, tokens=4000``.

        Raises:
            CreditTimeout: not admitted in time; nothing was taken. It names the limit that binds.
            Shed: the limiter is filled so far that it refuses that band.
            MessageTooLarge: more than a limit ever admits.
            PolicyError: it is no limiter, or takes no such key.
            InvalidValue, InvalidName: an amount, a name of a limit, or a key cannot be used.
            CoordinatorUnavailable: Redis does not answer in time.
            Closed: the limiter is closed.
        """
        check_timeout(timeout)
        if band is not None:
            check_band(band)
        return Admission(self, key, amounts, timeout, ttl, band, outcome_of, fail_if_late)

    def try_admit(
        self, *, key: str | None = None, band: int | None = None, **amounts: int | str
    ) -> "Hold | Refused | None":
        """Return a hold from what is in hand, or a refusal that is known to be true; never waits, makes no call.

        None says that it is not known: nothing is in hand, and it is fetched for the next time. :meth:`attempt` asks.

        Raises:
            InvalidValue, InvalidName: as :meth:`admit`.
        """
        if band is not None:
            check_band(band)
        return self.from_hand(key, amounts, band) or self.known(key, amounts, band)

    def from_hand(self, key: str | None, amounts: dict[str, Any], band: int | None = None) -> Hold | None:
        """Return a hold from what is in hand; None where that is not enough, whatever the reason."""
        try:
            slice_ = self._open.get(key if band is None else (key, band))
        except TypeError:  # it cannot be looked up, so it is no text
            encode_key(key)
            raise
        if slice_ is None:
            return None
        if slice_.hand.of_all:
            return self._asking.from_hand(key, slice_.key, amounts)
        return Hold(self._first, key, amounts, slice_) if slice_.take(amounts, monotonic()) else None

    def known(self, key: str | None, amounts: Mapping[str, int | str], band: int | None = None) -> Refused | None:
        """Return why an admission would be refused, where that is known, and have it in hand the next time."""
        asked, now, encoded = self._amounts.read(amounts), monotonic(), encode_key(key)
        if self._closed or not self._in_hand:
            return None
        refusal = self._asking.known(Request(key, encoded, asked, now, now, self._ttl_ms, band=band))
        return None if refusal is None else refused_by(self.name, refusal, now, asked.amounts, key)

    async def attempt(
        self, *, key: str | None = None, band: int | None = None, **amounts: int | str
    ) -> "Hold | Refused":
        """Return a hold, or a refusal: asks Redis where nothing is in hand, and never waits for others.

        Raises:
            MessageTooLarge, PolicyError, InvalidValue, InvalidName, CoordinatorUnavailable, Closed: as :meth:`admit`.
        """
        check_band(band)
        return self.from_hand(key, amounts, band) or await self.decide(key, amounts, band)

    async def decide(
        self, key: str | None, amounts: Mapping[str, int | str], band: int | None = None
    ) -> "Hold | Refused":
        """Return what Redis decides, without a wait for others; errors as :meth:`attempt`."""
        since, encoded, asked = monotonic(), encode_key(key), self._amounts.read(amounts)
        request = Request(
            key, encoded, asked, since, since + ATTEMPT_WITHIN, self._ttl_ms, False, band=band, from_hand=self._in_hand
        )
        try:
            held = await self._asking.admit(request)
        except NotHeld as one:
            refused = one
        else:
            if self._waits.listeners:
                self._waits.ended(self._kind, self.name, monotonic() - since, "admitted")
            return held
        now = monotonic()
        if self._waits.listeners:
            self._waits.ended(self._kind, self.name, now - since, "refused")
        if refused.refusal.why in ("late", "timeout", "shed", MOVED, PARTS):
            # It may be refused for what came in hand meanwhile.
            again = self.from_hand(key, asked.amounts, band)
            return again or refused_by(self.name, refused.refusal, now, asked.amounts, key)
        raise error_of(self.name, refused.refusal, now, now - since, asked.amounts, key, refused.trouble)

    async def admit_under(
        self, hold: str, amounts: Mapping[str, int | str], *, key: str | None = None,
        timeout: float | str | None = None, ttl: float | str | None = None, band: int | None = None,
        fail_if_late: bool = False,
    ) -> Hold:  # fmt: skip
        """Admit under an id of the caller's own: asked for again, elsewhere too, it is taken once while it is held.

        Redis only: a node lets nobody have ids of others.

        Args:
            hold: ``<word>.<number>``; all who use a word hear of admissions under it.
            amounts: as for :meth:`admit`.
            key: as for it.
            timeout: as for it.
            ttl: as for it.
            band: as for it.
            fail_if_late: as for it.

        Raises:
            CreditTimeout, MessageTooLarge, PolicyError, InvalidValue, InvalidName, CoordinatorUnavailable, Closed: as
                :meth:`admit`.
        """
        check_hold(hold)
        return await self.wait_for(key, dict(amounts), timeout, ttl, hold, band, late=fail_if_late)

    async def hold(self, hold: str, *, ttl: float | str | None = None) -> Hold:
        """Take up a hold by its id, wherever it was admitted: it is renewed here from now on, until it is released.

        Args:
            hold: the id, as :attr:`Hold.id` or :meth:`Hold.hand_over` gave it.
            ttl: seconds of its lease from now on; the session's when None.

        Raises:
            SessionExpired: there is no such hold any more.
            InvalidValue: not an id, or not a TTL.
            CoordinatorUnavailable: Redis does not answer in time.
        """
        self._check_open()
        check_hold(hold)
        ttl_ms = self._ttl_ms if ttl is None else read_ttl(ttl)
        named, others = await self._slices.of_hold(hold)
        found, unknown = await self._take_up([named], hold, ttl_ms)
        if found is None and others:
            found, more = await self._take_up(others, hold, ttl_ms)
            unknown = unknown or more
        if found is not None and not found.is_at(self._first) and (self._slices.has_parts or found.needs_part):
            found.part, unknown = await self._take_up([self._first], part_of_hold(hold), ttl_ms)
            if found.part is None and (unknown or found.needs_part):
                found.leave()
                found = None
        if found is None:
            raise unknown or SessionExpired(self.name, hold)
        return found

    async def _take_up(
        self, slices: Iterable[LimiterSlice], hold: str, ttl_ms: int
    ) -> tuple[Hold | None, HeadgateError | None]:
        """Take up a hold where it is; returns it, else why that is not known of one of them."""
        now = monotonic()
        asked = [(at, Waiter(at, now, self._loop)) for at in slices]
        for at, waiter in asked:
            waiter.reservation = at.machine.adopt(hold, ttl_ms, now, now + ATTEMPT_WITHIN, waiter)
            at.stir(now + ATTEMPT_WITHIN)
        refusals = await asyncio.gather(*(waiter.outcome() for _, waiter in asked))
        unknown = None
        for (at, waiter), refusal in zip(asked, refusals, strict=True):
            if refusal is None:
                return Hold(at, None, {}, None, waiter.reservation), None
            if refusal.why != "gone":
                unknown = error_of(self.name, refusal, monotonic(), 0.0, {}, None, at.calls.trouble)
        return None, unknown

    async def state(self, *, key: str | None = None) -> LimiterState:
        """Read how much of each limit is taken, of all together and of one key.

        Raises:
            InvalidName: the key cannot be used.
            PolicyError: it is no limiter.
            CoordinatorUnavailable: Redis does not answer.
        """
        levels = await self._store.levels(self.address, key=encode_key(key), slices=self._slices.count)
        if levels is None:
            raise PolicyError(f"{self.name!r} is not a limiter, or is gone")
        return LimiterState.of(self.name, key, levels)

    async def hold_off(self, seconds: float | str, *, reason: str = "", key: str | None = None) -> float:
        """Have nothing admitted for a while, on all hosts, by Redis' clock; afterwards it begins slowly.

        Args:
            seconds: from now on, cut to the longest that the limiter's settings allow; 0 ends a hold-off.
            reason: for people, up to 200 characters: ``"429 from the provider"``.
            key: of which alone; for all when None.

        Returns:
            The seconds that it lasts now: of two that overlap the longer one counts.

        Raises:
            InvalidValue, InvalidName: an argument cannot be used.
            PolicyError: it is no limiter.
            CoordinatorUnavailable: Redis does not answer.
        """
        ms = round(parse_duration(seconds, "seconds") * 1000)
        encoded, text = encode_key(key), read_reason(reason)
        found = await self._slices.all() if key is None else [await self._slices.open(encoded)]
        each = (at.hold_off(encoded, ms, text) for at in found)
        lasts = await asyncio.gather(*each, return_exceptions=True)  # each that answers, whichever does not
        for one in lasts:
            if isinstance(one, BaseException):
                raise one
        return max(one for one in lasts if isinstance(one, int)) / 1000

    # What holds and admissions ask of it.

    async def wait_for(
        self, key: str | None, amounts: dict[str, Any], timeout: float | str | None = None,
        ttl: float | str | None = None, hold: str = "", band: int | None = None, *, late: bool = False,
    ) -> Hold:  # fmt: skip
        """Wait for an admission; arguments and errors as :meth:`admit_under`."""
        asked, encoded = self._amounts.read(amounts), encode_key(key)
        patience = self._timeout if timeout is None else parse_timeout(timeout)
        since, ttl_ms = monotonic(), self._ttl_ms if ttl is None else read_ttl(ttl)
        waits = patience > 0 or not hold
        deadline = since + (patience if waits else ATTEMPT_WITHIN)
        request = Request(
            key, encoded, asked, since, deadline, ttl_ms, waits, hold, band, late,
            self._in_hand and ttl is None and not hold,
        )  # fmt: skip
        with self._waits.timed(self._kind, self.name):
            try:
                return await self._asking.admit(request)
            except NotHeld as refused:
                now, found, trouble = monotonic(), refused.refusal, refused.trouble
            raise error_of(self.name, found, now, now - since, asked.amounts, key, trouble)

    def _check_room(self, amounts: Mapping[str, int]) -> None:
        """See that it may ask for more."""
        self._check_open()
        if len(self._slices) >= MOST_HERE:
            reason = f"this session has {MOST_HERE} holds and waits there, the most allowed"
            raise DestinationFull(self.name, max(amounts.values()), reason, gate=True)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed(f"the limiter {self.name!r} cannot be used: {self._closed}")
