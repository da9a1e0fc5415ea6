"""Nodes with workers, on a Redis of the tests."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.amqp.nodes import NodeProcess
from tests.sdk.conftest import client
from tests.support.forked import run
from tests.support.waiting import is_alive, wait_for

__all__ = ["client"]


def children(pid: int) -> list[int]:
    """Return the processes that a process began and that are there, the oldest first."""
    try:
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [child for child in map(int, found) if is_alive(child)]


class Crew(NodeProcess):
    """One `headgate node --workers`, with admin HTTP."""

    def __init__(self, redis_url: str, namespace: str, log: Path, *options: str) -> None:
        super().__init__(redis_url, namespace, log, "--admin", "--name", "crew", "--drain", "5", *options)

    @property
    def workers(self) -> list[int]:
        """Process ids."""
        return children(self.pid)

    def get(self, path: str) -> httpx.Response:
        """Ask admin HTTP over a connection of its own, which any of the workers may get."""
        return httpx.get(f"{self.admin}{path}", timeout=10, verify=False)  # to read certificates takes 30 ms

    def figures(self) -> dict[str, float]:
        """The figures of the node itself, by name and labels."""
        return {
            sample.name + "".join(f" {value}" for name, value in sorted(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(self.get("/metrics").text)
            for sample in family.samples
            if sample.name.startswith("headgate_node_")
        }

    def is_ready(self) -> bool:
        try:
            return self.get("/ready").status_code == 200
        except httpx.HTTPError:
            return False

    def end(self) -> None:
        """End it, whatever it logged."""
        assert self._process.stdout is not None
        if self._process.poll() is None:
            workers = self.workers
            self._process.kill()
            self._process.wait(30)
            wait_for(lambda: not any(map(is_alive, workers)), description="the end of its workers")
        self._process.stdout.close()


StartCrew = Callable[..., Crew]


@pytest.fixture
def start_crew(redis_url: str, cleanup_namespace: str, tmp_path: Path) -> Iterator[StartCrew]:
    """Starts nodes with two workers, or as many as the options say; they are killed after the test."""
    crews: list[Crew] = []

    def start(*options: str) -> Crew:
        chosen = options if "--workers" in options else ("--workers", "2", *options)
        crews.append(Crew(redis_url, cleanup_namespace, tmp_path / f"crew{len(crews)}.log", *chosen))
        crews[-1].ready()
        return crews[-1]

    yield start
    for crew in crews:
        crew.end()


@pytest.fixture
def crew(start_crew: StartCrew) -> Crew:
    return start_crew()


def run_node(*options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a node that is to end by itself."""
    return run("headgate_coordinator", "node", *options, environment=os.environ | environment, timeout=120)
