"""The processes that run the tests are forked off one that has imported them all, which takes four seconds.

pytest-xdist has execnet start an interpreter for each. :func:`fork_workers` has it ask for a fork instead.
"""

import gc
import importlib
import os
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import execnet.gateway_base
import execnet.gateway_io
import pytest

from tests.support import forked, template
from tests.support.signals import ignored

PIPE: Final = forked.PIPE
WORKER: Final = "tests.support.workers.beginning"


def fork_workers(config: pytest.Config) -> None:
    """Have the processes of this run forked, with the tests that its arguments name imported."""
    folder = tempfile.TemporaryDirectory(prefix="headgate-workers-")
    door = f"{folder.name}/door"
    arguments = (door, config.rootpath, *config.args)
    process = forked.Forked(__name__, *map(str, arguments), environment=os.environ, stdin=PIPE, stdout=PIPE)
    assert process.stdout
    process.stdout.readline()  # the door is there

    config.add_cleanup(folder.cleanup)
    config.add_cleanup(lambda: process.__exit__(None, None, None))
    execnet.gateway_io.Popen2IOMaster = lambda _, model: _Worker(door, model)  # type: ignore[assignment,misc]


class _Worker(execnet.gateway_io.Popen2IOMaster):
    """A worker, and our end of the pipes to it."""

    def __init__(self, door: str, model: Any) -> None:
        heard = (os.getpgrp(), *ignored())
        self.popen = forked.Forked(WORKER, *map(str, heard), environment=os.environ, stdin=PIPE, stdout=PIPE, door=door)
        execnet.gateway_base.Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, model)


class _Importing:
    """A plugin that imports the tests as pytest does, with assertions that explain themselves, and collects none."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> bool:
        for path in _files(session.config):
            with suppress(
                Exception, pytest.skip.Exception, pytest.fail.Exception
            ):  # which the workers will meet again, and say
                importlib.import_module(".".join(path.relative_to(session.config.rootpath).with_suffix("").parts))
        return True


def _files(config: pytest.Config) -> Iterator[Path]:
    for argument in config.args:
        path = Path(config.rootpath, argument.partition("::")[0])
        yield from [path] if path.is_file() else sorted([*path.rglob("conftest.py"), *path.rglob("test_*.py")])


def main(door: str, root: str, *arguments: str) -> None:
    """Import the tests that the arguments name, and be forked off until standard input is at its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(door)
        listener.listen(64)
        print("ready")
        sys.path[0] = root
        gc.disable()  # what is imported stays
        quiet = ("-p", "no:terminal", "-p", "no:cacheprovider", "-n", "0")
        pytest.main([*quiet, *arguments], plugins=[_Importing()])
        importlib.import_module("hypothesis.strategies").characters(codec="utf-8").validate()  # half a second, kept
        providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
        getattr(providers, "_get_local_constants", bool)()  # of our modules, which each process would parse: 0.2 s
        gc.enable()
        template.stand(listener)


if __name__ == "__main__":
    main(*sys.argv[1:])
