"""redis.conf starts every Redis of this machine, and what it says is in force."""

import asyncio
import re
import shlex
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

import headgate
from tests.deploy.files import DEPLOY, REPOSITORY, document, read
from tests.support.servers import ServerBinary, newest_server, oldest_and_newest
from tests.support.waiting import wait_for

CONF = DEPLOY / "redis.conf"
UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}
USERS = "user default off ~* &* +@all\nuser shop on >secret ~* &* +@all\n"
every_server = pytest.mark.parametrize("server", oldest_and_newest(), ids=lambda server: server.name)


def directives() -> list[tuple[str, list[str], str]]:
    """Return (name, values, comment above) of each; neighbours share a comment."""
    found, comment = [], ""
    for line in read("redis.conf").splitlines():
        if line.startswith("#"):
            comment += line.removeprefix("#")
        elif line:
            name, *values = shlex.split(line)
            found.append((name, values, comment))
        else:
            comment = ""
    return found


@contextmanager
def running(server: ServerBinary, folder: Path, *more: str) -> Iterator[redis.Redis]:
    """Start a Redis with the file as it is; only where it listens and keeps its data is the test's."""
    socket = folder / "redis.sock"
    log = folder / "redis.log"
    places = ["--port", "0", "--unixsocket", str(socket), "--dir", str(folder), "--logfile", str(log)]
    process = subprocess.Popen([server.path, CONF, *places, *more], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    client = redis.Redis(unix_socket_path=str(socket), decode_responses=True)

    def answers() -> bool:
        assert process.poll() is None, (process.stdout.read() if process.stdout else b"", log)
        try:
            return bool(client.ping())
        except redis.AuthenticationError:
            return True
        except redis.ConnectionError:
            return False

    try:
        wait_for(answers, description="a Redis with deploy/redis.conf")
        yield client
    finally:
        client.close()
        process.terminate()
        process.communicate(timeout=120)


def same(said: list[str], is_: str) -> bool:
    def number(text: str) -> str:
        match = re.fullmatch(r"(\d+)(kb|mb|gb)", text)
        return str(int(match[1]) * UNITS[match[2]]) if match else text

    return " ".join(map(number, said)) == is_


@every_server
def test_each_setting_is_in_force(server: ServerBinary, tmp_path: Path) -> None:
    with running(server, tmp_path) as client:
        found: dict[str, str] = {}
        for name, values, _ in directives():
            configured: Any = client.config_get(name)
            assert name in configured, f"{server.name} does not know {name}"
            if name == "client-output-buffer-limit":  # one line a class of clients here, one for all there
                (kind, *numbers) = values
                parts = configured[name].replace("slave", "replica").split()
                at = parts.index(kind)
                assert same(numbers, " ".join(parts[at + 1 : at + 4])), (name, kind)
            elif not same(values, configured[name]):
                found[name] = configured[name]
        assert found == {}


def test_each_setting_is_explained_and_there_once() -> None:
    told = [(name, values[0] if name == "client-output-buffer-limit" else "") for name, values, _ in directives()]
    assert len(set(told)) == len(told)
    for name, _, comment in directives():
        assert len(comment.split()) >= 5, f"{name} is not explained"


def test_it_says_what_operations_recommends() -> None:
    page = (REPOSITORY / "docs/operations.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^## Redis settings\n\n(.*?)\n\n", page, re.MULTILINE | re.DOTALL)
    said = {name: " ".join(values) for name, values, _ in directives()}
    for names, value in re.findall(r"^\| (`.*?`) \| (.*?) \|", table, re.MULTILINE):
        for name in re.findall(r"`([\w-]+)`", names):
            if name.startswith("min-replicas"):  # without replicas it would refuse all writes
                assert re.search(rf"^# {name} \d$", read("redis.conf"), re.MULTILINE)
            else:
                assert name in said
                exact = re.match(r"`(\w+)`", value)
                assert not exact or said[name] == exact[1]


def test_what_is_left_to_the_site_can_be_said(tmp_path: Path) -> None:
    """As compose.yaml does it: all addresses, and users from a file, of whom the default one is off."""
    (tmp_path / "users.acl").write_text(USERS)
    told = document("compose.yaml")["services"]["redis"]["command"]
    more = [word.replace("/acl/", f"{tmp_path}/") for word in told[2:]]
    with running(newest_server(), tmp_path, *more) as client:
        with pytest.raises(redis.AuthenticationError):
            client.config_get("bind")
        shop = redis.Redis(
            unix_socket_path=f"{tmp_path}/redis.sock", username="shop", password="secret", decode_responses=True
        )
        with shop:
            assert shop.config_get("bind") == {"bind": "* -::*"}
            found: Any = shop.acl_getuser("default")
            assert "nopass" not in found["flags"]  # otherwise protected mode would answer this host only


def test_the_default_user_is_off_and_keeps_the_rights_with_which_files_are_loaded() -> None:
    for path in (*DEPLOY.rglob("*"), *(REPOSITORY / "docs").glob("*.md")):
        if path.is_file():
            named = re.findall(r"(?<!bare `)user default off(.{12})?", path.read_text(encoding="utf-8"))
            assert set(named) <= {" ~* &* +@all"}, path


@every_server
async def test_headgate_works_on_it_and_messages_survive_a_restart(server: ServerBinary, tmp_path: Path) -> None:
    """Mutant: a default user who is off and may nothing; what scripts wrote is not loaded."""
    (tmp_path / "users.acl").write_text(USERS)
    users = "--aclfile", str(tmp_path / "users.acl")
    url = f"unix://shop:secret@{tmp_path}/redis.sock"

    async def send() -> None:
        async with headgate.connect(url, namespace="kept") as client, client.session("sender") as session:
            producer = await session.producer("orders")
            await producer.send("kept", timeout=10)

    async def receive() -> object:
        async with headgate.connect(url, namespace="kept") as client, client.session("receiver") as session:
            consumer = await session.consumer("orders")
            message = await consumer.receive(timeout=30)
            assert message
            await message.accept()
            return message.body

    with running(server, tmp_path, *users):
        await asyncio.wait_for(send(), 30)
    with running(server, tmp_path, *users):
        assert await asyncio.wait_for(receive(), 60) == "kept"
