"""The supervisor of the workers at one address begins, replaces and ends them, and passes on what they ask.

It serves nobody and knows nothing of Redis. It remembers the counts of workers that have ended, so that sums never
fall.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from headgate_coordinator.fleet.reports import Series, add, read, written
from headgate_coordinator.workers import machine
from headgate_coordinator.workers.notify import READY, STOPPING, VARIABLE, notify, reloading
from headgate_coordinator.workers.ports import Port
from headgate_coordinator.workers.supervisor_pipe import REPLY, Message, PipeEnd, frame
from headgate_coordinator.workers.worker import About, WorkerAssignment
from headgate_coordinator.workers.worker_health import EVERY, WorkerHealth, glimpse

_log = logging.getLogger("headgate.node")
TELL_WITHIN: Final = 1.0
"""Seconds for a worker to tell how it is."""
Facts = dict[str, Any]
BESIDE_DRAIN: Final = 15.0
"""Seconds that a worker has to end, beside those to drain: for what its clients held, and for its last words."""
OPTION: Final = "--worker"
"""The option by which a command knows that it is a worker, and where its end of the line is."""


@dataclass(frozen=True, slots=True)
class ServedAddress:
    """A served address says where workers are to listen, and how many there are to be.

    Attributes:
        workers: how many.
        name: what operators call the node; the host's name and a few letters when empty.
        amqp, admin, grpc: hosts and ports, 0 for any that is free; None for what is not served.
        drain: seconds that a worker has for what is under way when it is stopped.
    """

    workers: int
    name: str
    amqp: tuple[str, int]
    admin: tuple[str, int] | None
    grpc: tuple[str, int] | None
    drain: float


class Supervisor:
    """A supervisor keeps workers at an address.

    Args:
        command: whose process is to be a worker; it gets :data:`OPTION` as well.
        count: of workers.
        post: of each, but for its place; they are called after its name.
        drain: seconds that a worker has for what is under way.
        tell: called once all listen, with the name, what the first reported of addresses, and how many there are.
    """

    def __init__(
        self, command: list[str], count: int, post: WorkerAssignment, drain: float, tell: Callable[[Facts], None]
    ) -> None:
        self._command, self._count, self._post = command, count, post
        self._tell = tell
        self._machine = machine.WorkerMachine(count, drain + BESIDE_DRAIN)
        self._workers: dict[int, _Process] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._numbers = 0
        self._ended: Series = {}
        self._replaced = 0
        self._started = time.time()
        self._first: Facts = {}
        self._announced = self._stopping = False
        self._failed = 1
        self._over: asyncio.Future[int]

    async def run(self) -> int:
        """Serve until it is to stop; returns the exit code."""
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        loop.add_signal_handler(signal.SIGTERM, self._stop)
        loop.add_signal_handler(signal.SIGINT, self._end)
        loop.add_signal_handler(signal.SIGHUP, self._roll)
        self._obey(self._machine.begin(loop.time()))
        self._look()
        try:
            return await self._over
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                loop.remove_signal_handler(number)
            for timer in (self._timer, self._looking):
                if timer is not None:
                    timer.cancel()

    # -- Signals -----------------------------------------------------------------------------------------------

    def _stop(self) -> None:
        if self._stopping:
            self._end()
            return
        self._stopping = True
        notify(STOPPING)
        for number, state in self._machine.states.items():
            if state == "starting":  # it serves nobody, and hears nothing until it has read all its code
                self._workers[number].terminate()
        self._obey(self._machine.stop(self._now()))

    def _end(self) -> None:
        if not self._stopping:
            self._stop()
        for worker in self._workers.values():
            worker.say("end")

    def _roll(self) -> None:
        if self._stopping:
            return
        _log.info("node %s: its workers are restarted one by one", self._post.name)
        reloading()
        self._obey(self._machine.roll(self._now()))

    # -- Orders of the machine ---------------------------------------------------------------------------------

    def _obey(self, orders: list[machine.Order]) -> None:
        for order in orders:
            match order:
                case machine.Begin(number, place):
                    worker = self._workers[number] = _Process(place, f"{self._post.name}-w{place}")
                    self._spawn(self._live(number, worker))  # the next order may be for it already
                case machine.Drain(number, others):
                    self._workers[number].say("drain", others=others)
                case machine.Kill(number):
                    _log.error("%s did not end when asked to, and is killed", self._workers[number].name)
                    self._workers[number].kill()
                case machine.Replace(number, place, seconds):
                    self._replaced += 1
                    _log.error("worker %d of node %s starts again in %.3g s", place, self._post.name, seconds)
                case machine.Abandon(number, place):
                    _log.error(
                        "the restart of node %s ends at worker %d, which stays: its successor did not start",
                        self._post.name, place,
                    )  # fmt: skip
                    notify(READY)
                case machine.RestartDone():
                    _log.info("node %s: all workers were restarted", self._post.name)
                    notify(READY)
                case machine.AllEnded(failed):
                    if not self._over.done():
                        self._over.set_result(0 if failed is None else self._failed)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due := self._machine.next_due()) is not None and not self._over.done():
            self._timer = asyncio.get_running_loop().call_at(due, self._due)

    def _due(self) -> None:
        self._obey(self._machine.due(self._now()))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- Workers -----------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Kill each worker that works no more: as it ends, its connections do, and another begins in its place."""
        for worker in self._workers.values():  # also of one that still reads its code, which takes a second or so
            verdict = worker.watch.look(glimpse(worker.pid), spoke=worker.spoke)
            worker.spoke = False
            if verdict is not None:
                _log.error("%s (pid %d) %s, and is killed", worker.name, worker.pid, verdict)
                worker.kill()
        self._looking = asyncio.get_running_loop().call_later(EVERY, self._look)

    async def _live(self, number: int, worker: "_Process") -> None:
        """Keep one worker from its beginning to its end."""
        try:
            await worker.start(self._command, self._post)
            while (message := await worker.hear()) is not None:
                self._hear(number, worker, message)
            code = await worker.ended()
        except OSError as error:  # no memory, no processes
            _log.error("%s cannot be started: %s", worker.name, error.strerror)
            code = 1
        worker.is_gone()
        del self._workers[number]
        add(self._ended, worker.counts)
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        draining = self._machine.states[number] == "draining"
        _log.log(
            logging.INFO if draining and code in (0, -signal.SIGTERM) else logging.ERROR,
            "%s (pid %d) ended %s after %.0f s", worker.name, worker.pid, how, time.monotonic() - worker.began,
        )  # fmt: skip
        self._failed = code if code > 0 else 1
        self._obey(self._machine.ended(number, self._now()))

    def _hear(self, number: int, worker: "_Process", message: Message) -> None:
        worker.spoke = True
        match message["word"]:
            case "listens":
                _log.info("%s (pid %d) listens", worker.name, worker.pid)
                self._first = self._first or message["facts"]
                self._obey(self._machine.listens(number, self._now()))
                if not self._announced and not self._machine.unserved():
                    self._announced = True
                    self._tell(self._first | {"name": self._post.name, "workers": self._count})
                    notify(READY)
            case "left":
                worker.counts = read(message["counts"])
                worker.left = True
            case "told":
                worker.hear_reply(message)
            case "ask":
                self._spawn(self._answer(worker, message))

    async def _answer(self, asking: "_Process", message: Message) -> None:
        """Ask all workers, and tell the one that asked."""
        about: About = message["about"]
        listening = ("ready",) if about == "ready" else ("ready", "draining")
        states = self._machine.states
        asked = [one for number, one in self._workers.items() if states.get(number) in listening and not one.left]
        self._numbers += 1
        replies = await asyncio.gather(*(worker.ask(about, self._numbers) for worker in asked))
        counts: Series = {}
        if about == "figures":
            add(counts, self._ended)
            for worker in self._workers.values():
                add(counts, worker.counts)
        asking.say(
            "answer", number=message["number"], workers=self._count, replaced=self._replaced,
            started=self._started, unserved=self._machine.unserved(), counts=written(counts),
            **{REPLY: [[worker.place, its] for worker, its in zip(asked, replies, strict=True)]},
        )  # fmt: skip


