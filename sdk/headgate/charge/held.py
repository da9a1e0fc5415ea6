"""The admission of a charged call, until the call is over; its end says something of the other side."""

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
