"""Workers of a link as processes that die: at one moment of one step, or at any moment, killed or frozen from outside.

python -m tests.links.worker_process PLAN    a `Plan` as JSON

One warm interpreter, without any event loop or connection, forks a worker, waits for its end, and forks the next: that
takes some ten milliseconds. It prints a line of JSON for each end. When all have died that were to die, one more worker
goes on with the rest, until standard input ends; then it is killed like the others.
"""

import asyncio
import gc
import itertools
import json
import os
import random
import select
import signal
import sys
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from headgate.core.links.calls import (
    Call,
    Commit,
    Committed,
    Copy,
    Fetch,
    NoStore,
    Open,
    Opened,
    RateTaken,
    Read,
    Secure,
    Skip,
    TakeRate,
)
from headgate.errors import CoordinatorUnavailable
from headgate.redis.keys import Address, link_id
from headgate.redis.server import Server
from headgate.redis.stores.links import LinkStore
from headgate.redis.url import parse_url
from headgate_coordinator.links.forwarder import Forwarder
from headgate_coordinator.links.rules import Forwarding
from headgate_coordinator.links.worker import LinkSide, LinkWorker
from tests.support.waiting import wait_until

LINK: Final = link_id("from one site to another")
STEPS: Final = ("reserve", "read", "commit", "secure", "release")
POISONED: Final = ("copy", "skip")
"""The steps of what can never be delivered: its copy to the dead letters, and the mark past it."""
MOMENTS: Final = ("before", "sent", "answered")
"""Before a call is sent; after it was sent, and before its reply is read; after that, before anything is made of it."""
OUTSIDE: Final = (("outside", "killed"), ("outside", "killed"), ("outside", "frozen"))
PATIENCE: Final = 4.0
"""Seconds after which a worker is killed that does not get to the moment of its death; that way is tried again."""
THAW: Final = 3
"""Deaths after which one that was frozen goes on, beside the one who came after it, until the next death."""

_step: ContextVar[str] = ContextVar("_step", default="")


@dataclass(frozen=True)
class Plan:
    """What to breed.

    Attributes:
        source: URL of the server with the queue or topic ``orders``, and with the queue ``dead``.
        target: URL of the server with the queue ``orders`` that it goes to.
        namespace: of all.
        kills: how many workers are to die before the last one.
        seed: of all that is random.
        steps: at which they die.
        fence: number of the first worker's lease.
        fenced: whether each has a later lease than the one before; else all believe that theirs is in force.
        replicas: of the target, that must have a commit.
        window: bytes in hand.
        ttl: seconds for which the target keeps the credit of one that died.
        each_way: whether more die until each step had a death at each moment; one that is late dies another way.
    """

    source: str
    target: str
    namespace: str
    kills: int
    seed: int
    steps: tuple[str, ...] = STEPS
    fence: int = 1
    fenced: bool = True
    replicas: int = 0
    window: int = 1000
    ttl: float = 1.0
    each_way: bool = False

    @property
    def json(self) -> str:
        return json.dumps(asdict(self))


@dataclass
class Doom:
    """When a worker dies: at one moment of a step, when that comes for the n-th time."""

    step: str
    moment: str
    times: int
    words: int
    """Where it says so with its last breath."""

    def at(self, step: str, moment: str) -> None:
        if (step, moment) != (self.step, self.moment):
            return
        self.times -= 1
        if self.times == 0:
            os.write(self.words, b"!")
            os.kill(os.getpid(), signal.SIGKILL)


class DoomedServer(Server):
    """A server whose caller may die when a call is on its way."""

    def __init__(self, url: str, doom: Doom) -> None:
        super().__init__(parse_url(url))
        self._doom = doom

    async def _dial_only(self) -> Any:
        connection: Any = await super()._dial_only()
        send = connection.send_packed_command

        async def sent(command: Any, **more: Any) -> None:
            await send(command, **more)
            if isinstance(command, bytes) and (b"EVALSHA" in command or b"FCALL" in command):
                self._doom.at(_step.get(), "sent")

        connection.send_packed_command = sent
        return connection


class DoomedWorker(LinkWorker):
    """A worker that may die before and after each call."""

    doom: Doom

    async def perform(self, call: Call) -> tuple[Opened | Read | Committed | NoStore | RateTaken, int]:
        step = step_of(call, self.forwarder)
        _step.set(step)
        self.doom.at(step, "before")
        answer = await super().perform(call)
        self.doom.at(step, "answered")
        return answer


def step_of(call: Call, worker: Forwarder) -> str:
    """Return which step of the protocol a call is."""
    match call:
        case Open():
            return "open"
        case Fetch():
            return "release" if call.mark > worker.released else "read"
        case Commit():
            skips = any(isinstance(entry, Skip) for entry in call.entries)
            return "skip" if skips else "commit" if call.entries else "reserve"
        case Secure():
            return "secure"
        case Copy():
            return "copy"
        case TakeRate():
            return "pace"


