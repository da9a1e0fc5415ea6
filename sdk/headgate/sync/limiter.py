"""Threads are admitted to limiters by arithmetic under a lock, from what is in hand; else on the loop thread."""

# ruff: noqa: SLF001 -- a hold is its limiter's other half, and both are those of the ones they wrap

from collections.abc import Callable
from time import monotonic
from typing import Any, Self

import headgate.limiting.hold
import headgate.limiting.limiter
from headgate._util.inner_property import InnerProperty
from headgate.core.limiting.amounts import amounts_text, encode_key
from headgate.core.limiting.samples import Outcome, outcome_of
from headgate.core.limits.bands import check_band
from headgate.limiting.admission import OutcomeOf, release_after
from headgate.limiting.refusals import Refused
from headgate.sync.faces import Face, blocking
from headgate.sync.thread import LoopThread
from headgate.units import check_timeout


class Hold:
    """This is :class:`headgate.Hold` for threads: any thread may settle and release it."""

    __slots__ = ("_inner", "_limiter")

    def __init__(self, limiter: "Limiter", inner: headgate.limiting.hold.Hold) -> None:
        self._limiter = limiter
        self._inner = inner

    def __repr__(self) -> str:
        return repr(self._inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    amounts = InnerProperty(headgate.limiting.hold.Hold.amounts)
    id = InnerProperty(headgate.limiting.hold.Hold.id)
    lost = InnerProperty(headgate.limiting.hold.Hold.lost)
    expires_in = InnerProperty(headgate.limiting.hold.Hold.expires_in)

    @property
    def key(self) -> str | None:
        """The key for which it was admitted; None without one."""
        return self._inner.key

    def settle(self, **used: int | str) -> None:
        """Say what was used of what it reserved; errors as :meth:`headgate.Hold.settle`."""
        inner, limiter = self._inner, self._limiter
        slice_, passes = inner._slice, False
        if inner.part is not None:
            limiter._thread.run(_settle(inner, used))
            return
        with limiter._lock as is_free:
            if not is_free:
                limiter._thread.tell(lambda: self.settle(**used))
                return
            reserved, counted = inner.count(used)
            if counted and slice_ is not None:
                passes = slice_.settle(reserved, counted)
        if passes and slice_ is not None:
            limiter._thread.tell(slice_.hand.changed, slice_)
        elif counted and inner._reservation is not None:
            limiter._thread.tell(inner._limiter.settle, inner._reservation, amounts_text(counted))

    @property
    def outcome(self) -> Outcome:
        """How it goes, as its release will say; as :attr:`headgate.Hold.outcome`."""
        return self._inner.outcome

    @outcome.setter
    def outcome(self, outcome: Outcome) -> None:
        self._inner.outcome = outcome

    def release(self, outcome: Outcome | None = None) -> None:
        """End it: what it held at once is free for others; as :meth:`headgate.Hold.release`."""
        inner, limiter = self._inner, self._limiter
        if outcome is not None:
            inner.outcome = outcome
        slice_ = inner._slice
        if slice_ is None or inner.part is not None:
            limiter._thread.tell(inner.release)
            return
        with limiter._lock as is_free:
            if not is_free:
                limiter._thread.tell(self.release)
                return
            if inner._over:
                return
            inner._over = True
            passes = slice_.put_back(inner._amounts)
        if passes:
            limiter._thread.tell(slice_.hand.changed, slice_)

    def renew(self, ttl: float | str | None = None) -> None:
        """Begin its lease again, and return when that is done; errors as :meth:`headgate.Hold.renew`."""

        async def renew() -> None:
            await self._inner.renew(ttl)

        self._limiter._thread.run(renew())

    def hand_over(self, ttl: float | str | None = None) -> str:
        """Leave it to another process; returns its id; errors as :meth:`headgate.Hold.hand_over`."""
        return self._limiter._thread.run(self._inner.hand_over(ttl))


class Admission:
    """An admission is granted on entering ``with limiter.admit(...)``, and held inside; :meth:`wait` gives the hold."""

    __slots__ = ("_ask", "_hold", "_rule")
    _hold: Hold  # there from entering on

    def __init__(self, ask: Callable[[], Hold], rule: OutcomeOf) -> None:
        self._ask, self._rule = ask, rule

    def wait(self) -> Hold:
        """Return the hold, once it is admitted; it is to be released."""
        return self._ask()

    def __enter__(self) -> Hold:
        self._hold = self._ask()
        return self._hold

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._hold.release()
        else:
            release_after(self._hold, error, self._rule)


class Limiter(Face[headgate.limiting.limiter.Limiter]):
    """This is :class:`headgate.Limiter` for threads. Get one from :meth:`Session.limiter`."""

    def __init__(self, thread: LoopThread, inner: headgate.limiting.limiter.Limiter) -> None:
        super().__init__(thread, inner)
        self._lock = inner.lock

    @property
    def at_once(self) -> frozenset[str]:
        """Names of those of its limits that are held at once."""
        return self._inner.at_once

    def admit(
        self, *, key: str | None = None, timeout: float | str | None = None, ttl: float | str | None = None,
        band: int | None = None, fail_if_late: int = False, outcome_of: Any = outcome_of, **amounts: int | str,
    ) -> Admission:  # fmt: skip
        """Return a ``with`` block that is entered once all amounts are admitted; as :meth:`headgate.Limiter.admit`."""
        check_timeout(timeout)
        check_band(band)

        def ask() -> Hold:
            hold = self._from_hand(key, amounts, band) if ttl is None else None
            if hold is None:
                work = self._inner.wait_for(key, amounts, timeout, ttl, band=band, late=bool(fail_if_late))
                hold = Hold(self, self._thread.run(work, undo=headgate.limiting.hold.Hold.release))
            return hold

        return Admission(ask, outcome_of)

    def try_admit(
        self, *, key: str | None = None, band: int | None = None, **amounts: int | str
    ) -> Hold | Refused | None:
        """Return a hold from what is in hand, a refusal that is known, or None; as :meth:`headgate.Limiter.try_admit`.

        Amounts that are not in hand are fetched for the next time by the loop thread, which this waits for.
        """
        check_band(band)
        hold = self._from_hand(key, amounts, band)
        if hold is not None:
            return hold

        async def look() -> headgate.limiting.hold.Hold | Refused | None:
            return self._inner.from_hand(key, amounts, band) or self._inner.known(key, amounts, band)

        found = self._thread.run(look())
        return Hold(self, found) if isinstance(found, headgate.limiting.hold.Hold) else found

    def attempt(self, *, key: str | None = None, band: int | None = None, **amounts: int | str) -> Hold | Refused:
        """Return a hold, or a refusal; never waits for others; as :meth:`headgate.Limiter.attempt`."""
        check_band(band)
        hold = self._from_hand(key, amounts, band)
        if hold is not None:
            return hold
        decision = self._thread.run(self._inner.decide(key, amounts, band))
        return Hold(self, decision) if isinstance(decision, headgate.limiting.hold.Hold) else decision

    def hold(self, hold: str, *, ttl: float | str | None = None) -> Hold:
        """Take up a hold by its id; as :meth:`headgate.Limiter.hold`."""
        return Hold(self, self._thread.run(self._inner.hold(hold, ttl=ttl)))

    state = blocking(headgate.limiting.limiter.Limiter.state)
    hold_off = blocking(headgate.limiting.limiter.Limiter.hold_off)

    def _from_hand(self, key: str | None, amounts: dict[str, Any], band: int | None) -> Hold | None:
        try:
            slice_ = self._inner._open.get(key if band is None else (key, band))
        except TypeError:  # it cannot be looked up, so it is no text
            encode_key(key)
            raise
        if slice_ is None or slice_.hand.of_all:  # two of them change together: on the loop thread
            return None
        with self._lock as is_free:
            if not is_free or not slice_.take(amounts, monotonic()):
                return None
        return Hold(self, headgate.limiting.hold.Hold(self._inner._first, key, amounts, slice_))


async def _settle(inner: headgate.limiting.hold.Hold, used: dict[str, int | str]) -> None:
    inner.settle(**used)