class _Process:
    """One worker, as its supervisor has it."""

    def __init__(self, place: int, name: str) -> None:
        self.place, self.name = place, name
        self.began = time.monotonic()
        self.counts: Series = {}
        """The last that it reported."""
        self.left = False
        """Whether these are the last."""
        self.watch = WorkerHealth()
        self.spoke = False
        """Whether it sent something since the last look."""
        self._asked: dict[int, asyncio.Future[Message | None]] = {}
        self._process: asyncio.subprocess.Process | None = None
        self._line: PipeEnd | None = None
        self._unsaid: list[tuple[str, dict[str, object]]] = []
        self._unsent: int | None = None

    @property
    def pid(self) -> int:
        """Its process id; 0 before there is one."""
        return self._process.pid if self._process is not None else 0

    async def start(self, command: list[str], post: WorkerAssignment) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            ours.sendall(frame("begin", **asdict(post) | {"place": self.place, "name": self.name}))
            environment = {name: value for name, value in os.environ.items() if name != VARIABLE}
            # A session of its own: Ctrl-C in a terminal reaches us alone, and we end them in order.
            self._process = await asyncio.create_subprocess_exec(
                *command, OPTION, str(theirs.fileno()), env=environment, pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        if self._unsent is not None:
            self._send(self._unsent)
        self._line = await PipeEnd.over(ours)
        for word, facts in self._unsaid:
            self._line.say(word, **facts)

    def say(self, word: str, **facts: object) -> None:
        """Say something, as soon as it has begun."""
        if self._line is None:
            self._unsaid.append((word, facts))
        else:
            self._line.say(word, **facts)

    async def hear(self) -> Message | None:
        """Return what it says next; None when it has hung up."""
        assert self._line is not None  # noqa: S101 -- it was started
        return await self._line.hear()

    async def ended(self) -> int:
        """Wait for its end, and return how it ended, minus the signal that ended it."""
        assert self._line is not None  # noqa: S101 -- it was started
        assert self._process is not None  # noqa: S101
        self._line.close()
        return await self._process.wait()

    def terminate(self) -> None:
        """End it, or have it drain where it serves by now."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """End it now."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self._process is None:
            self._unsent = number
            return
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)

    async def ask(self, about: About, number: int) -> Message | None:
        """Return what it tells of itself; None when it does not in time."""
        reply: asyncio.Future[Message | None] = asyncio.get_running_loop().create_future()
        self._asked[number] = reply
        self.say("tell", about=about, number=number)
        try:
            async with asyncio.timeout(TELL_WITHIN):
                return await reply
        except TimeoutError:
            return None
        finally:
            del self._asked[number]

    def hear_reply(self, message: Message) -> None:
        """Take what it tells."""
        if (report := message[REPLY].get("report")) and report["counts"]:
            self.counts = read(report["counts"])
        reply = self._asked.get(message["number"])
        if reply is not None and not reply.done():
            reply.set_result(message[REPLY])

    def is_gone(self) -> None:
        """Note that it tells nothing more."""
        for reply in self._asked.values():
            if not reply.done():
                reply.set_result(None)


def supervise(wanted: ServedAddress, tell: Callable[[Facts], None], arguments: list[str]) -> int:
    """Run workers until they are to stop; returns the exit code.

    Args:
        wanted: how many, and where.
        tell: called once all listen.
        arguments: of the command that each of them runs, which is this one.

    Raises:
        InvalidValue: a port cannot be had.
    """
    with contextlib.ExitStack() as stack:

        def port(place: tuple[str, int] | None, what: str) -> int | None:
            return stack.enter_context(contextlib.closing(Port(*place, what))).number if place is not None else None

        name = wanted.name or f"{socket.gethostname()}-{secrets.token_hex(2)}"
        amqp = stack.enter_context(contextlib.closing(Port(*wanted.amqp, "AMQP"))).number
        post = WorkerAssignment(0, name, amqp, port(wanted.admin, "admin HTTP"), port(wanted.grpc, "the gRPC port"))
        # -P: the current directory is the user's, and may hold a file with the name of a module.
        command = [sys.executable, "-P", "-m", "headgate_coordinator", *arguments]
        return asyncio.run(Supervisor(command, wanted.workers, post, wanted.drain, tell).run())
