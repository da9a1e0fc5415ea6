"""The admission of a charged call, until the call is over; its end says something of the other side."""

import contextlib
from collections.abc import Callable
from typing import Final, Protocol

import headgate.sync
from headgate.core.limiting.samples import Outcome, outcome_of
from headgate.limiting.hold import Hold

OVERLOADED: Final = frozenset({429, 503, 504})
"""Statuses of HTTP by which a server says that it is too much, or that it was too late."""


class Held(Protocol):
    """An admission, until it is released."""

    def release(self) -> None:
        """End it; twice frees once."""


class _SpentTokens:
    """Tokens of a bucket are used once they are taken, so nothing comes back."""

    def release(self) -> None:
        """Do nothing."""


TAKEN: Final = _SpentTokens()


class Kept:
    """An answer keeps this admission. It is released with the answer, which nobody can end once it is garbage.

    Args:
        held: the admission.
        tell: calls a function soon, where admissions are released: garbage is collected in any thread, at any place.
    """

    __slots__ = ("_held", "_tell")

    def __init__(self, held: Held, tell: Callable[[Callable[[], None]], object]) -> None:
        self._held: Held | None = held
        self._tell = tell

    def release(self) -> None:
        """End it; twice frees once."""
        held, self._held = self._held, None
        if held is not None:
            held.release()

    def __del__(self) -> None:
        if self._held is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and with it all that was held
                self._tell(self._held.release)


def answered(held: Held, status: int) -> None:
    """Note what an answer's status says of its server, for a limit that adapts; 5xx else say nothing."""
    if status >= 500 or status == 429:
        _note(held, "overload" if status in OVERLOADED else "ignore")


def failed(held: Held, error: BaseException, *late: type[BaseException]) -> None:
    """Release what a failed call held: a timeout, as these classes are, is an overload; else none is reported."""
    _note(held, "overload" if isinstance(error, late) else outcome_of(error))
    held.release()


def _note(held: Held, outcome: Outcome) -> None:
    if isinstance(held, Hold | headgate.sync.Hold):
        held.outcome = outcome
