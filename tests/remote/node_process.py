"""Nodes in processes of their own, to be killed and frozen."""

import json
import os
import signal
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.demo.command import environment
from tests.support.forked import PIPE, Forked
from tests.support.waiting import is_alive, wait_for


class NodeProcess:
    """`headgate node` before a Redis, without admin HTTP.

    Attributes:
        address: `host:port`.
    """

    def __init__(self, redis_url: str, namespace: str, *, port: int = 0) -> None:
        with Path(os.devnull).open("w") as nowhere:
            self._process = Forked(
                *("headgate_coordinator", "node", "--json", "--no-admin", f"--port={port}"),
                *(f"--redis={redis_url}", f"--namespace={namespace}"),
                environment=environment(),
                stdout=PIPE,
                stderr=nowhere,
            )
        assert self._process.stdout
        self.address = json.loads(self._process.stdout.readline())["amqp"].removeprefix("amqp://")

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill9(self) -> None:
        self._process.kill()
        self._process.wait()

    def sigstop(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def sigcont(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def drain(self) -> None:
        """Tell it to stop, and return when it has."""
        self._process.terminate()
        wait_for(lambda: not is_alive(self.pid), description=f"the end of node {self.pid}")
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill9()
        assert self._process.stdout
        self._process.stdout.close()
