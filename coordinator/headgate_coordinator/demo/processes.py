"""The demo's processes as its parent sees them."""

import asyncio
import contextlib
import os
import signal
import sys
from pathlib import Path
from typing import Final

import headgate
import headgate_coordinator
from headgate_coordinator.demo.journal import Record

_END_WITHIN: Final = 15.0
"""Seconds that a process has to end when ordered to."""


class Actor:
    """An actor is one producer, consumer or node, in an operating system process of its own.

    Attributes:
        name: for people, e.g. ``producer fast``; ``role`` and ``speed`` are its two words.
        amqp: whether it is a client of a node.
        record: what it wrote down, as far as it was read.
    """

    def __init__(self, role: str, speed: str, directory: Path, *, amqp: bool = False) -> None:
        self.role = role
        self.amqp = amqp
        self.speed = speed
        self.name = f"{role} {speed}"
        self.record = Record(directory / f"{role}-{speed}.journal")
        self._log = directory / f"{role}-{speed}.log"
        self._process: asyncio.subprocess.Process | None = None
        self._asked_to_end = False

    async def start(self, arguments: list[str], environment: dict[str, str]) -> None:
        """Start it, outside our process group: a terminal's Ctrl-C reaches us alone, and we end it in order."""
        with self._log.open("wb") as log:
            # -P: the current directory is the user's, and may hold a file with the name of a module.
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "headgate_coordinator.demo.actors", self.role, self.speed,
                "--journal", str(self.record.path), *arguments,
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log,
                env=os.environ | environment | {"PYTHONPATH": _python_path()}, process_group=0,
            )  # fmt: skip

    @property
    def pid(self) -> int | None:
        """Its process id, once it was started."""
        return self._process.pid if self._process else None

    @property
    def exit_code(self) -> int | None:
        """How it ended, minus the signal that ended it; None while it runs."""
        return self._process.returncode if self._process else None

    @property
    def broken(self) -> bool:
        """Whether it ended although nobody wanted that."""
        return self.exit_code is not None and not self._asked_to_end

    @property
    def error(self) -> str:
        """Its last words: in its journal, or at the end of its output."""
        if self.record.error or not self.exit_code or self.exit_code < 0:
            return self.record.error
        with contextlib.suppress(OSError):
            return next(iter(self._log.read_text(errors="replace").strip().splitlines()[-1:]), "")
        return ""

    def send(self, number: signal.Signals) -> None:
        """Send it a signal, if it is still there."""
        if self._process and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def kill(self) -> None:
        """Send it SIGKILL and return when it is dead."""
        self._asked_to_end = True
        self.send(signal.SIGKILL)
        if self._process:
            await self._process.wait()

    def tell_to_hurry(self) -> None:
        """Write to its standard input: a consumer no longer takes its time."""
        if self._process and self._process.stdin:
            self._process.stdin.write(b"!")

    def tell_to_stop(self) -> None:
        """Close its standard input: it finishes what it has begun and ends."""
        if self._process and self._process.stdin and not self._asked_to_end:
            self._asked_to_end = True
            self._process.stdin.close()

    async def ended(self) -> int | None:
        """Wait for its end and return its exit code; None if it took too long, and then it is killed."""
        if self._process is None:
            return None
        try:
            return await asyncio.wait_for(self._process.wait(), _END_WITHIN)
        except TimeoutError:
            await self.kill()
            return None


def _python_path() -> str:
    """Return where the processes find the same Headgate as we have found."""
    roots = [str(Path(module.__file__ or "").resolve().parents[1]) for module in (headgate, headgate_coordinator)]
    rest = [str(Path(entry).resolve()) for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return os.pathsep.join(dict.fromkeys([*roots, *rest]))
