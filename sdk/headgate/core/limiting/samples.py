"""Sums up how holds of one session ended at a limit that adapts, until a call carries it.

Without I/O, and without a clock.
"""

from typing import Any, Final, Literal

from headgate.core.limiting.amounts import amounts_text
from headgate.errors import InvalidValue

Outcome = Literal["ok", "overload", "ignore"]
OUTCOMES: Final = ("ok", "overload", "ignore")
_COUNTED: Final = {"ok": "ok", "overload": "over", "ignore": "ignored"}
EVERY: Final = 0.25
"""Seconds between two samples of a session."""
LONGEST: Final = 3600.0
"""Seconds; a hold that took longer counts as one of that many."""


def check_outcome(outcome: Any) -> Outcome:
    """Return an outcome as it is.

    Raises:
        InvalidValue: it is none.
    """
    if outcome not in OUTCOMES:
        raise InvalidValue(f"{outcome!r} is not an outcome; use one of {', '.join(OUTCOMES)}", setting="outcome")
    return outcome  # type: ignore[no-any-return]  # it is one of them


def outcome_of(error: BaseException) -> Outcome:
    """Return what an exception says of the service: a timeout is an overload, anything else tells nothing."""
    return "overload" if isinstance(error, TimeoutError) else "ignore"


def one_sample(outcome: Outcome) -> str:
    """Return the sample of a single hold, whose time the script knows."""
    return amounts_text({_COUNTED[outcome]: 1})


class Samples:
    """Ended holds are summed here since the last call that carried them: of one size, however many they are.

    Args:
        session: whose holds these are.
        limit: the name of the limit that adapts.
    """

    def __init__(self, session: str, limit: str) -> None:
        self.limit = limit
        self._hold = f"{session}.1"  # no hold is meant, but each operation names one
        self._sums = dict.fromkeys(("ok", "us", "squares", "over", "late", "busy", "ignored"), 0)
        self._any = False
        self._next = 0.0

    def add(self, outcome: Outcome, seconds: float, amount: int) -> None:
        """Count a hold that lasted that many seconds and held this amount of the limit."""
        sums, us = self._sums, int(min(max(0.0, seconds), LONGEST) * 1e6)
        self._any = True
        sums[_COUNTED[outcome]] += 1
        if outcome == "ok":
            sums["us"] += us
            sums["squares"] += (us // 64) ** 2
            sums["busy"] += amount * us // 1000
        elif outcome == "overload":
            sums["late"] += us

    def words(self, now: float) -> tuple[str | int, ...]:
        """Return one operation as the script takes it; none where nothing ended, or where it is too soon."""
        if not self._any or now < self._next:
            return ()
        text = amounts_text({name: min(number, 1 << 51) for name, number in self._sums.items() if number})
        self._sums = dict.fromkeys(self._sums, 0)
        self._any, self._next = False, now + EVERY
        return ("sample", self._hold, "*", text, 0, 0)
