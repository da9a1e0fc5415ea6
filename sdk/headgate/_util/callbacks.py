"""A service's callbacks are called so that nothing they do breaks what calls them."""

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any, Final, TypeVar

from headgate._util.tasks import stop

T = TypeVar("T")
log: Final = logging.getLogger("headgate")


class Callbacks:
    """Calls what was registered under one name, such as ``on_slow``; what it raises is logged and goes no further."""

    __slots__ = ("_name", "_running")

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: dict[asyncio.Future[Any], None] = {}

    def call(self, callback: Callable[[T], object], event: T) -> None:
        """Call it now; what it returns is awaited in a task of its own, if that is possible."""
        try:
            answer = callback(event)
        except Exception:
            log.exception("a callback of %s failed", self._name)
            return
        if inspect.isawaitable(answer):
            task = asyncio.ensure_future(answer)
            self._running[task] = None
            task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Future[Any]") -> None:
        self._running.pop(task, None)
        if not task.cancelled() and (error := task.exception()):
            log.error("a callback of %s failed", self._name, exc_info=error)

    async def close(self) -> None:
        """Give callbacks that still run a moment, and end them."""
        if self._running:
            await asyncio.wait(tuple(self._running), timeout=0.1)
        for task in tuple(self._running):
            await stop(task)  # type: ignore[arg-type]  # a coroutine was made a task
