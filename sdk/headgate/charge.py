"""Charges: an amount that each call of something takes of a limiter, a gate or a bucket. Doors are built of them."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

import headgate.sync
from headgate.core.limiting.samples import Outcome, outcome_of
from headgate.errors import HeadgateError, InvalidValue
from headgate.limiting.bucket import Bucket
from headgate.limiting.gate import Gate
from headgate.limiting.hold import Hold
from headgate.limiting.limiter import Limiter
from headgate.limiting.refusals import Refused
from headgate.options import DEFAULT_TIMEOUT

Cost = int | str | Callable[..., int | str]
"""An amount, or what returns it for a call."""
Key = str | Callable[..., str | None] | None
"""For whom: the same for all calls, or what returns it for a call."""
Timeout = float | str | None | Callable[..., float | str | None]
"""Seconds to wait, or what returns them for a call; None for the limiter's own."""
Settle = Callable[[Any], Mapping[str, int | str]]
"""Returns the amounts that a call used, of its answer."""
Source = Limiter | Gate | Bucket
SyncSource = headgate.sync.Limiter | headgate.sync.Gate | headgate.sync.Bucket
S = TypeVar("S")

_SIZE: Final = frozenset({"size"})
_TOKENS: Final = frozenset({"tokens"})
_UNKNOWN: Final = frozenset[str]()
OVERLOADED: Final = frozenset({429, 503, 504})
"""Statuses of HTTP by which a server says that it is too much, or that it was too late."""
_log: Final = logging.getLogger("headgate.charge")


class Held(Protocol):
    """An admission, until it is released."""

    def release(self) -> None:
        """End it; twice frees once."""


class _Taken:
    """Tokens of a bucket: they are used, so nothing comes back."""

    def release(self) -> None:
        """Do nothing."""


TAKEN: Final = _Taken()


def answered(held: Held, status: int) -> None:
    """Note what an answer's status says of its server, for a limit that adapts; 5xx else say nothing."""
    if status >= 500 or status == 429:
        _note(held, "overload" if status in OVERLOADED else "ignore")


def failed(held: Held, error: BaseException, *late: type[BaseException]) -> None:
    """Release what a failed call held: a timeout, as these classes are too, is an overload; else nothing is said."""
    _note(held, "overload" if isinstance(error, late) else outcome_of(error))
    held.release()


def _note(held: Held, outcome: Outcome) -> None:
    if isinstance(held, Hold | headgate.sync.Hold):
        held.outcome = outcome


class Terms(Generic[S]):
    """How each call is charged.

    Args:
        on: a limiter, gate or bucket, or what returns it when a call comes: it may not be open yet.
        key: for whom, or what returns it for a call.
        timeout: seconds to wait, or what returns them for a call, such as its deadline: less than 0 counts as 0; the
            limiter's own when None.
        settle: returns the amounts that were used, of an answer; limiters only.
        cost: the amounts, by the names of a limiter's limits; ``size`` of a gate, ``tokens`` of a bucket.

    Raises:
        InvalidValue: a limiter without amounts, or amounts that such a thing does not have.
    """

    takes: ClassVar[Mapping[type, frozenset[str] | None]]
    """The amounts of each thing that can be used; None where they are named by its limits."""
    module: ClassVar[str]
    """Where users have these things from."""

    def __init__(
        self, on: S | Callable[[], S], *, key: Key = None, timeout: Timeout = None,
        settle: Settle | None = None, **cost: Cost,
    ) -> None:  # fmt: skip
        self._on, self.cost = on, cost
        self.key, self.timeout, self.settle = key, timeout, settle
        if not callable(on):
            self._check(on)

    @property
    def on(self) -> S:
        """The limiter, gate or bucket."""
        if not callable(self._on):
            return self._on
        source: S = self._on()
        self._check(source)
        return source

    def of(self, *call: Any, **named: Any) -> dict[str, Any]:
        """Return the key and the amounts of one call, as arguments of an admission."""
        costs = {name: cost(*call, **named) if callable(cost) else cost for name, cost in self.cost.items()}
        return {"key": self.key_of(*call, **named), **costs}

    def key_of(self, *call: Any, **named: Any) -> str | None:
        """Return for whom a call is."""
        return self.key(*call, **named) if callable(self.key) else self.key

    def within(self, *call: Any, **named: Any) -> float | str | None:
        """Return how long a call may wait."""
        timeout = self.timeout(*call, **named) if callable(self.timeout) else self.timeout
        return max(0.0, timeout) if isinstance(timeout, int | float) and callable(self.timeout) else timeout

    def settled(self, held: Held, answer: Any) -> None:
        """Say what a call used, where ``settle`` can tell."""
        if self.settle is not None and isinstance(held, Hold | headgate.sync.Hold):
            held.settle(**self.settle(answer))

    def _check(self, source: S) -> None:
        takes = next((takes for kind, takes in self.takes.items() if isinstance(source, kind)), _UNKNOWN)
        if takes is _UNKNOWN:
            kinds = ", ".join(f"{self.module}.{kind.__name__}" for kind in self.takes)
            raise InvalidValue(f"{source!r:.80}: use one of {kinds}", setting="on")
        if takes is None and not self.cost:
            raise InvalidValue("say what each call takes, by the names of limits: requests=1", setting="cost")
        if takes is not None and (unknown := set(self.cost) - takes):
            known = " and ".join(takes)
            raise InvalidValue(
                f"{source!r:.80} has no amount {', '.join(sorted(unknown))}; it takes {known}=", setting="cost"
            )
        if takes is not None and self.settle is not None:
            raise InvalidValue(f"{source!r:.80} cannot be settled; a limiter can", setting="settle")


