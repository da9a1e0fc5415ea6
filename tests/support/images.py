"""Images of servers, one of which may take the place of the servers of this machine: `HEADGATE_TEST_IMAGE=redis:8`.

`make test-docker` does so with each of :data:`IMAGES` that is here. Another variable names an image that is not under
its public name: `HEADGATE_IMAGE_REDIS_8=my-redis`, or `HEADGATE_IMAGE_VALKEY_9`. Nothing is pulled.

A server in a container has the files, the ports and the process ids of this machine, so tests kill, freeze and
restart it as they do any other. That takes a daemon on this machine, which Docker Desktop's is not.
"""

import functools
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from headgate.redis import embedded
from headgate.redis.embedded import EmbeddedRedis
from tests.support.servers import ServerBinary, identified
from tests.support.waiting import is_alive

NAMED: Final = "HEADGATE_TEST_IMAGE"
IMAGES: Final = {
    "redis:6.2": "redis:6.2",
    "redis:7": "redis:7",
    "redis:8": "redis:8",
    "valkey:8": "valkey/valkey:8",
    "valkey:9": "valkey/valkey:9",
}
"""What tests run on, and its public name."""
_LOGGED: Final = 'exec "$@" >>redis.log 2>&1'


@dataclass(frozen=True)
class ServerImage(ServerBinary):
    """A server that runs in a container; its `path` is the program's name there."""

    image: str

    @classmethod
    def of(cls, name: str) -> "ServerImage":
        """Return one of :data:`IMAGES`, with the version that it says it has."""
        program, image = Path(f"{name.partition(':')[0]}-server"), place(name)
        asked = ["docker", "run", "--rm", "--network", "none", "--entrypoint", str(program), image, "--version"]
        told = subprocess.run(asked, check=True, capture_output=True, text=True, timeout=120).stdout
        return cls(*identified(program, told), image)

    def start(self, *, port: int | None = None, config: Mapping[str, str] | None = None) -> EmbeddedRedis:
        return ContainedRedis.of(self, port, config or {})

    def watch(self, directory: Path) -> "Container":
        return Container(self, directory, "sentinel.conf", "--sentinel")


class ContainedRedis(EmbeddedRedis):
    """An embedded Redis whose server is in a container."""

    image: ServerImage

    @classmethod
    def of(cls, server: ServerImage, port: int | None, config: Mapping[str, str]) -> "ContainedRedis":
        """Start it, on a free port where `port` is 0, and return when it answers."""
        redis = cls(server.path, embedded._free_port() if port == 0 else port, config)
        redis.image = server
        try:
            redis.launch(timeout=60)
        except BaseException:
            redis.stop()
            raise
        return redis

    def _spawn(self) -> Any:
        return Container(self.image, self.directory, "redis.conf")


class Container:
    """A server's process in a container, as `subprocess.Popen` is one that is in none."""

    def __init__(self, server: ServerImage, directory: Path, *arguments: str) -> None:
        """Start it in a folder of this machine, to which it also writes its log."""
        from testcontainers.core.config import testcontainers_config
        from testcontainers.core.container import DockerContainer

        testcontainers_config.ryuk_disabled = not is_here(testcontainers_config.ryuk_image)
        self._container = (
            DockerContainer(server.image)
            .with_command(["-c", _LOGGED, "sh", str(server.path), *arguments])
            .with_volume_mapping(str(directory), str(directory), "rw")
            .with_kwargs(
                entrypoint="/bin/sh",
                network_mode="host",
                pid_mode="host",
                user=f"{os.getuid()}:{os.getgid()}",
                working_dir=str(directory),
            )
            .start()
        )
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        self.pid: int = wrapped.attrs["State"]["Pid"]
        self._status: int | None = None

    def poll(self) -> int | None:
        """Return the status with which it ended, None while it runs."""
        return None if self._status is None and is_alive(self.pid) else self.wait()

    def kill(self) -> None:
        if self._status is None and is_alive(self.pid):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Wait for its end, remove the container, and return the status."""
        if self._status is None:
            self._status = int(self._container.get_wrapped_container().wait()["StatusCode"])
            self._container.stop()
        return self._status


def place(name: str) -> str:
    """Return where the image of that name is: as its variable says, else its public name."""
    return os.environ.get("HEADGATE_IMAGE_" + re.sub(r"\W", "_", name).upper()) or IMAGES[name]


@functools.cache
def is_here(image: str) -> bool:
    asked = ["docker", "image", "inspect", "--format", "{{.Id}}", image]
    return subprocess.run(asked, check=False, capture_output=True, timeout=60).returncode == 0


def docker_is_missing() -> str | None:
    """Return why there is no Docker that tests could use; None where there is."""
    if sys.platform != "linux":
        return "containers have this machine's files and processes on Linux only"
    if shutil.which("docker") is None:
        return "there is no docker on PATH"
    if subprocess.run(["docker", "version"], check=False, capture_output=True, timeout=60).returncode:
        return "no Docker daemon answers"
    return None


def main() -> None:
    """Print the names of the images that are here, and say of the others why they are not."""
    if why := docker_is_missing():
        print(f"skipped: {why}", file=sys.stderr)
        return
    for name in IMAGES:
        if is_here(place(name)):
            print(name)
        else:
            print(f"{name} is skipped: docker has no image {place(name)}", file=sys.stderr)


if __name__ == "__main__":
    main()
