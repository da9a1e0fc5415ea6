"""Ending a background task within a bound, and for whom a task works."""

import asyncio
import contextvars
from typing import Any, Final

PATIENCE: Final = 0.1
TRIES: Final = 3
THREAD: Final[contextvars.ContextVar[Any]] = contextvars.ContextVar("headgate thread", default=None)
"""The thread that waits for what this task does; None where the task is nobody's but its own."""


def current(loop: asyncio.AbstractEventLoop) -> Any:
    """Return the thread of program control that runs: one that waits for the task that runs, else that task."""
    return THREAD.get() or asyncio.current_task(loop)


async def stop(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task and wait for its end, a third of a second at the most.

    A library may swallow a cancellation that arrives just as its own wait ends; so it is asked again, and then left.
    """
    for _ in range(TRIES):
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
