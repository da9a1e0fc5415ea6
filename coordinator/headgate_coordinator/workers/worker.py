"""A worker hears over its line what it is to do, says how it is, and asks about the others."""

import asyncio
import contextlib
import ctypes
import itertools
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

from headgate import InvalidValue
from headgate._util.tasks import stop
from headgate_coordinator.fleet.reports import Address, Report, ReportingWorker, Unready, read, written
from headgate_coordinator.workers.supervisor_pipe import REPLY, Message, PipeEnd, hear_first
from headgate_coordinator.workers.worker_health import BEAT

_log = logging.getLogger("headgate.node")
PATIENCE: Final = 1.5
"""Seconds for the supervisor to answer; it gives the other workers one."""
_PR_SET_PDEATHSIG: Final = 1
Order = Literal["drain", "leave", "end"]
"""Drain, while others serve the address; drain, while all others do; or end at once."""
About = Literal["figures", "links", "ready"]
"""All figures, all but the counts, or whether clients are taken."""


@dataclass(frozen=True, slots=True)
class WorkerAssignment:
    """An assignment holds facts that a worker is given as it begins.

    Attributes:
        place: its number among the workers, from 1 on.
        name: of its node, unlike those of the others.
        amqp, admin, grpc: ports that it shares with the others; None for what is not served.
    """

    place: int
    name: str
    amqp: int
    admin: int | None
    grpc: int | None


class Worker:
    """One of the processes at an address; it ends when the supervisor does, however that ended.

    Args:
        end: of the line, which the supervisor handed down.

    Attributes:
        post: what it serves.
        oneself: answers what the others ask; None while nobody can.

    Raises:
        ConnectionError: the supervisor is gone.
    """

    def __init__(self, end: socket.socket) -> None:
        _die_with_parent()
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor's, who restarts us in turn; some send it to all
        self.oneself: ReportingWorker | None = None
        self._end = end
        first = hear_first(end)
        self.post = WorkerAssignment(**{name: first[name] for name in WorkerAssignment.__dataclass_fields__})
        self._order: Callable[[Order], None] = _ignore
        self._early: list[Order] = []
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._line: PipeEnd
        self._listening: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None

    @classmethod
    def at(cls, descriptor: int) -> Self:
        """Return the worker whose end of the line has that descriptor.

        Raises:
            InvalidValue: it is no such line, or the supervisor is gone.
        """
        try:
            os.set_inheritable(descriptor, False)
            return cls(socket.socket(fileno=descriptor))
        except (OSError, ValueError, OverflowError, KeyError):
            raise InvalidValue(
                "only the supervisor that --workers starts gives this to its workers", setting="--worker"
            ) from None

    async def start(self) -> None:
        """Begin to hear the supervisor."""
        self._line = await PipeEnd.over(self._end)
        self._listening = asyncio.create_task(self._listen(), name="headgate worker's line")
        self._beating = asyncio.create_task(self._beat(), name="headgate worker's beat")

    def obey(self, order: Callable[[Order], None]) -> None:
        """Have orders carried out, with those that came already."""
        self._order = order
        for each in self._early:
            order(each)

    def listens(self, facts: dict[str, str]) -> None:
        """Say that clients are let in, and where."""
        self._line.say("listens", facts=facts)

    async def leave(self) -> None:
        """Say the last counts; nobody is served any more."""
        if self.oneself is not None:
            self._line.say("left", counts=written(self.oneself.report(counted=True).counts))
            await self._line.flush()
        await stop(self._listening)
        await stop(self._beating)
        self._line.close()

    async def reports(self, *, counted: bool) -> Address:
        """Return how all workers are; who does not answer is left out, and so are all when the supervisor does not."""
        answer = await self._ask("figures" if counted else "links")
        if answer is None:
            return Address(workers=1)
        reports = tuple(Report.read(one["report"]) for _, one in answer[REPLY] if one is not None and "report" in one)
        return Address(reports, read(answer["counts"]), answer["started"], answer["workers"], answer["replaced"])

    async def unready(self) -> list[tuple[int, Unready]]:
        """Return the numbers of those that take no clients, each with the reason."""
        answer = await self._ask("ready")
        if answer is None:
            return [(0, "silent")]
        found: list[tuple[int, Unready]] = [(place, "starting") for place in answer["unserved"]]
        for place, reply in answer[REPLY]:
            why: Unready | None = "silent" if reply is None else reply["unready"]
            if why in ("unavailable", "silent"):  # the others are no place's only worker, or were named above
                found.append((place, why))
        return found

    async def _ask(self, about: About) -> Message | None:
        number = next(self._numbers)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        self._line.say("ask", about=about, number=number)
        try:
            async with asyncio.timeout(PATIENCE):
                return await answer
        except TimeoutError:
            return None
        finally:
            del self._asked[number]

    async def _beat(self) -> None:
        """Say that the loop goes round, for the supervisor to hear."""
        while True:
            self._line.say("beats")
            await asyncio.sleep(BEAT)

    async def _listen(self) -> None:
        while (message := await self._line.hear()) is not None:
            match message["word"]:
                case "drain":
                    self._hear("drain" if message["others"] else "leave")
                case "end":
                    self._hear("end")
                case "tell":
                    await self._tell(message)
                case "answer":
                    asked = self._asked.get(message["number"])
                    if asked is not None and not asked.done():
                        asked.set_result(message)
        _log.error("the supervisor of node %s is gone, and its workers with it", self.post.name)
        os._exit(1)  # as a killed node: what it holds goes to others when its lease is over

    def _hear(self, order: Order) -> None:
        self._early.append(order)
        self._order(order)

    async def _tell(self, message: Message) -> None:
        reply: dict[str, Any] = {}
        if self.oneself is None:
            reply["unready"] = "starting"
        elif message["about"] == "ready":
            reply["unready"] = await self.oneself.unready()
        else:
            reply["report"] = self.oneself.report(counted=message["about"] == "figures").as_dict()
        self._line.say(REPLY, number=message["number"], **{REPLY: reply})


def _ignore(order: Order) -> None:
    """Do nothing with an order: it is kept for who comes to obey."""


def _die_with_parent() -> None:
    """Have Linux kill us when the supervisor dies, also while we are busy or frozen."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
