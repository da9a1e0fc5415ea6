"""The thread that runs the event loop, and how other threads get work done there."""

import asyncio
import concurrent.futures
import contextlib
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headgate.errors import Closed

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own. A daemon: a client that nobody closed does not keep the process alive."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="headgate", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T], undo: Callable[[T], None] | None = None) -> T:
        """Run a coroutine there and return its result.

        Args:
            work: the coroutine.
            undo: called there with the result if this thread was interrupted and nobody will ever have it.

        Raises:
            Closed: the thread has ended, or ended meanwhile.
        """
        results: list[T] = []

        async def keep() -> T:
            results.append(await work)
            return results[0]

        def abandon() -> None:
            if undo is not None and results:
                undo(results[0])

        keeping = keep()
        try:
            future = asyncio.run_coroutine_threadsafe(keeping, self._loop)
        except RuntimeError:
            keeping.close()
            work.close()
            raise Closed("the client is closed") from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise Closed("the client was closed meanwhile") from None
        except BaseException:
            future.cancel()  # of no effect on work that failed; ends the work that a Ctrl-C left behind
            self.tell(abandon)
            raise

    def tell(self, function: Callable[..., object], *args: object) -> None:
        """Call a function there, without waiting; once the thread has ended, nothing is called."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *args)

    def future(self, awaited: "asyncio.Future[T]") -> "concurrent.futures.Future[T]":
        """Return what other threads can wait on in place of a future of the loop. To be called there."""
        outside: concurrent.futures.Future[T] = concurrent.futures.Future()

        def copy(done: "asyncio.Future[T]") -> None:
            if done.cancelled():
                outside.set_exception(Closed("the client was closed meanwhile"))
            elif error := done.exception():
                outside.set_exception(error)
            else:
                outside.set_result(done.result())

        awaited.add_done_callback(copy)
        return outside

    def stop(self) -> None:
        """End the thread; whoever still waits on it is told that it is closed."""
        if self._loop.is_closed():
            return
        with contextlib.suppress(Closed):
            self.run(self._cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _cancel_all(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=1.0)
        await self._loop.shutdown_asyncgens()
        await self._loop.shutdown_default_executor()
