"""Wait for something to become true. The only way in which a test waits: never for a time that should do.

How long at most is of a machine that is the test's own: it is as many times more as processes wait for a processor.
"""

import asyncio
import inspect
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar, overload

T = TypeVar("T")

POLL = 0.005  # seconds at first; after a second ten times that, for others run beside


@overload
async def wait_until(
    predicate: Callable[[], Coroutine[Any, Any, T]], *, timeout: float = ..., description: str = ...
) -> T: ...
@overload
async def wait_until(predicate: Callable[[], T], *, timeout: float = ..., description: str = ...) -> T: ...
async def wait_until(predicate: Callable[[], Any], *, timeout: float = 30.0, description: str = "") -> Any:
    """Return the first true value of a sync or async `predicate`; AssertionError after `timeout` seconds."""
    began = time.monotonic()
    while True:
        value = predicate()
        if inspect.isawaitable(value):
            try:
                value = await asyncio.wait_for(value, max(_left(began, timeout), POLL))
            except TimeoutError:
                raise _failure(predicate, timeout, description, "no answer") from None
        if value:
            return value
        if _left(began, timeout) < 0:
            raise _failure(predicate, timeout, description, value)
        await asyncio.sleep(_pause(began))


def wait_for(predicate: Callable[[], T], *, timeout: float = 30.0, description: str = "") -> T:
    """Return the first true value of `predicate`; AssertionError after `timeout` seconds."""
    began = time.monotonic()
    while not (value := predicate()):
        if _left(began, timeout) < 0:
            raise _failure(predicate, timeout, description, value)
        time.sleep(_pause(began))
    return value


def is_alive(pid: int) -> bool:
    """Whether the process runs. One that has ended and that nobody has waited for yet does not.

    A killed process whose first thread is a zombie already still runs until its other threads are gone too.
    """
    process = Path(f"/proc/{pid}")
    try:
        state = (process / "stat").read_text().rpartition(")")[2].split()[0]
        threads = len(list((process / "task").iterdir()))
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX" or threads > 1


def _left(began: float, timeout: float) -> float:
    return timeout * max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)) - (time.monotonic() - began)


def _pause(began: float) -> float:
    return min(POLL + (time.monotonic() - began) / 25, 10 * POLL)


def _failure(predicate: object, timeout: float, description: str, value: object) -> AssertionError:
    what = description or getattr(predicate, "__qualname__", repr(predicate))
    return AssertionError(f"not within {timeout:g} s: {what}; last value: {value!r}")
