"""This module decides when a job that was not admitted is tried again."""

import random
from typing import Any, Final

from headgate.charge import Held, SyncCharge
from headgate.errors import CoordinatorUnavailable, CreditTimeout, DestinationFull
from headgate.limiting.refusals import Refused

AGAIN: Final = 5.0
"""Seconds, more or less by half, until a job is tried again where nobody knows when it could be admitted."""
LONGEST: Final = 3600.0
"""Seconds after which a job is tried again at the latest: limits change."""


def admit_or_put_off(charge: SyncCharge, *call: Any, **named: Any) -> Held | float:
    """Return what a job is admitted with, or the seconds after which it is to be tried again.

    A charge without a timeout does not wait; errors other than refusals are those of :meth:`headgate.Limiter.admit`.
    """
    after = None
    try:
        decision = (charge.attempt if charge.timeout is None else charge.admit)(*call, **named)
        if not isinstance(decision, Refused):
            return decision
        after = decision.retry_after
    except CreditTimeout as error:
        after = error.retry_after
    except (DestinationFull, CoordinatorUnavailable):
        pass  # a job keeps: it is tried again, as if others were first
    if after is None:
        return AGAIN * random.uniform(0.5, 1.5)  # noqa: S311 -- so that not all of them come at once
    return min(after * random.uniform(1.0, 1.1), LONGEST)  # noqa: S311 -- as above