async def there(server: Server) -> bool:
    """Connect; False while it restarts."""
    try:
        await server.open()
    except CoordinatorUnavailable:
        return False
    return True


async def live(plan: Plan, doom: Doom, fence: int) -> None:
    source, target = DoomedServer(plan.source, doom), DoomedServer(plan.target, doom)
    for server in (source, target):
        await wait_until(lambda: there(server))  # noqa: B023 -- used before it changes
    orders = Address.of(plan.namespace, "orders")
    worker = DoomedWorker(
        LINK,
        LinkSide(LinkStore(source), orders, source.wake_ups()),
        LinkSide(LinkStore(target), orders, target.wake_ups()),
        Forwarding("here", "there", window=plan.window, messages=20, replicas=plan.replicas),
        fence=fence,
        dead=LinkSide(LinkStore(source), Address.of(plan.namespace, "dead")),
        ttl=plan.ttl,
    )
    worker.doom = doom
    await worker.run()


@dataclass
class Worker:
    """One that lives."""

    pid: int
    words: int
    until: int = 0
    """Deaths at which it is to go on, if it was frozen."""
    thawed: bool = False

    @classmethod
    def fork(cls, plan: Plan, number: int, doom: tuple[str, str, int]) -> Self:
        hears, speaks = os.pipe()
        pid = os.fork()
        if pid:
            os.close(speaks)
            return cls(pid, hears)
        os.close(hears)
        try:
            asyncio.run(live(plan, Doom(*doom, speaks), plan.fence + number * plan.fenced))
        except BaseException:  # noqa: BLE001 -- nothing of the parent's goes on in the child
            traceback.print_exc()
            os._exit(1)
        os._exit(0)

    def ends(self, within: float | None) -> bool:
        """Wait for its last words or its end; False when that is too long. Without anybody who listens, end it all."""
        heard, _, _ = select.select([self.words, sys.stdin], [], [], within)
        if sys.stdin in heard:
            self.signal(signal.SIGKILL)
            raise EOFError
        return bool(heard)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def bury(self) -> tuple[bool, int]:
        """Wait until it is dead; returns whether it said that it would die, and what ended it: negative, a signal."""
        said = bool(os.read(self.words, 1))
        os.close(self.words)
        return said, os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


class Breeder:
    """Forks one after the other."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.dice = random.Random(plan.seed)
        self.frozen: list[Worker] = []
        self.died = 0
        self.missing = set(itertools.product(plan.steps, MOMENTS)) if plan.each_way else set()

    def run(self) -> None:
        numbers, ways = itertools.count(), self._ways()
        worker: Worker | None = None
        try:
            while self.died < self.plan.kills or (self.missing and self.died < 10 * self.plan.kills):
                step, moment = next(ways)
                worker = Worker.fork(self.plan, next(numbers), (step, moment, self.dice.randint(1, 4)))
                self._outlive(worker, step, moment)
                self._thaw()
            worker = Worker.fork(self.plan, next(numbers), ("", "", 0))
            self._say("last", "lives")
            worker.ends(None)
            self._report(worker, "last", "alone")
        except EOFError:
            pass
        finally:
            for late in self.frozen:
                late.signal(signal.SIGKILL)

    def _ways(self) -> Iterator[tuple[str, str]]:
        """Yield each way to die equally often, in any order."""
        ways = [*itertools.product(self.plan.steps, MOMENTS), *OUTSIDE]
        while True:
            self.dice.shuffle(ways)
            yield from (way for way in ways if self.died < self.plan.kills or way in self.missing)

    def _outlive(self, worker: Worker, step: str, moment: str) -> None:
        from_outside = (step, moment) in OUTSIDE
        ended = worker.ends(self.dice.random() * 0.06 if from_outside else PATIENCE)
        if moment == "frozen" and not ended:
            worker.signal(signal.SIGSTOP)
            worker.until = self.died + THAW
            self.frozen.append(worker)
            return
        if not ended:
            worker.signal(signal.SIGKILL)
        self._report(worker, step, moment)

    def _report(self, worker: Worker, step: str, moment: str) -> None:
        said, code = worker.bury()
        if code == -signal.SIGKILL:
            self.died += 1
            self.missing -= {(step, moment)} if said else set()
            self._say(*((step, moment) if said else ("outside", moment if step == "outside" else "killed")))
        else:
            self._say("ended", str(code))

    def _thaw(self) -> None:
        """Let frozen ones go on beside the one that comes next, and end those that did."""
        for worker in tuple(self.frozen):
            if worker.thawed:
                self.frozen.remove(worker)
                worker.signal(signal.SIGKILL)
                self._report(worker, "outside", "frozen")
            elif self.died >= worker.until:
                worker.signal(signal.SIGCONT)
                worker.thawed = True

    @staticmethod
    def _say(step: str, moment: str) -> None:
        print(json.dumps([step, moment]), flush=True)


if __name__ == "__main__":
    told = json.loads(sys.argv[1])
    gc.freeze()
    Breeder(Plan(**told | {"steps": tuple(told["steps"])})).run()
