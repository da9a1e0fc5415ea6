"""An event loop whose clock stands still while anything can run, and then jumps to the next timer.

Processes share it: a callback belongs to the process whose task scheduled it, so one that is frozen has none called,
and one that is dead none ever again.
"""

import asyncio
import contextlib
import heapq
import itertools
from asyncio import events
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from typing import Any, Final

BEGINS: Final = 1_000.0
"""Seconds on each clock at first: products may take 0 for never."""
A_MOMENT: Final = 1e-9
"""Seconds after its time at which a timer is due: by no clock too early, however it is rounded."""
MOST_AT_ONCE: Final = 50_000
"""Callbacks that may be called while the time stands still."""
MOST_ASKED: Final = 20_000
"""Times that one callback may ask for the time, which stands still."""


class Process:
    """One that lives in a world: its clocks, and whether it runs."""

    def __init__(self, name: str, *, rate: float = 1.0) -> None:
        self.name = name
        self.rate = rate
        """Seconds by its clock, in one of the world's."""
        self.ahead = 0.0
        """Seconds by which its calendar is."""
        self.frozen = self.dead = False
        self.missed: list[events.Handle] = []
        """Callbacks that were due while it was frozen, or since it died."""

    def __repr__(self) -> str:
        return self.name


class Stuck(BaseException):
    """Nothing is left that could happen, or too much did."""


_process: Final[ContextVar[Process]] = ContextVar("process")


def _do(done: "asyncio.Future[Any]", func: Callable[..., Any], *args: Any) -> None:
    """Do something as a thread does: whether anybody waits for it still or not."""
    try:
        result = func(*args)
    except Exception as error:  # noqa: BLE001 -- as an executor does
        if not done.done():
            done.set_exception(error)
    else:
        if not done.done():
            done.set_result(result)


class VirtualLoop(asyncio.BaseEventLoop):
    """A loop of virtual time; what it connects, ``connect`` and ``listen`` do."""

    def __init__(self) -> None:
        super().__init__()
        self.now = BEGINS
        self.events = self._asked = self._moved_at = 0
        self.processes: list[Process] = []
        self.nobody = self.process = Process("world")
        self.connect: Callable[..., Coroutine[Any, Any, Any]] | None = None
        self.listen: Callable[..., Coroutine[Any, Any, Any]] | None = None
        self.after_each: Callable[[], None] | None = None
        self.storage_takes: Callable[[], float] | None = None
        """Returns the seconds that an operation of a storage takes."""
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._numbers = itertools.count()
        self._ready: Any
        self._stopping: bool

    # The parts of asyncio's loop that know the time, or the system; typeshed has more kinds of each than anybody calls.

    def time(self) -> float:
        self._asked += 1
        if self._asked > MOST_ASKED:
            raise Stuck("somebody asks for the time again and again, and lets nobody go on")
        return BEGINS + (self.now - BEGINS) * self.process.rate

    def call_at(self, when: float, callback: Any, *args: Any, context: Context | None = None) -> events.TimerHandle:  # type: ignore[override]
        due = BEGINS + (when - BEGINS) / self.process.rate
        return self.at(due + A_MOMENT, callback, *args, context=context)

    def at(self, due: float, callback: Any, *args: Any, context: Context | None = None) -> events.TimerHandle:
        """Call back at a time of the world's clock."""
        timer = events.TimerHandle(due, callback, args, self, context)
        heapq.heappush(self._timers, (due, next(self._numbers), timer))
        return timer

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Leave it in the heap: it is passed over when it is due."""

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Context | None = None) -> events.Handle:  # type: ignore[override]
        return self.call_soon(callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        """Do it at once, or after a time that is drawn where threads wait for storage: one would come when it likes."""
        done = self.create_future()
        if executor is None or self.storage_takes is None:
            _do(done, func, *args)
        else:
            self.at(self.now + self.storage_takes(), _do, done, func, *args, context=copy_context())
        return done

    async def create_connection(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        assert self.connect
        return await self.connect(self.process, factory, host, port)

    async def create_server(self, factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        assert self.listen
        return await self.listen(self.process, factory, host, port)

    def _process_events(self, _: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _run_once(self) -> None:
        ready = self._ready
        if self.events > self._moved_at + MOST_AT_ONCE:
            raise Stuck(f"{MOST_AT_ONCE} callbacks at one moment, the next of them {ready[0] if ready else None}")
        if not ready:
            self._pass_time()
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process = handle._context.get(_process, self.nobody)
            if process.frozen or process.dead:
                process.missed.append(handle)
                continue
            self.process = process
            self.events += 1
            self._asked = 0
            handle._run()
        self.process = self.nobody
        if self.after_each:
            self.after_each()

    def _pass_time(self) -> None:
        if self._stopping:
            return
        while self._timers and self._timers[0][2]._cancelled:
            heapq.heappop(self._timers)
        if not self._timers:
            raise Stuck("nothing is left that could happen")
        if self._timers[0][0] > self.now:
            self.now = self._timers[0][0]
            self._moved_at = self.events
        while self._timers and self._timers[0][0] <= self.now:
            timer = heapq.heappop(self._timers)[2]
            if not timer._cancelled:
                self._ready.append(timer)

    # Processes.

    def begin(self, process: Process) -> Context:
        """Have a process be; returns the context that makes a callback its own."""
        self.processes.append(process)
        context = Context()
        context.run(_process.set, process)
        return context

    def thaw(self, process: Process) -> None:
        """Have a process go on: all that was due happens at once."""
        process.frozen = False
        self._ready.extend(process.missed)
        process.missed.clear()

    def bury(self) -> None:
        """End all tasks; those of the dead go on for that, with what they missed, cut off from all others."""
        self.after_each = None
        self.set_exception_handler(lambda *_: None)
        for process in self.processes:
            process.dead = False
            self.thaw(process)
        for _ in range(5):  # one that fails as it ends may begin again
            tasks = [task for task in asyncio.all_tasks(self) if not task.done()]
            if not tasks:
                break
            for task in tasks:
                task.cancel()
            with contextlib.suppress(Stuck):
                self.run_until_complete(asyncio.wait(tasks, timeout=60))
        self.run_until_complete(self.shutdown_asyncgens())
        self.close()
        self._timers.clear()
