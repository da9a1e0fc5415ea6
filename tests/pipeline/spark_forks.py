"""Python for Spark's helpers, forked off a process that has imported what each would import anew, in a second.

Spark starts one for each run of a streaming source, and daemons of their own for those that plan a read or a write;
only the daemon for the workers of tasks can be named. So :func:`python` makes a program that takes Python's place.
"""

import array
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SOURCES, PLANNERS = "pyspark.sql.streaming.python_streaming_source_runner", "pyspark.daemon"
_STAND_IN = """\
#!/bin/sh
exec '{python}' -IS '{folder}/stand_in.py' "$@"
"""
_CODE = """\
import _socket as s, array, json, os, sys
words = sys.argv[1:]
template = s.socket(s.AF_UNIX, s.SOCK_SEQPACKET)
if words[:1] != ["-m"] or words[1] not in {modules!r} or template.connect_ex({door!r}):
    os.execv({python!r}, [{python!r}, *words])
files = array.array("i", [0, 1, 2])
request = json.dumps([words[1:], dict(os.environ)]).encode()
template.sendmsg([request], [(s.SOL_SOCKET, s.SCM_RIGHTS, files)])
sys.exit(int(template.recv(16) or b"1"))
"""


@contextlib.contextmanager
def python(folder: Path) -> Iterator[Path]:
    """Return the program, which lives in a folder."""
    door, program = folder / "door", folder / "python"
    code = _CODE.format(modules=(SOURCES, PLANNERS), python=sys.executable, door=str(door))
    (folder / "stand_in.py").write_text(code)
    program.write_text(_STAND_IN.format(python=sys.executable, folder=folder))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(door))
        listener.listen(64)
        command = [sys.executable, "-m", __name__, str(listener.fileno())]
        template = subprocess.Popen(command, stdin=subprocess.PIPE, pass_fds=[listener.fileno()])
    with template:
        yield program


def serve(listener: socket.socket) -> None:
    """Fork for each that connects, until nobody is at the other end of standard input."""
    while listener.fileno() in select.select([listener.fileno(), 0], [], [])[0]:
        asking, _ = listener.accept()
        with asking:
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _attend(asking)


def _attend(asking: socket.socket) -> None:
    """Run one, tell how it ended, and end it when whoever asked for it is gone."""
    data, ancillary, _, _ = asking.recvmsg(1 << 20, socket.CMSG_SPACE(3 * array.array("i").itemsize))
    files = array.array("i", ancillary[0][2])
    child = os.fork()
    if child == 0:
        asking.close()
        words, environment = json.loads(data)
        _become(words, environment, files)
    for file in files:
        os.close(file)
    over = os.pidfd_open(child)
    if asking.fileno() in select.select([asking.fileno(), over], [], [])[0]:
        os.kill(child, signal.SIGTERM)
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        asking.send(b"%d" % (os.waitstatus_to_exitcode(status) & 255))
    os._exit(0)


def _become(words: list[str], environment: dict[str, str], files: "array.array[int]") -> None:
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = words
    code = 1
    try:
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 -- as Python ends with it
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how those ended that attend
    for module in ("tests.pipeline.spark_daemon", SOURCES, PLANNERS):
        importlib.import_module(module)
    gc.freeze()
    serve(socket.socket(fileno=int(sys.argv[1])))
