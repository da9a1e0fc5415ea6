"""Processes that hold things, to be killed and frozen. Run as a module, this is such a process.

Each says ``ready`` once it holds what its role is about; what follows on the line is told to the test.
"""

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import headgate
import headgate.sync
from tests.support.forked import PIPE, Forked

_ROOT = Path(__file__).parents[2]


class Worker:
    """A process in a role: the name of a coroutine function of this module, and its arguments."""

    def __init__(self, role: str, *arguments: object, within: Sequence[str] = ()) -> None:
        command = ["tests.sdk.workers", role, *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": str(Path(headgate.__file__).parents[1])}
        self.process: subprocess.Popen[str] | Forked
        if within:  # another program begins it
            self.process = subprocess.Popen(
                [*within, sys.executable, "-m", *command],
                cwd=_ROOT,
                env=environment,
                stdin=PIPE,
                stdout=PIPE,
                text=True,
            )
        else:
            self.process = Forked(*command, environment=environment, stdin=PIPE, stdout=PIPE)

    def ready(self) -> list[str]:
        """Wait until it holds what it is to hold; returns what it tells about that."""
        words = self.next_line()
        assert words[:1] == ["ready"], words
        return words[1:]

    def next_line(self) -> list[str]:
        assert self.process.stdout is not None
        return self.process.stdout.readline().split()

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait()

    def sigstop(self) -> None:
        self.process.send_signal(signal.SIGSTOP)

    def sigcont(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self.process:
            self.process.kill()


def _say(*words: object) -> None:
    print(*words, flush=True)


async def _told() -> str:
    line: str = await asyncio.to_thread(sys.stdin.readline)
    return line.strip()


async def producer(client: headgate.Client, destination: str, ttl: str) -> None:
    """Send one message a millisecond, for ever, so that its credit is never idle."""
    async with client.session("worker", ttl=float(ttl)) as session:
        sender = await session.producer(destination, window=4000)
        for number in range(1 << 30):
            await sender.send(f"{number}", timeout=60)
            if number == 10:
                _say("ready", session.id)
            await asyncio.sleep(0.001)


async def consumer(client: headgate.Client, destination: str, ttl: str, count: str) -> None:
    """Receive and settle nothing."""
    async with client.session("worker", ttl=float(ttl)) as session:
        receiver = await session.consumer(destination, window=int(count))
        held = [await receiver.receive(timeout=30) for _ in range(int(count))]
        _say("ready", *(message.body for message in held if message))
        await _told()


async def takes(client: headgate.Client, destination: str, ttl: str) -> None:
    """Receive and accept, for ever."""
    async with client.session("worker", ttl=float(ttl)) as session:
        receiver = await session.consumer(destination)
        _say("ready", session.id)
        async for message in receiver:
            await message.accept()


async def tallies(client: headgate.Client, destination: str, file: str) -> None:
    """Receive and accept all there is, and write of each a line into a file that others write into too."""
    async with client.session("worker", ttl=1) as session:
        receiver = await session.consumer(destination, window=2)
        _say("ready", session.id)
        tally = os.open(file, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        async for message in receiver:
            os.write(tally, f"{message.headers['tenant']} {message.body!r}\n".encode())
            await message.accept(confirm=True)


async def delays(client: headgate.Client, destination: str, seed: str) -> None:
    """Send messages for later and work on what comes, half of which is given back for later, for ever.

    The body of each is the ms at which it is due. It is said of each that it was stored, or is accepted, or came early.
    """
    dice = random.Random(int(seed))
    async with client.session("worker", ttl=1) as session:
        sender, receiver = await session.producer(destination), await session.consumer(destination, window=9)
        _say("ready")

        async def send() -> None:
            for number in range(1 << 30):
                wait = dice.choice((0.005, 0.05, 0.3))
                name = f"{int((time.time() + wait) * 1000)}-{seed}-{number}"
                await sender.send(name, delay=wait + 0.001, timeout=60)
                _say("stored", name)
                await asyncio.sleep(dice.random() / 50)

        async def work() -> None:
            async for message in receiver:
                name = str(message.body)
                if int(time.time() * 1000) < int(name.partition("-")[0]):
                    _say("early", name)
                if dice.random() < 0.5:
                    await message.modify(failed=dice.random() < 0.5, after=dice.choice((None, 0.02, 0.2)))
                else:
                    _say("accepts", name)
                    await message.accept(confirm=True)

        await asyncio.gather(send(), work())


async def iterates(client: headgate.Client, destination: str, count: str) -> None:
    """Receive and accept all there is; stop this process after so many, and close when told."""
    async with client.session("worker") as session:
        receiver = await session.consumer(destination)
        closing = asyncio.create_task(_close_when_told(receiver))
        received = 0
        async for message in receiver:
            received += 1
            if received == int(count):
                _say("ready", session.id)
                os.kill(os.getpid(), signal.SIGSTOP)
            with contextlib.suppress(headgate.SessionExpired):
                await message.accept()
        _say("ended")
        await closing


async def _close_when_told(receiver: headgate.Consumer) -> None:
    await _told()
    await receiver.close()


async def iterates_in_threads(client: headgate.Client, destination: str, count: str) -> None:
    """Do as `iterates` does, without a loop."""

    def work(url: str, namespace: str) -> None:
        with headgate.sync.connect(url, namespace=namespace) as threads, threads.session("worker") as session:
            receiver = session.consumer(destination)

            def close_when_told() -> None:
                sys.stdin.readline()
                receiver.close()

            closing = threading.Thread(target=close_when_told)
            closing.start()
            for received, message in enumerate(receiver, start=1):
                if received == int(count):
                    _say("ready", session.id)
                    os.kill(os.getpid(), signal.SIGSTOP)
                with contextlib.suppress(headgate.SessionExpired):
                    message.accept()
            closing.join()
            _say("ended")

    await asyncio.to_thread(work, client.redis_url, client.namespace)


async def wildcard(client: headgate.Client, pattern: str, ttl: str, count: str, subscription: str) -> None:
    """Subscribe, then receive so many and settle nothing."""
    async with client.session("worker", ttl=float(ttl)) as session:
        receiver = await session.consumer(pattern, subscription=subscription, window=int(count))
        _say("ready")
        held = [await receiver.receive(timeout=30) for _ in range(int(count))]
        _say(*(str(message.body).replace(" ", "-") for message in held if message))
        await _told()


async def gates(client: headgate.Client, destination: str, ttl: str, count: str, window: str) -> None:
    """Hold a permit in each of many sessions; when told, say how much of it is still in force."""
    opened = []
    for number in range(int(count)):
        session = client.session(f"worker-{number}", ttl=float(ttl))
        gate = await session.gate(destination, window=int(window))
        opened.append((session, gate, gate.try_admit(int(window) // 2)))
    _say("ready", *(session.id for session, _, permit in opened if permit))
    while await _told():
        _say(sum(gate.in_use for _, gate, permit in opened if permit and permit._inc == gate._credit.inc))


async def holds(client: headgate.Client, destination: str, ttl: str, count: str) -> None:
    """Hold so many slots of a limiter, half of them of what is in hand, and say the ids of those that have one."""
    async with client.session("worker", ttl=float(ttl)) as session, client.session("worker", ttl=float(ttl)) as second:
        limiter, other = await session.limiter(destination), await second.limiter(destination, in_hand=False)
        held = [await other.admit(in_flight=1, timeout=60) for _ in range(int(count) // 2)]
        while len(held) < int(count):
            hold = limiter.try_admit(in_flight=1)
            if isinstance(hold, headgate.Hold):
                held.append(hold)
            await asyncio.sleep(0.001)
        _say("ready", *(hold.id for hold in held[: int(count) // 2]))
        await _told()


async def numbered(client: headgate.Client, destination: str, ttl: str, count: str) -> None:
    """Send so many numbered messages, four at a time, and say which were accepted."""
    async with client.session("worker", ttl=float(ttl)) as session:
        sender = await session.producer(destination, window=1000)
        _say("ready", session.id)
        sending: set[asyncio.Task[headgate.Receipt]] = set()
        for number in range(int(count)):
            sending.add(asyncio.create_task(sender.send(f"{number}", timeout=60)))
            if len(sending) == 4:
                done, sending = await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        await asyncio.gather(*sending)
        _say("done", count)
        await _told()


async def spread(client: headgate.Client, prefix: str, ttl: str, count: str, seed: str) -> None:
    """Send messages of all sizes to destinations in no order, for ever."""
    dice = random.Random(int(seed))
    async with client.session("worker", ttl=float(ttl)) as session:
        senders = [await session.producer(f"{prefix}{number}", window=300) for number in range(int(count))]
        _say("ready", session.id)

        async def send(sender: headgate.Producer) -> None:
            while True:
                # Where the machine is busy, some calls are given up before they are answered.
                with contextlib.suppress(headgate.CreditTimeout, headgate.CoordinatorUnavailable):
                    await sender.send(b"x" * dice.randrange(1, 250), timeout=dice.choice((0.1, 1, 30)))
                await asyncio.sleep(dice.random() / 50)

        await asyncio.gather(*(send(sender) for sender in senders))


async def sliced(client: headgate.Client, destination: str, ttl: str, count: str, seed: str) -> None:
    """Send numbered messages of all sizes to one destination, from so many sessions, for ever."""
    dice = random.Random(int(seed))

    async def send(session: headgate.Session) -> None:
        sender = None
        while sender is None:
            with contextlib.suppress(headgate.CoordinatorUnavailable):  # a master may be away
                sender = await session.producer(destination, window=300)
        for number in range(1 << 30):
            body, headers = str(number).rjust(dice.randrange(1, 150)), {"from": session.id}
            # Where the machine is busy, some calls are given up before they are answered.
            with contextlib.suppress(headgate.CreditTimeout, headgate.CoordinatorUnavailable):
                await sender.send(body, headers=headers, timeout=dice.choice((0.1, 1, 30)))
            await asyncio.sleep(dice.random() / 50)

    sessions = [client.session(f"worker-{number}", ttl=float(ttl)) for number in range(int(count))]
    _say("ready", *(session.id for session in sessions))
    await asyncio.gather(*map(send, sessions))


async def by_value(client: headgate.Client, destination: str, ttl: str, name: str) -> None:
    """Send messages of a few values, numbered for each, from one session, for ever."""
    session = client.session(name, ttl=float(ttl))
    sender = await session.producer(destination, window=300)
    _say("ready", session.id)
    for number in range(1 << 30):
        for value in range(4):
            # Where the machine is busy, some calls are given up before they are answered.
            with contextlib.suppress(headgate.CreditTimeout, headgate.CoordinatorUnavailable):
                await sender.send(str(number).rjust(40), headers={"from": f"{name}-{value}"}, timeout=30)
        await asyncio.sleep(0.01)


async def admits(client: headgate.Client, destination: str, ttl: str, seed: str) -> None:
    """Take and release permits of all sizes, three at a time, each from a session of its own, for ever."""
    dice = random.Random(int(seed))

    async def admit(session: headgate.Session) -> None:
        gate = None
        while gate is None:
            with contextlib.suppress(headgate.CoordinatorUnavailable):  # a master may be away
                gate = await session.gate(destination, window=300)
        while True:
            with contextlib.suppress(headgate.CreditTimeout, headgate.CoordinatorUnavailable):
                async with gate.admit(dice.randrange(1, 500), timeout=dice.choice((0.1, 1, 30))):
                    await asyncio.sleep(dice.random() / 50)

    sessions = [client.session(f"worker-{number}", ttl=float(ttl)) for number in range(3)]
    _say("ready", *(session.id for session in sessions))
    await asyncio.gather(*map(admit, sessions))


ROLES: dict[str, Callable[..., Awaitable[None]]] = {
    "producer": producer,
    "consumer": consumer,
    "takes": takes,
    "gates": gates,
    "iterates": iterates,
    "iterates_in_threads": iterates_in_threads,
    "wildcard": wildcard,
    "holds": holds,
    "numbered": numbered,
    "spread": spread,
    "sliced": sliced,
    "by_value": by_value,
    "admits": admits,
    "tallies": tallies,
    "delays": delays,
}


async def _main(role: str, url: str, namespace: str, *arguments: str) -> None:
    async with headgate.connect(url, namespace=namespace) as client:
        await ROLES[role](client, *arguments)


if __name__ == "__main__":
    asyncio.run(_main(*sys.argv[1:]))
