"""A decorator lets a function be called only as fast, or as often at a time, as a limit allows."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from headgate.charge import Charge, Cost, Key, Settle, Source, SyncCharge, SyncSource, Timeout, failed
from headgate.errors import InvalidValue

P = ParamSpec("P")
T = TypeVar("T")


def limited(
    on: Source | SyncSource | Callable[[], Source | SyncSource], *, key: Key = None,
    timeout: Timeout = None, settle: Settle | None = None, **cost: Cost,
) -> Callable[[Callable[P, T]], Callable[P, T]]:  # fmt: skip
    """Return a decorator; each call waits until it is admitted, and holds that until it returns.

    A function with ``async`` takes a limiter, gate or bucket of :mod:`headgate`, any other one of :mod:`headgate.sync`.

    Args:
        on: that limiter, gate or bucket, or what returns it when the function is called.
        key: for whom; or what returns it, of the function's arguments.
        timeout: seconds to wait, or what returns them as for ``key``; the limiter's own when None.
        settle: returns the amounts that were used, of what the function returned; limiters only.
        cost: amounts by the names of limits, ``size`` of a gate, ``tokens`` of a bucket; or what returns one, of
            the function's arguments.

    Raises:
        InvalidValue: a generator, or such a thing has no such amounts. From calls come the errors of
            :meth:`headgate.Limiter.admit`.
    """

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidValue(f"{function.__qualname__} is a generator; admit each step inside it", setting="function")
        if inspect.iscoroutinefunction(function):
            charge = Charge(on, key=key, timeout=timeout, settle=settle, **cost)  # type: ignore[arg-type]  # it says which it cannot use

            @functools.wraps(function)
            async def admitted(*args: P.args, **named: P.kwargs) -> Any:
                held = await charge.admit(*args, **named)
                try:
                    answer = await function(*args, **named)
                    charge.settled(held, answer)
                except BaseException as error:
                    failed(held, error)
                    raise
                held.release()
                return answer

            return admitted  # type: ignore[return-value]  # a coroutine function for a coroutine function
        waiting = SyncCharge(on, key=key, timeout=timeout, settle=settle, **cost)  # type: ignore[arg-type]  # as above

        @functools.wraps(function)
        def held_meanwhile(*args: P.args, **named: P.kwargs) -> T:
            held = waiting.admit(*args, **named)
            try:
                answer = function(*args, **named)
                waiting.settled(held, answer)
            except BaseException as error:
                failed(held, error)
                raise
            held.release()
            return answer

        return held_meanwhile

    return decorate