class Charge(Terms[Source]):
    """Charges calls on a limiter, gate or bucket of an event loop."""

    module = "headgate"
    takes: ClassVar = {Limiter: None, Gate: _SIZE, Bucket: _TOKENS}

    async def admit(self, *call: Any, **named: Any) -> Held:
        """Wait until a call is admitted; errors are those of :meth:`headgate.Limiter.admit`."""
        return await self.admit_within(self.within(*call, **named), *call, **named)

    async def admit_within(self, timeout: float | str | None, *call: Any, **named: Any) -> Held:
        """Wait so long until a call is admitted; errors as :meth:`admit`."""
        on, terms = self.on, self.of(*call, **named)
        if isinstance(on, Limiter):
            return await on.admit(timeout=timeout, **terms)
        if isinstance(on, Gate):
            return await on.admit(timeout=timeout, **terms).__aenter__()
        await on.take(**terms, timeout=DEFAULT_TIMEOUT if timeout is None else timeout)
        return TAKEN

    async def attempt(self, *call: Any, **named: Any) -> Held | Refused:
        """Return what a call is admitted with, or a refusal; never waits for others."""
        on, terms = self.on, self.of(*call, **named)
        if isinstance(on, Bucket):
            decision = await on.try_take(**terms)
            return decision if isinstance(decision, Refused) else TAKEN
        return await on.attempt(**terms)

    async def hold_off(self, seconds: float, reason: str, *call: Any) -> None:
        """Have nobody call for a while, as the other side asks; a failure of it is logged, for the call is done."""
        try:
            await self.on.hold_off(seconds, reason=reason, key=self.key_of(*call))
        except HeadgateError as error:
            _log.warning("%r could not be held off for %s s: %s", self.on, seconds, error)


class SyncCharge(Terms[SyncSource]):
    """Charges calls on a limiter, gate or bucket of :mod:`headgate.sync`."""

    module = "headgate.sync"
    takes: ClassVar = {headgate.sync.Limiter: None, headgate.sync.Gate: _SIZE, headgate.sync.Bucket: _TOKENS}

    def admit(self, *call: Any, **named: Any) -> Held:
        """Wait until a call is admitted; errors are those of :meth:`headgate.Limiter.admit`."""
        on, terms, timeout = self.on, self.of(*call, **named), self.within(*call, **named)
        if isinstance(on, headgate.sync.Limiter):
            return on.admit(timeout=timeout, **terms).wait()
        if isinstance(on, headgate.sync.Gate):
            return on.admit(timeout=timeout, **terms).__enter__()
        on.take(**terms, timeout=DEFAULT_TIMEOUT if timeout is None else timeout)
        return TAKEN

    def attempt(self, *call: Any, **named: Any) -> Held | Refused:
        """Return what a call is admitted with, or a refusal; never waits for others."""
        on, terms = self.on, self.of(*call, **named)
        if isinstance(on, headgate.sync.Bucket):
            decision = on.try_take(**terms)
            return decision if isinstance(decision, Refused) else TAKEN
        return on.attempt(**terms)

    def hold_off(self, seconds: float, reason: str, *call: Any) -> None:
        """Have nobody call for a while, as the other side asks; a failure of it is logged, for the call is done."""
        try:
            self.on.hold_off(seconds, reason=reason, key=self.key_of(*call))
        except HeadgateError as error:
            _log.warning("%r could not be held off for %s s: %s", self.on, seconds, error)
