"""Nothing of a private Redis outlives its owner, and nothing but its owner ends it."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import headgate
from headgate.redis.embedded import EmbeddedRedis
from tests.support.waiting import is_alive, wait_for

# An owner in a process of its own: it starts a server, does `act`, and tells what it started.

OWNER = """
import os, signal, subprocess, sys
from headgate.redis.embedded import EmbeddedRedis
import redis
server = EmbeddedRedis.start()
def tell(*words): print(*words, flush=True)
def ping():
    with redis.Redis.from_url(server.url) as client:
        return client.ping()
tell(server.pid, os.getpgid(server.pid), server.directory)
sys.stdin.readline()  # until it was seen alive
"""


@dataclass
class Owner:
    process: subprocess.Popen[str]
    server: int
    reaper: int
    directory: Path

    def next_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def assert_nothing_remains(self) -> None:
        def remains() -> dict[str, bool]:
            found = {
                "server": is_alive(self.server),
                "reaper": is_alive(self.reaper),
                "directory": self.directory.exists(),
            }
            return {name: there for name, there in found.items() if there}

        wait_for(lambda: not remains(), description="the end of server, reaper and directory")


Start = Callable[[str], Owner]


@pytest.fixture
def start_owner() -> Iterator[Start]:
    owners: list[Owner] = []

    def start(act: str) -> Owner:
        process = subprocess.Popen(
            [sys.executable, "-c", OWNER + act],
            env=os.environ | {"PYTHONPATH": str(Path(headgate.__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        server, reaper, directory = process.stdout.readline().split()
        owner = Owner(process, int(server), int(reaper), Path(directory))
        owners.append(owner)
        assert is_alive(owner.server)
        assert is_alive(owner.reaper)
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
        return owner

    yield start
    for owner in owners:
        with owner.process:
            owner.process.kill()
        for pid in (owner.server, owner.reaper):
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(owner.directory, ignore_errors=True)


WAIT = "\nsys.stdin.read()"


@pytest.mark.parametrize(
    "how",
    [
        signal.SIGKILL,
        *(pytest.param(how, marks=pytest.mark.whole) for how in (signal.SIGTERM, signal.SIGHUP)),
    ],
    ids=lambda how: how.name,
)
def test_nothing_outlives_a_killed_owner(start_owner: Start, how: signal.Signals) -> None:
    owner = start_owner(WAIT)
    owner.process.send_signal(how)
    owner.process.wait()
    owner.assert_nothing_remains()


@pytest.mark.whole
def test_a_frozen_server_does_not_outlive_its_owner_either(start_owner: Start) -> None:
    owner = start_owner(WAIT)
    os.kill(owner.server, signal.SIGSTOP)
    owner.process.kill()
    owner.process.wait()
    owner.assert_nothing_remains()


def test_an_owner_that_returns_without_stopping_leaves_nothing(start_owner: Start) -> None:
    owner = start_owner("")
    assert owner.process.wait() == 0
    # Not a wait: at exit the owner itself has seen to it.
    assert not is_alive(owner.server)
    assert not is_alive(owner.reaper)
    assert not owner.directory.exists()


@pytest.mark.parametrize(
    "act",
    [
        "child = subprocess.Popen(['sleep', '600'], close_fds=False, stdout=subprocess.DEVNULL).pid",
        "child = os.fork()\nif not child:\n    os.close(1)\n    signal.pause()",
    ],
    ids=["exec", "fork"],
)
def test_a_child_of_the_owner_keeps_nothing_alive(start_owner: Start, act: str) -> None:
    owner = start_owner(act + "\ntell(child)" + WAIT)
    child = int(owner.next_line())
    try:
        owner.process.kill()
        owner.process.wait()
        owner.assert_nothing_remains()
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.whole
def test_the_end_of_a_forked_child_leaves_the_server_to_its_owner(start_owner: Start) -> None:
    owner = start_owner(
        "child = os.fork()\n"
        "if not child:\n    server.stop(); sys.exit(0 if ping() else 1)\n"
        "tell(os.waitpid(child, 0)[1], ping())" + WAIT
    )
    assert owner.next_line() == "0 True"


def test_ctrl_c_reaches_the_owner_and_not_the_server(start_owner: Start) -> None:
    owner = start_owner(
        "try:\n    tell('ready'); sys.stdin.read()\n"
        "except KeyboardInterrupt:\n    tell('interrupted, server answers:', ping())"
    )
    assert owner.next_line() == "ready"
    os.killpg(owner.process.pid, signal.SIGINT)  # what a terminal does
    assert owner.next_line() == "interrupted, server answers: True"
    owner.process.wait()
    owner.assert_nothing_remains()


def test_the_loss_of_the_reaper_does_not_keep_the_owner_from_stopping() -> None:
    server = EmbeddedRedis.start()
    os.kill(os.getpgid(server.pid), signal.SIGKILL)
    server.stop()
    assert not is_alive(server.pid)
    assert not server.directory.exists()
