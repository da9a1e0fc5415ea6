"""Brokers that the kit starts by itself: fetched where need be, configured by files beside, stopped after."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.kit.endpoint import Unusable

BROKERS: Final = Path(__file__).parent / "brokers"
CACHE: Final = Path(sys.prefix) / "kit"
"""Where distributions are unpacked: the environment's, which goes with it."""
FETCH: Final = 900.0
"""Seconds that a distribution may take to come."""
UP: Final = 180.0
"""Seconds that a broker may take until it listens."""
DOWN: Final = 30.0
"""Seconds that it may take to end; then it is killed."""
EPMD: Final = "ERL_EPMD_PORT"
"""Where Erlang's directory of names listens: a process of its own, which outlives whoever starts it."""
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"


@dataclass(frozen=True, slots=True)
class Broker:
    """A product that can be started.

    Attributes:
        artifact: of its distribution in Maven Central; empty where there is none.
        command: returns what to run, and its environment: of the distribution, a folder for data, and a port.
        options: of the kit, for this product: the user, and templates of addresses.
    """

    artifact: str
    command: Callable[[Path, Path, int], tuple[list[str], dict[str, str]]]
    user: str = ""
    queue: str = "{}"
    topic: str = "{}"


def _artemis(home: Path, data: Path, port: int) -> tuple[list[str], dict[str, str]]:
    instance = data / "instance"
    made = [
        f"{home}/bin/artemis", "create", str(instance), "--user", "kit", "--password", "kit", "--allow-anonymous",
        "--silent", "--no-autotune", "--no-web",
    ]  # fmt: skip
    subprocess.run(made, check=True, capture_output=True, timeout=UP)
    text = (BROKERS / "artemis.xml").read_text().replace("PORT", str(port))
    (instance / "etc" / "broker.xml").write_text(text)
    for name, line in (("users", "kit-two = kit-two"), ("roles", "amq = kit,kit-two")):
        with (instance / "etc" / f"artemis-{name}.properties").open("a") as file:
            file.write(f"\n{line}\n")
    return [f"{instance}/bin/artemis", "run"], {}


def _activemq(home: Path, data: Path, port: int) -> tuple[list[str], dict[str, str]]:
    text = (BROKERS / "activemq.xml").read_text().replace("PORT", str(port)).replace("DATA", str(data))
    (data / "activemq.xml").write_text(text)
    named = {"ACTIVEMQ_HOME": str(home), "ACTIVEMQ_BASE": str(home), "ACTIVEMQ_DATA": str(data)}
    return [f"{home}/bin/activemq", "console", f"xbean:file:{data}/activemq.xml"], named


def _rabbitmq(home: Path, data: Path, port: int) -> tuple[list[str], dict[str, str]]:
    shutil.copy(BROKERS / "rabbitmq.json", data)
    text = (BROKERS / "rabbitmq.conf").read_text().replace("PORT", str(port)).replace("FOLDER", str(data))
    (data / "rabbitmq.conf").write_text(text)
    return [str(home / "sbin" / "rabbitmq-server")], {
        "RABBITMQ_NODENAME": f"kit{port}@localhost",
        "RABBITMQ_CONFIG_FILE": str(data / "rabbitmq.conf"),
        "RABBITMQ_MNESIA_BASE": str(data / "mnesia"),
        "RABBITMQ_LOG_BASE": str(data / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(data / "plugins"),
        "RABBITMQ_DIST_PORT": str(_free_port()),
        EPMD: str(_free_port()),
    }


STARTED: Final = {
    "artemis": Broker("org.apache.activemq:apache-artemis:2.38.0:tar.gz:bin", _artemis),
    "activemq": Broker("org.apache.activemq:apache-activemq:5.18.3:tar.gz:bin", _activemq),
    "rabbitmq": Broker("", _rabbitmq, "guest:guest@", "/queues/{}", ""),
}


def home_of(name: str, given: Path | None) -> Path:
    """Return the folder of a product's distribution, fetched from Maven Central where it is in none yet.

    Raises:
        Unusable: it is not there, and cannot be had from here.
    """
    if given is not None:
        program = given / ("sbin/rabbitmq-server" if name == "rabbitmq" else f"bin/{name}")
        if not program.exists():
            raise Unusable(f"there is no {program}; --home is the folder of a distribution of {name}")
        return given
    artifact = STARTED[name].artifact
    if not artifact:
        raise Unusable(f"no distribution of {name} can be fetched; unpack its generic one, and name it with --home")
    _, module, version, *_ = artifact.split(":")
    home = CACHE / f"{module}-{version}"
    if not home.exists():
        _fetch(artifact, home)
    return home


def _fetch(artifact: str, home: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise Unusable(f"{home.name} is fetched with mvn, which is not installed; unpack it, and name it with --home")
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        fetch = [maven, "--quiet", "--batch-mode", _COPY, f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"]
        try:
            subprocess.run(fetch, check=True, capture_output=True, timeout=FETCH)
            (archive,) = Path(folder).glob("*.tar.gz")
        except (OSError, ValueError, subprocess.SubprocessError):
            raise Unusable(
                f"{home.name} does not come from Maven Central; unpack it, and name it with --home"
            ) from None
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        (unpacked,) = (each for each in Path(folder).iterdir() if each.is_dir())
        unpacked.rename(home)


@contextlib.contextmanager
def running(name: str, home: Path | None) -> Iterator[str]:
    """Run a broker on a free port, with data that goes with it; yields the URL of its endpoint.

    Raises:
        Unusable: it is not there, or does not come up; the text says what it printed last.
    """
    broker, home = STARTED[name], home_of(name, home)
    with tempfile.TemporaryDirectory(prefix=f"kit-{name}-") as folder, tempfile.TemporaryFile() as printed:
        port = _free_port()
        try:
            command, named = broker.command(home, Path(folder), port)
            process = subprocess.Popen(
                command, env=os.environ | named, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, cwd=folder,
                start_new_session=True,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise Unusable(f"{name} cannot be started: {error}") from None
        try:
            if not _listens(process, port):
                printed.seek(0)
                last = printed.read().decode(errors="replace").strip().splitlines()[-1:]
                raise Unusable(f"{name} does not listen: {''.join(last) or 'it prints nothing'}")
            yield f"amqp://{broker.user}127.0.0.1:{port}"
        finally:
            _stop(process)
            if EPMD in named:
                _end_names(int(named[EPMD]))


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    until = time.monotonic() + UP
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        time.sleep(0.2)
    return False


def _stop(process: "subprocess.Popen[bytes]") -> None:
    """End a broker and all that it started."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, sign)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(DOWN)
            return


def _end_names(port: int) -> None:
    """End the directory of names that a broker in Erlang left behind; it does so where no broker is in it."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1) as names:
        names.sendall(b"\0\1k")  # KILL_REQ of its protocol
        names.settimeout(DOWN)
        names.recv(2)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
