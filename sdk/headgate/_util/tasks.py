"""Ending a background task within a bound, and for whom a task works."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import Any, Final

PATIENCE: Final = 0.1
TRIES: Final = 3
THREAD: Final[contextvars.ContextVar[Any]] = contextvars.ContextVar("headgate thread", default=None)
"""The thread that waits for what this task does; None where the task is nobody's but its own."""


def current(loop: asyncio.AbstractEventLoop) -> Any:
    """Return the thread of program control that runs: one that waits for the task that runs, else that task."""
    return THREAD.get() or asyncio.current_task(loop)


Running = dict["asyncio.Task[None]", None]
"""Tasks that run; a set takes three times as much while it is empty."""


def in_background(work: Awaitable[object], running: Running, name: str) -> "asyncio.Task[None]":
    """Begin work that may be awaited and need not be; its task is in ``running`` as long as it runs."""

    async def run() -> None:
        await work

    task = asyncio.create_task(run(), name=name)
    running[task] = None
    task.add_done_callback(running.pop)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # who does not wait has lost nothing
    return task


class StepCallbacks(set[Callable[[], None]]):
    """A task calls these callbacks after each of its steps."""

    __slots__ = ()

    def made(self) -> None:
        """Tell of a step."""
        for hear in tuple(self):
            hear()

    async def until(self, true: Callable[[], object], task: "asyncio.Task[Any] | None") -> None:
        """Wait until something is true after a step, or the task has ended."""
        over = asyncio.get_running_loop().create_future()

        def look() -> None:
            if true() and not over.done():
                over.set_result(None)

        look()
        self.add(look)
        try:
            if task is not None:
                await asyncio.wait([over, task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.discard(look)


async def stop(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task and wait for its end, a third of a second at the most.

    A library may swallow a cancellation that arrives just as its own wait ends; so it is asked again, and then left.
    """
    for _ in range(TRIES):
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
