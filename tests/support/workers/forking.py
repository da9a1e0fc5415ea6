"""The processes that run the tests are forked off one that has collected them all, which takes six seconds.

pytest-xdist has execnet start an interpreter for each. :func:`fork_workers` has it ask for a fork instead.
"""

import gc
import importlib
import os
import socket
import sys
import tempfile
from typing import Any, Final

import execnet.gateway_base
import execnet.gateway_io
import pytest

from headgate.redis import scripts
from tests.support import forked, template
from tests.support.signals import ignored
from tests.support.workers.collected import COLLECTED

PIPE: Final = forked.PIPE
WORKER: Final = "tests.support.workers.beginning"


def fork_workers(config: pytest.Config) -> None:
    """Have the processes of this run forked, with the tests that its arguments name collected."""
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


def main(door: str, root: str, *arguments: str) -> None:
    """Collect the tests that the arguments name, and be forked off until standard input is at its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(door)
        listener.listen(64)
        print("ready")
        sys.path[0] = root
        gc.disable()  # what is imported stays
        quiet = ("-p", "no:terminal", "-p", "no:cacheprovider", "-n", "0")
        pytest.main([*quiet, *arguments], plugins=[COLLECTED])
        for name in scripts.script_names():
            scripts.script(name)  # put together once, as the template of other processes does
        importlib.import_module("hypothesis.strategies").characters(codec="utf-8").validate()  # half a second, kept
        providers: Any = importlib.import_module("hypothesis.internal.conjecture.providers")
        getattr(providers, "_get_local_constants", bool)()  # of our modules, which each process would parse: 0.2 s
        gc.enable()
        template.stand(listener)


if __name__ == "__main__":
    main(*sys.argv[1:])
