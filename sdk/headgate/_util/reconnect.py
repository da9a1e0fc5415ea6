"""How often to try again while Redis does not answer: soon at first, then about each second, never all at once."""

from collections.abc import Callable
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from headgate.errors import AccessDenied, CoordinatorUnavailable, HeadgateError

AWAY = (CoordinatorUnavailable, AccessDenied)
"""Errors that pass by themselves, or with an operator's help."""


def until_answered(
    missing: Callable[[BaseException], None], *, away: tuple[type[HeadgateError], ...] = AWAY
) -> AsyncRetrying:
    """Return a repeater of calls until Redis answers; ``missing`` is called with each error that is one of ``away``."""

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if error is not None:
            missing(error)

    wait: Any = wait_random_exponential(multiplier=0.05, max=1.0)
    return AsyncRetrying(retry=retry_if_exception_type(away), wait=wait, before_sleep=tell)
