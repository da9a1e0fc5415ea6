"""Work is cancelled at each point where it waits, for tests of what it leaves behind."""

import asyncio
import gc
import types
from collections.abc import AsyncIterator, Callable, Coroutine, Generator
from pathlib import Path
from typing import Any

from tests.support.waiting import wait_until

SOCKETS = Path("/proc/self/fd")
Work = Callable[[], Coroutine[Any, Any, object]]


class _Cut:
    """A cut cancels its task at the nth time that it waits: as it begins to, or as what it waits for has come."""

    def __init__(self, nth: int, *, late: bool) -> None:
        self.waits = 0
        self._nth, self._late = nth, late

    @types.coroutine
    def run(self, work: Coroutine[Any, Any, object]) -> Generator[Any, Any, None]:
        task: Any = asyncio.current_task()
        go_on: Callable[[Any], Any] = work.send
        answer: Any = None
        while True:
            try:
                awaited = go_on(answer)
            except StopIteration:
                return
            self.waits += 1
            if self.waits == self._nth and self._late and awaited is not None:
                awaited.add_done_callback(lambda _: task.cancel())
            elif self.waits == self._nth:
                task.cancel()
            try:
                answer, go_on = (yield awaited), work.send
            except BaseException as error:  # noqa: BLE001 -- it is the work's
                answer, go_on = error, work.throw


async def cancelled_everywhere(work: Work) -> AsyncIterator[str]:
    """Do the work again and again, each time cancelled one point later, until it ends first; yield where it was."""
    for late in (False, True):
        nth = 0
        while True:
            nth += 1
            cut = _Cut(nth, late=late)
            task = asyncio.create_task(_whole(cut, work))
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
            yield f"cancelled {'after' if late else 'in'} wait {nth}"
            if cut.waits < nth:
                break


async def _whole(cut: _Cut, work: Work) -> None:
    await cut.run(work())


async def leaves_nothing(work: Work) -> None:
    """See that the work, wherever it is cancelled, leaves no connection and no task."""
    sockets, tasks = _sockets(), asyncio.all_tasks()
    async for where in cancelled_everywhere(work):
        await wait_until(lambda: asyncio.all_tasks() <= tasks, description=f"no task is left, {where}")
        await wait_until(lambda: _sockets() <= sockets, description=f"no connection is left, {where}")
    gc.collect()  # what was left to the collector says so


def _sockets() -> set[str]:
    there = {one.name: one.readlink() for one in SOCKETS.iterdir() if one.is_symlink()}
    return {name for name, what in there.items() if str(what).startswith("socket:")}
