"""The command `headgate` as its users run it: a process of its own."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
import uuid
from pathlib import Path

import headgate
import headgate_coordinator
from tests.support import forked
from tests.support.waiting import is_alive

HEADGATE = [sys.executable, "-m", "headgate_coordinator"]
WITHIN = 850
"""Seconds; beside much else Spark takes minutes."""


def environment(**more: str) -> dict[str, str]:
    """Ours without what would change what is tested, and with the paths of this checkout."""
    roots = [str(Path(module.__file__ or "").parents[1]) for module in (headgate, headgate_coordinator)]
    ours = {name: value for name, value in os.environ.items() if not name.startswith("HEADGATE_")}
    return ours | {"PYTHONPATH": os.pathsep.join(roots), "NO_COLOR": "1"} | more


def run(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run it to its end: at once, or from the beginning where it is to find other modules."""
    if "PYTHONPATH" not in env:
        return forked.run("headgate_coordinator", *arguments, environment=environment(**env), timeout=WITHIN)
    return subprocess.run(
        [*HEADGATE, *arguments], env=environment(**env), capture_output=True, text=True, timeout=WITHIN, check=False
    )


def in_a_terminal(arguments: list[str], keys: bytes) -> tuple[int, str, str]:
    """Run it in a terminal of 24 lines and 80 columns; type ``keys`` once it has drawn its last line.

    Returns its exit code, what was seen before the keys, and what came after.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    process = subprocess.Popen(
        ["/bin/sh", "-c", 'exec "$@" <"$0" >"$0" 2>&1', os.ttyname(theirs), *HEADGATE, *arguments],
        env=environment(TERM="xterm", COLUMNS="80", LINES="24"),
        start_new_session=True,  # and so what it opens first is its terminal, whose Ctrl-C reaches it
    )
    seen = [b"", b""]
    with process:
        try:
            deadline = time.monotonic() + 120
            while process.poll() is None or select.select([ours], [], [], 0)[0]:
                assert time.monotonic() < deadline, f"it does not end: {seen}"
                if not select.select([ours], [], [], 0.05)[0]:
                    continue
                seen[1 if b"q quit" in seen[0] else 0] += os.read(ours, 65536)
                if keys and b"q quit" in seen[0]:
                    os.write(ours, keys[:1])
                    keys = keys[1:]
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)
    return process.returncode, seen[0].decode(), seen[1].decode()


def assert_one_line(stderr: str, *words: str) -> None:
    assert stderr.startswith("headgate: ")
    assert len(stderr.splitlines()) == 1
    for word in words:
        assert word in stderr


class Running:
    """A `headgate` that runs on, and every process that it started: they inherit a mark in their environment."""

    def __init__(self, *arguments: str, **env: str) -> None:
        self.mark = uuid.uuid4().hex
        self.process = subprocess.Popen(
            [*HEADGATE, *arguments],
            env=environment(TEST_MARK=self.mark, **env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,
        )

    def next_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def read_until(self, words: str) -> str:
        seen = ""
        while words not in seen:
            text = self.next_line()
            assert text, f"{words!r} was not printed, but {seen!r}"
            seen += text
        return seen

    def left(self) -> list[int]:
        """Return all its processes that are alive."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and f"TEST_MARK={self.mark}".encode() in (entry / "environ").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
        return [pid for pid in found if is_alive(pid)]

    def command_lines(self) -> str:
        return "\n".join(Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ") for pid in self.left())
