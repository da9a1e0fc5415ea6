"""Waits are noted as they end: for credit, an admission or tokens. Metrics and traces are made of them."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Literal, get_args

from headgate.errors import CreditTimeout, DeadlockDetected, DestinationFull, MessageTooLarge

Kind = Literal["credit", "gate", "limiter", "bucket", "turn"]
"""The thing waited for: credit to send, a gate, a limiter, a bucket, or a key's turn at a gate or a bucket."""
Outcome = Literal["admitted", "timeout", "refused", "cancelled", "failed"]
KINDS: Final = frozenset(get_args(Kind))
OUTCOMES: Final = frozenset(get_args(Outcome))
_NOT_TIMED: Final = nullcontext()


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait is noted when it is over; nobody waits for credit in hand.

    Attributes:
        kind: the thing waited for.
        destination: its name.
        seconds: how long it took.
        outcome: how it ended.
        error: that it ended with; None where there is none.
        span: of the operation that waited, for traces; None without one.
    """

    kind: Kind
    destination: str
    seconds: float
    outcome: Outcome
    error: BaseException | None = None
    span: Any = None


Listener = Callable[[Wait], None]


class Waits:
    """The listeners to the waits of one client; without any, nothing is timed.

    Add them before sessions are opened: an account that is opened before has its waits heard by nobody.

    Attributes:
        listeners: hear of waits of this process.
        of_others: hear of those that clients tell of, which waited by themselves.
    """

    __slots__ = ("listeners", "of_others")

    def __init__(self) -> None:
        self.listeners: list[Listener] = []
        self.of_others: list[Listener] = []

    def ended(
        self, kind: Kind, destination: str, seconds: float, outcome: Outcome, error: BaseException | None = None,
        span: Any = None,
    ) -> None:  # fmt: skip
        """Tell all listeners of a wait."""
        wait = Wait(kind, destination, seconds, outcome, error, span)
        for listener in self.listeners:
            listener(wait)

    def timed(self, kind: Kind, destination: str) -> AbstractContextManager[object]:
        """Return a block to wait in, which tells how it ended."""
        return _Timed(self, kind, destination) if self.listeners else _NOT_TIMED


class _Timed:
    __slots__ = ("_destination", "_kind", "_since", "_waits")

    def __init__(self, waits: Waits, kind: Kind, destination: str) -> None:
        self._waits, self._kind, self._destination = waits, kind, destination
        self._since = monotonic()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, GeneratorExit):  # thrown away with its loop: listeners may need one
            self._waits.ended(self._kind, self._destination, monotonic() - self._since, outcome_of(error), error)


def outcome_of(error: BaseException | None) -> Outcome:
    """Return how a wait ended, by what it raised."""
    match error:
        case None:
            return "admitted"
        case CreditTimeout():
            return "timeout"
        case DestinationFull() | DeadlockDetected() | MessageTooLarge():
            return "refused"
        case asyncio.CancelledError():
            return "cancelled"
    return "failed"
