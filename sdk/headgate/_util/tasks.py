"""Ending a background task within a bound, closing whatever happens, and for whom a task works."""

import asyncio
import contextvars
import functools
import os
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

P = ParamSpec("P")
S = TypeVar("S")

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
    if isinstance(work, Coroutine):
        task.add_done_callback(lambda _: work.close())  # a task that is cancelled before its first step awaits nothing
    task.add_done_callback(lambda done: done.cancelled() or done.exception())  # who does not wait has lost nothing
    return task


class StepCallbacks(dict[Callable[[], None], None]):
    """A task calls these callbacks after each of its steps; a set takes three times as much while it is empty."""

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
        self[look] = None
        try:
            if task is not None:
                await asyncio.wait([over, task], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self.pop(look, None)


async def stop(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task and wait for its end, a third of a second at the most.

    A library may swallow a cancellation that arrives just as its own wait ends; so it is asked again, and then left.
    """
    for _ in range(TRIES):
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)


_closing: Final = dict[object, "asyncio.Task[None]"]()
os.register_at_fork(after_in_child=_closing.clear)  # their loop runs in the parent


def carried_through(
    close: Callable[Concatenate[S, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, None]]:
    """Have a close go on to its end in a task of its own, whoever is cancelled meanwhile.

    Broken off, it would stay marked as closed, and go on renewing what it holds. The next close waits for its end.
    """

    @functools.wraps(close)
    async def closed(self: S, /, *args: P.args, **kwargs: P.kwargs) -> None:
        def ended(done: "asyncio.Task[None]") -> None:
            if _closing.get(self) is done:
                del _closing[self]

        while (before := _closing.get(self)) and not before.done():
            await asyncio.wait([before])
        task = _closing[self] = asyncio.create_task(
            close(self, *args, **kwargs), name=f"headgate closes a {type(self).__name__}"
        )
        task.add_done_callback(ended)
        await asyncio.wait([task])
        if not task.cancelled():  # else the loop ends
            task.result()

    return closed
