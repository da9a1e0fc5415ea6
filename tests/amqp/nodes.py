"""Nodes in processes of their own, as an operator starts them."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.forked import PIPE, Forked
from tests.support.waiting import is_alive, wait_for


class NodeProcess:
    """One `headgate node`, without admin HTTP unless `--admin` is given; `port` is where it listens."""

    def __init__(self, redis_url: str, namespace: str, log: Path, *options: str, within: Sequence[str] = ()) -> None:
        self._log = log
        chosen = () if "--port" in options else ("--port", "0")
        command = ("headgate_coordinator", "node", "--json", "--admin-port", "0", "--no-admin", *chosen, *options)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
            "HEADGATE_URL": redis_url,
            "HEADGATE_NAMESPACE": namespace,
            "HEADGATE_STORE_ROOTS": f"file://{tempfile.gettempdir()}",
        }
        self._process: subprocess.Popen[str] | Forked
        with log.open("a") as errors:
            if within:  # another program begins it
                python = [*within, sys.executable, "-m"]
                self._process = subprocess.Popen(
                    [*python, *command], stdout=PIPE, stderr=errors, text=True, env=environment
                )
            else:
                self._process = Forked(*command, environment=environment, stdout=PIPE, stderr=errors)
        self.name = self.url = self.admin = ""
        self.port = 0

    def ready(self) -> "NodeProcess":
        """Wait until it listens."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the node ended before it listened:\n{self.errors}"
        told = json.loads(line)
        self.name, self.url, self.admin = told["name"], told["amqp"], told["admin"]
        self.port = int(self.url.rpartition(":")[2])
        return self

    @property
    def errors(self) -> str:
        return self._log.read_text()

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill9(self) -> None:
        self._process.kill()
        wait_for(lambda: not is_alive(self.pid), description=f"the end of node {self.name}")

    def terminate(self) -> None:
        """Tell it to stop as an orchestrator does; it finishes what is under way."""
        self._process.send_signal(signal.SIGTERM)

    def wait(self) -> int:
        """Return how it ended."""
        return self._process.wait(timeout=60)

    def stop(self) -> None:
        """End it, and fail if it logged a traceback."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
        try:
            self.wait()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            pytest.fail(f"node {self.name} did not end when told to:\n{self.errors}")
        finally:
            assert self._process.stdout is not None
            self._process.stdout.close()
        if "Traceback" in self.errors or " ERROR " in self.errors:
            pytest.fail(f"node {self.name} logged:\n{self.errors}")
