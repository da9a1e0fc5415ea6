"""A message has a priority (0 to 9, as in AMQP), and a queue delivers bands of them in turn."""

from typing import Any, Final

from headgate.core.limiting.amounts import NO_KEY
from headgate.core.spellings import ValueForm
from headgate.errors import InvalidValue

PRIORITY: Final = "priority"
"""As the value of ``fair_by``."""
USUAL: Final = 4
"""The priority of a message that has none."""
HIGHEST: Final = 9
BANDS: Final = (7, 7, 6, 6, 5, 4, 3, 2, 1, 0)
"""The band of each priority from 0 to 9."""
LEAST_OVERTAKEN: Final = 16
MOST_OVERTAKEN: Final = 1_000_000
USUAL_OVERTAKEN: Final = 100
"""Most messages of other bands that may go before the next one of a band, by default."""


def _overtaken(value: Any, what: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int) or not LEAST_OVERTAKEN <= value <= MOST_OVERTAKEN:
        raise InvalidValue(f"{value!r}; use {LEAST_OVERTAKEN} to {MOST_OVERTAKEN} messages", setting=what)
    return str(value)


MAX_OVERTAKEN: Final = ValueForm(_overtaken, "Overtaken")


def band_key(priority: Any) -> str:
    """Return the band of a priority as the scripts take it for a key; of what is no priority, that of the usual one.

    >>> [band_key(priority) for priority in (9, 5, 4, 3, 2, 0, 200)]
    ['0', '4', '*', '6', '6', '7', '0']
    """
    if isinstance(priority, bool) or not isinstance(priority, int):
        priority = USUAL
    band = BANDS[max(0, min(priority, HIGHEST))]
    return NO_KEY if band == BANDS[USUAL] else str(band)


def check_priority(priority: int) -> None:
    """See that a priority is one.

    Raises:
        InvalidValue: it is not.
    """
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= HIGHEST:
        raise InvalidValue(f"{priority!r}; use 0 to {HIGHEST}, {USUAL} is the usual one", setting=PRIORITY)
