"""An admission to a limiter is an ``async with`` block that is entered once its amounts are admitted."""

from collections.abc import Callable, Generator
from types import TracebackType
from typing import Any, Protocol

from headgate.core.limiting.samples import Outcome, check_outcome, outcome_of
from headgate.limiting.hold import Hold

OutcomeOf = Callable[[BaseException], Outcome]
"""A rule that says how a hold went, of the exception that ended its block."""


class EndsWithOutcome(Protocol):
    """A hold ends with an outcome."""

    outcome: Outcome

    def release(self) -> None:
        """End it."""


def release_after(held: EndsWithOutcome, error: BaseException, rule: OutcomeOf) -> None:
    """Release what was held as an exception ended its block, with the outcome that the rule says."""
    held.outcome = "ignore"
    try:
        held.outcome = check_outcome(rule(error))
    finally:
        held.release()


class Admitter(Protocol):
    """A limiter, as an admission uses it."""

    def from_hand(self, key: str | None, amounts: dict[str, Any], band: int | None = None) -> Hold | None:
        """Return a hold from what is in hand; None where that is not enough."""

    async def wait_for(
        self, key: str | None, amounts: dict[str, Any], timeout: float | str | None, ttl: float | str | None,
        hold: str = "", band: int | None = None, *, late: bool = False,
    ) -> Hold:  # fmt: skip
        """Wait for an admission."""


class Admission:
    """An admission is held inside ``async with limiter.admit(...)``; awaited, it is a :class:`Hold` to be released."""

    __slots__ = ("_amounts", "_band", "_key", "_late", "_limiter", "_rule", "_timeout", "_ttl", "held")
    held: Hold  # there from entering on

    def __init__(
        self, limiter: Admitter, key: str | None, amounts: dict[str, Any], timeout: float | str | None,
        ttl: float | str | None, band: int | None, rule: OutcomeOf = outcome_of, late: int = 0,
    ) -> None:  # fmt: skip
        self._limiter, self._key, self._amounts = limiter, key, amounts
        self._timeout, self._ttl, self._band, self._rule, self._late = timeout, ttl, band, rule, late

    async def __aenter__(self) -> Hold:
        limiter = self._limiter
        hold = limiter.from_hand(self._key, self._amounts, self._band) if self._ttl is None else None
        if hold is None:
            hold = await limiter.wait_for(
                self._key, self._amounts, self._timeout, self._ttl, band=self._band, late=bool(self._late)
            )
        self.held = hold
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.held.release()
        else:
            release_after(self.held, error, self._rule)

    def __await__(self) -> Generator[Any, None, Hold]:
        return self.__aenter__().__await__()
