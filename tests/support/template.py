"""A process that has imported all of Headgate, and forks off it the processes that `tests.support.forked` asks for.

What is forked runs a module as `python -m` does, with arguments, environment, directory and standard streams of its
own, and ends as Python ends, but for its memory, which it does not take apart. Its parent is one that does nothing but
wait for it and tell how it ended.
"""

import atexit
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
from contextlib import suppress
from typing import Any

import typer.main

from headgate.redis import scripts
from headgate_coordinator.cli import commands

REQUEST = 1 << 20
"""Bytes of a request, at most."""
IMPORTED = (
    "joserfc.jwk",  # which a node imports if it has keys of tokens: an eighth of what it takes to begin
    "joserfc.jws",
    "joserfc.jwt",
    "pydantic.type_adapter",
    "headgate_coordinator.service.run",
    "headgate_coordinator.service.service",
    "tests.sdk.workers",
)

COMMANDS = ("node", "status", "explain")
"""Those that tests start most."""


def serve(door: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request. Returns in each process that was forked, with its request; and at the end of all.

    Those who ask connect to the door; the end of all is that of standard input.
    """
    asking: list[socket.socket] = []
    while True:
        ready, _, _ = select.select([sys.stdin, door, *asking], [], [])
        if sys.stdin in ready:
            return None
        if door in ready:
            asking.append(door.accept()[0])
        for control in [one for one in asking if one in ready]:
            data, files, _, _ = socket.recv_fds(control, REQUEST, 4)
            if not data:
                asking.remove(control)
                control.close()
            elif os.fork() == 0:
                for other in (door, *asking):
                    other.close()
                return _forked(json.loads(data), *files)
            for file in files:
                os.close(file)


def _forked(request: dict[str, Any], tell: int, *streams: int) -> tuple[dict[str, Any], list[int]]:
    """Return in a child, and tell its id and how it ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if child := os.fork():
        for stream in streams:
            os.close(stream)
        with suppress(BrokenPipeError):  # whoever asked is gone
            os.write(tell, b"%d\n" % child)
            _, status = os.waitpid(child, 0)
            os.write(tell, b"%d\n" % os.waitstatus_to_exitcode(status))
        os._exit(0)
    os.close(tell)
    return request, list(streams)


def become(request: dict[str, Any], streams: list[int]) -> None:
    """Run the module as a new interpreter would."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(request["directory"])
    sys.path[0] = request["directory"]
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 -- these stay open
    sys.stdout = open(1, "w", buffering=1, closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False, errors="backslashreplace")  # noqa: SIM115
    sys.argv = [request["module"], *request["arguments"]]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)  # under nohup the template has them ignored
    try:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    else:
        code = 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # what it shares with its parent would be copied, to be freed


def make_commands() -> None:
    """Make the command line once, with the options of some: they take an eighth of what a node takes to begin."""
    commands.command_line = functools.cache(commands.command_line)
    typer.main.get_command = functools.cache(typer.main.get_command)
    commands.command_line()  # imports what each command takes
    for word in COMMANDS:
        group: Any = typer.main.get_command(commands.command_line(word))
        for parameter in (*group.params, *group.commands[word].params):
            parameter.get_runtime_param()


def main() -> None:
    """Import, and serve the socket whose number is the argument until standard input is at its end."""
    for module in IMPORTED:
        importlib.import_module(module)
    make_commands()
    for name in scripts.script_names():
        scripts.script(name)  # put together once, and not in each process
    stand(socket.socket(fileno=int(sys.argv[1])))


def stand(door: socket.socket) -> None:
    """Be what others are forked off, until standard input is at its end."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for those who asked
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those ended that waited
    gc.freeze()  # else the first collection of each process would copy all the memory that it shares with this one
    request = serve(door)
    if request:
        become(*request)


if __name__ == "__main__":
    main()
