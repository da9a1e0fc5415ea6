"""Says how often to try again while Redis does not answer: soon at first, then about each second, never all at once."""

from collections.abc import Awaitable, Callable
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from headgate.errors import AccessDenied, CoordinatorUnavailable, HeadgateError

AWAY = (CoordinatorUnavailable, AccessDenied)
"""Errors that pass by themselves, or with an operator's help."""


def until_answered(
    missing: Callable[[BaseException], None], *, away: tuple[type[HeadgateError], ...] = AWAY
) -> Callable[..., Awaitable[Any]]:
    """Return a repeater of calls until Redis answers; ``missing`` is called with each error that is one of ``away``."""

    def tell(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if error is not None:
            missing(error)

    async def answer(call: Callable[..., Awaitable[Any]], *args: Any, **named: Any) -> Any:
        try:
            return await call(*args, **named)  # most are answered at once, and nothing is made that repeats them
        except away as error:
            missing(error)
        wait: Any = wait_random_exponential(multiplier=0.05, max=1.0)
        repeated = AsyncRetrying(retry=retry_if_exception_type(away), wait=wait, before_sleep=tell)
        return await repeated(call, *args, **named)

    return answer
