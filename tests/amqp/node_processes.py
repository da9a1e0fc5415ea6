"""Nodes as processes of their own: to be frozen, killed, drained and started again at the same address."""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.support.forked import PIPE, Forked
from tests.support.ports import own_port
from tests.support.waiting import wait_for


class NodeProcess:
    """One `headgate node`, without admin HTTP."""

    def __init__(self, redis_url: str, namespace: str, *options: object, name: str = "node") -> None:
        self._command = [
            *("headgate_coordinator", "node", "--json", "--redis", redis_url, "--no-admin"),
            *("--namespace", namespace, "--name", name, *map(str, options)),
        ]
        self._log = tempfile.TemporaryFile("w+")  # noqa: SIM115 -- closed by stop
        self.name = name
        self.port = own_port()
        self.process: Forked
        self.start()

    def start(self) -> None:
        """Start it, at the address where it was before, and return when it listens."""
        environment = os.environ | {"HEADGATE_STORE_ROOTS": f"file://{tempfile.gettempdir()}"}
        self.process = Forked(
            *(*self._command, "--port", str(self.port)), environment=environment, stdout=PIPE, stderr=self._log
        )
        assert self.process.stdout is not None
        if not self.process.stdout.readline():
            self.ended()
            raise AssertionError(self.log)

    @property
    def log(self) -> str:
        """All that it logged."""
        self._log.seek(0)
        text = self._log.read()
        self._log.seek(0, os.SEEK_END)
        return text

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def resident(self) -> int:
        """Bytes of memory that it has."""
        found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{self.process.pid}/status").read_text())
        assert found
        return int(found[1]) * 1024

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def kill9(self) -> None:
        self.process.kill()
        self.ended()

    def ended(self, *, timeout: float = 30) -> int:
        """Wait for its end; returns its exit code."""
        code = self.process.wait(timeout)
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def stop(self) -> None:
        """End it, whatever it does, and look at what it logged."""
        if self.is_alive:
            self.signal(signal.SIGCONT)
            self.signal(signal.SIGINT)
            try:
                self.ended(timeout=15)
            except subprocess.TimeoutExpired:
                self.kill9()
                raise AssertionError(f"{self.name} does not end: {self.log[-3000:]}") from None
        log = self.log
        self._log.close()
        assert "Traceback" not in log, log[-5000:]


@contextmanager
def nodes(redis_url: str, namespace: str, count: int, *options: object) -> Iterator[list[NodeProcess]]:
    """So many nodes of one namespace."""
    with ExitStack() as stack:
        started = []
        for number in range(count):
            node = NodeProcess(redis_url, namespace, *options, name=f"node-{number}")
            stack.callback(node.stop)
            started.append(node)
        wait_for(lambda: all(node.is_alive for node in started))
        yield started
