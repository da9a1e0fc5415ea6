"""A charge has terms: for whom a call is charged, how much, and how long it may wait for it."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Generic, Self, TypeVar

import headgate.sync
from headgate.charge.held import Held
from headgate.core.limiting.amounts import check_amounts, encode_key
from headgate.errors import InvalidValue
from headgate.limiting.hold import Hold
from headgate.units import check_timeout

Cost = int | str | Callable[..., int | str]
"""An amount, or what returns it for a call."""
Key = str | Callable[..., str | None] | None
"""For whom: the same for all calls, or what returns it for a call."""
Timeout = float | str | None | Callable[..., float | str | None]
"""Seconds to wait, or what returns them for a call; None for the limiter's own."""
Settle = Callable[[Any], Mapping[str, int | str]]
"""Returns the amounts that a call used, of its answer."""
S = TypeVar("S")

_UNKNOWN: Final = frozenset[str]()


def _named(source: object) -> str:
    """Return what somebody gave, whose text may be that of what was meant."""
    if inspect.iscoroutine(source):
        source.close()
        return "is a coroutine, which nobody awaited"
    kind = type(source)
    room = next((one for one in ("headgate.sync.", "headgate.") if kind.__module__.startswith(one)), "")
    return f"is a {room}{kind.__name__}"


def _check_factory(on: Callable[..., object]) -> None:
    """See that a function can return a limiter: it may be the one that is to be limited, given by mistake."""
    try:
        inspect.signature(on).bind()
    except TypeError:
        wrong = "it takes arguments"
    except ValueError:  # one of C, of which nothing is known
        return
    else:
        wrong = "it is a coroutine function" if inspect.iscoroutinefunction(on) else ""
    if wrong:
        what = f"{on!r:.80}: {wrong}; give a limiter, gate or bucket, or a function of no arguments that returns one"
        raise InvalidValue(what, setting="on")


class ChargeTerms(Generic[S]):
    """Says how each call is charged.

    Args:
        on: a limiter, gate or bucket, or what returns it when a call comes: it may not be open yet.
        key: for whom, or what returns it for a call.
        timeout: seconds to wait, or what returns them for a call, such as its deadline: less than 0 counts as 0; the
            limiter's own when None.
        settle: returns the amounts that were used, of an answer; limiters only.
        cost: the amounts, by the names of a limiter's limits; ``size`` of a gate, ``tokens`` of a bucket.

    Raises:
        InvalidValue, InvalidName: a limiter without amounts, or amounts that such a thing does not have; or not a key,
            a timeout, an amount.
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
        if not callable(key):
            encode_key(key)
        if not callable(timeout):
            check_timeout(timeout)
        if fixed := {name: amount for name, amount in cost.items() if not callable(amount)}:
            check_amounts(fixed)
        if callable(on):
            _check_factory(on)
        else:
            self._check(on)

    @classmethod
    def expected(cls, given: object, setting: str) -> Self:
        """Return what was given, which is one of these.

        Raises:
            InvalidValue: it is something else.
        """
        if not isinstance(given, cls):
            raise InvalidValue(f"{given!r:.80}: use a headgate.charge.{cls.__name__}", setting=setting)
        return given

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
            raise InvalidValue(f"{source!r:.80} {_named(source)}: use one of {kinds}", setting="on")
        if takes is None and not self.cost:
            raise InvalidValue("say what each call takes, by the names of limits: requests=1", setting="cost")
        if takes is not None and (unknown := set(self.cost) - takes):
            known = " and ".join(takes)
            raise InvalidValue(
                f"{source!r:.80} has no amount {', '.join(sorted(unknown))}; it takes {known}=", setting="cost"
            )
        if takes is not None and self.settle is not None:
            raise InvalidValue(f"{source!r:.80} cannot be settled; a limiter can", setting="settle")
