"""One thread runs the event loop, and other threads get work done there."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headgate._util.forks import FORKED, watch
from headgate._util.tasks import THREAD
from headgate.errors import Closed
from headgate.sync.turn import is_interrupted

T = TypeVar("T")


def copy_outcome(source: "asyncio.Future[T]", outside: "concurrent.futures.Future[T]") -> None:
    """Tell ``outside`` what becomes of ``source``; a cancellation is only ever ours, on closing."""

    def copy(done: "asyncio.Future[T]") -> None:
        if done.cancelled():
            outside.set_exception(Closed("the client was closed meanwhile"))
        elif error := done.exception():
            outside.set_exception(error)
        else:
            outside.set_result(done.result())

    source.add_done_callback(copy)


class LoopThread:
    """A loop thread runs an event loop of its own.

    It is a daemon: a client that nobody closed does not keep the process alive.
    """

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._waiting: set[concurrent.futures.Future[Any]] = set()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headgate", daemon=True)
        self._thread.start()
        self._forked = False
        watch(self)

    def forked(self) -> None:
        """Refuse from now on: the thread runs in the parent process only, and the loop's files are the parent's."""
        self._forked = True

    @property
    def is_ours(self) -> bool:
        """Whether the thread runs in this process; after a fork it does not, and there is nothing to close here."""
        return not self._forked

    def run(self, work: Coroutine[Any, Any, T], undo: Callable[[T], None] | None = None) -> T:
        """Run a coroutine there and return its result.

        Args:
            work: the coroutine.
            undo: called there with the result if this thread was interrupted and nobody will ever have it.

        Raises:
            Closed: the thread has ended, or ended meanwhile.
            RuntimeError: it would wait for itself: this is that thread, or one in a turn which that thread may need.
        """
        if threading.current_thread() is self._thread or is_interrupted():
            work.close()
            here = "in the midst of an admission of this thread" if is_interrupted() else "on the client's own thread"
            raise RuntimeError(f"this was called {here}, and would wait for itself; call it from another thread")
        outside: concurrent.futures.Future[T] = concurrent.futures.Future()
        tasks: list[asyncio.Task[T]] = []
        caller = threading.current_thread()

        def begin() -> None:
            THREAD.set(caller)  # in a context of its own, as what other threads hand over has
            tasks.append(self._loop.create_task(work))
            copy_outcome(tasks[0], outside)

        def abandon() -> None:
            if not tasks:
                work.close()  # interrupted before it was handed over
            else:
                tasks[0].cancel()
                tasks[0].add_done_callback(forget)

        def forget(task: "asyncio.Task[T]") -> None:
            if undo is not None and not task.cancelled() and task.exception() is None:
                undo(task.result())

        if self._forked:
            work.close()
            raise Closed(f"the client cannot be used: {FORKED}")
        self._waiting.add(outside)
        try:
            try:
                self._loop.call_soon_threadsafe(begin)
            except RuntimeError:
                work.close()
                raise Closed("the client is closed") from None
            return outside.result()
        except BaseException as error:
            if not outside.done() or outside.exception() is not error:  # a Ctrl-C, wherever it came
                self.tell(abandon)
            raise
        finally:
            self._waiting.discard(outside)

    def finish(self, closing: Coroutine[Any, Any, object]) -> None:
        """Run what closes something; where the thread has ended, or was the parent's before a fork, it is closed."""
        with contextlib.suppress(Closed):
            self.run(closing)

    async def awaited(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine there for a task of another loop: that loop goes on meanwhile, and no thread waits.

        Where the task is cancelled, so is the coroutine; a result that it has just then is lost.

        Raises:
            Closed: the thread has ended, or ended meanwhile.
        """
        if self._forked:
            work.close()
            raise Closed(f"the client cannot be used: {FORKED}")
        try:
            outside = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError:
            work.close()
            raise Closed("the client is closed") from None
        task = asyncio.current_task()
        try:
            return await asyncio.wrap_future(outside)
        except asyncio.CancelledError:
            if task is None or task.cancelling():
                raise
            raise Closed("the client was closed meanwhile") from None

    def tell(self, function: Callable[..., object], *args: object) -> None:
        """Call a function there, without waiting; once the thread has ended, nothing is called."""
        with contextlib.suppress(RuntimeError):
            if not self._forked:
                self._loop.call_soon_threadsafe(function, *args)

    def future(self, awaited: "asyncio.Future[T]") -> "concurrent.futures.Future[T]":
        """Return what other threads can wait on in place of a future of the loop. To be called there."""
        outside: concurrent.futures.Future[T] = concurrent.futures.Future()
        copy_outcome(awaited, outside)
        return outside

    def stop(self) -> None:
        """End the thread; threads that still wait on it learn that it is closed."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(Closed):
            self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        for outside in tuple(self._waiting):  # handed over too late to be begun
            if not outside.done():
                outside.set_exception(Closed("the client is closed"))

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=1.0)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()
