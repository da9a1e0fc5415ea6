"""Processes that begin at once, forked off one that has imported all of Headgate; Python would take half a second.

For tests in which a process is asked, frozen or killed, and in which it makes no difference how it began.
"""

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from tests.support import template

PIPE = subprocess.PIPE
DOOR = "HEADGATE_TEST_TEMPLATE"
"""Names the door of the template that all processes of a run of tests share: to import takes each two seconds."""
ROOT = Path(__file__).parents[2]


class Forked:
    """`python -m module` in a process of its own; what it has, it has as `subprocess.Popen`.

    By default it reads nothing, writes where we do, and is forked off the template of this run: `door` names another.
    """

    def __init__(
        self,
        module: str,
        *arguments: str,
        environment: Mapping[str, str],
        stdin: int = subprocess.DEVNULL,
        stdout: IO[str] | int = 1,
        stderr: IO[str] | int = 2,
        door: str | None = None,
    ) -> None:
        request = {
            "module": module,
            "arguments": arguments,
            "environment": dict(environment),
            "directory": str(Path.cwd()),
        }
        self.returncode: int | None = None
        self.stdin: IO[str] | None = None
        self.stdout: IO[str] | None = None
        with ExitStack() as theirs:
            self._told, tell = _pipe(theirs, "r")
            if stdin == PIPE:
                self.stdin, stdin = _pipe(theirs, "w")
            else:
                stdin = theirs.enter_context(Path(os.devnull).open()).fileno()
            if stdout == PIPE:
                self.stdout, stdout = _pipe(theirs, "r")
            _ask(door, request, tell, stdin, _number(stdout), _number(stderr))
        self.pid = int(self._told.readline())

    def poll(self) -> int | None:
        """Return how it ended, minus the signal that ended it; None while it runs."""
        if self.returncode is None and select.select([self._told], [], [], 0)[0]:
            with self._told as told:
                self.returncode = int(told.readline())
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: it did not end in so many seconds.
        """
        if self.returncode is None:
            select.select([self._told], [], [], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("headgate", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for stream in (self.stdin, self.stdout):
            if stream:
                stream.close()
        self.wait()


def run(
    module: str, *arguments: str, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run it to its end, and return that with what it printed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = Forked(module, *arguments, environment=environment, stdout=out, stderr=errors)
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
            process.wait(timeout)
        out.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(arguments, code, out.read(), errors.read())


def _pipe(theirs: ExitStack, mode: Literal["r", "w"]) -> tuple[IO[str], int]:
    """Return our end of a pipe, and the number of theirs."""
    ends = os.pipe()
    ours, other = ends if mode == "r" else ends[::-1]
    theirs.callback(os.close, other)
    return os.fdopen(ours, mode), other


def _number(file: IO[str] | int) -> int:
    return file if isinstance(file, int) else file.fileno()


_alone = threading.Lock()


def _ask(door: str | None, request: object, *files: int) -> None:
    with _alone:
        control = _template(door)
    socket.send_fds(control, [json.dumps(request).encode()], list(files))


@functools.cache
def _template(door: str | None) -> socket.socket:
    """Return the way to the one at that door, to the one of this run, or to one of this process, which ends with it."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.connect(door or os.environ.get(DOOR) or begin())
    atexit.register(asking.close)
    return asking


def begin() -> str:
    """Start a template that ends with this process, and return the path of its door."""
    folder = tempfile.TemporaryDirectory(prefix="headgate-template-")
    path = f"{folder.name}/door"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as door:
        door.bind(path)
        door.listen(64)
        process = subprocess.Popen(
            [sys.executable, "-m", template.__name__, str(door.fileno())],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            pass_fds=[door.fileno()],
            stdin=PIPE,
            process_group=0,  # what a terminal sends is for those who asked
        )

    def end() -> None:
        process.communicate()
        folder.cleanup()

    atexit.register(end)
    return path
