"""What compose.yaml puts together, without Docker: first run, Redis with its users, a node, its health, a scrape."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import redis

from tests.deploy.files import DEPLOY, REPOSITORY, document
from tests.deploy.test_image import only
from tests.support.servers import newest_server
from tests.support.waiting import wait_for

PACKAGES = os.pathsep.join(str(REPOSITORY / name) for name in ("sdk", "coordinator", "pipeline"))
NODE = document("compose.yaml")["services"]["node-1"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Variables with which `headgate` and `python` are found as in the image."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "headgate"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m headgate_coordinator "$@"\n')
    program.chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    return {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": PACKAGES}


@pytest.fixture
def made(tmp_path: Path, environment: dict[str, str]) -> Path:
    """What the first run makes, with the real `headgate acl`."""
    folders = {f"{name.upper()}_FOLDER": str(tmp_path / name) for name in ("acl", "node", "scrape")}
    for folder in folders.values():
        Path(folder).mkdir()
    first = {**environment, **folders, "HEADGATE_NAMESPACE": "default"}
    subprocess.run(["/bin/sh", DEPLOY / "first-run.sh"], env=first, check=True, capture_output=True, timeout=240)
    return tmp_path


@pytest.fixture
def port(made: Path) -> Iterator[int]:
    """The port of a Redis with our settings and with the users of the first run."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    told = [word.replace("/acl/", f"{made}/acl/") for word in document("compose.yaml")["services"]["redis"]["command"]]
    command = [newest_server().path, DEPLOY / "redis.conf", *told[2:], "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--dir", str(made), "--logfile", str(made / "redis.log")]
    process = subprocess.Popen(command)
    password = (made / "node/redis_password").read_text()
    client = redis.Redis(port=port, username="hg-default-node", password=password)

    def answers() -> bool:
        assert process.poll() is None
        try:
            return client.ping()
        except redis.ConnectionError:
            return False

    try:
        wait_for(answers, description="the Redis of compose.yaml")
        yield port
    finally:
        client.close()
        process.terminate()
        process.wait(30)


@pytest.fixture
def node(made: Path, port: int, environment: dict[str, str]) -> Iterator[tuple[subprocess.Popen[str], dict[str, str]]]:
    """A node as compose starts it, and its ready line."""
    settings = {key: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", str(value)) for key, value in NODE["environment"].items()}
    url = settings["HEADGATE_URL"].replace("redis:6379", f"127.0.0.1:{port}").replace("/run/headgate", f"{made}/node")
    settings |= {"HEADGATE_URL": url, "HEADGATE_PORT": "0", "HEADGATE_ADMIN_PORT": "0", "HEADGATE_HOST": "127.0.0.1"}
    shell, option, script, name = NODE["entrypoint"]
    script = script.replace("$$", "$").replace("/run/headgate", f"{made}/node")
    with (made / "node.log").open("w") as log:
        process = subprocess.Popen(
            [shell, option, script, name, *NODE["command"], "--json"],
            env={**environment, **settings},
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        assert process.stdout
        line = process.stdout.readline()
        assert line, (made / "node.log").read_text()
        yield process, json.loads(line)
    finally:
        process.kill()
        process.communicate(timeout=120)


@pytest.mark.soak  # test_image and test_compose have each part of it
def test_the_parts_of_compose_work_together(
    made: Path, node: tuple[subprocess.Popen[str], dict[str, str]], environment: dict[str, str]
) -> None:
    process, told = node
    assert told["name"] == "node-1"
    port = httpx.URL(told["admin"]).port
    url = f"http://127.0.0.1:{port}"
    token = (made / "scrape/admin_token").read_text()
    wait_for(lambda: httpx.get(f"{url}/ready").status_code == 200, description="a node that is ready")
    check = json.loads(only("HEALTHCHECK").partition("CMD ")[2])
    healthy = {**environment, "HEADGATE_ADMIN_PORT": str(port)}
    subprocess.run([sys.executable, *check[1:]], env=healthy, check=True, timeout=120)
    assert httpx.get(f"{url}/metrics").status_code == 401
    scrape = httpx.get(f"{url}/metrics", headers={"Authorization": f"Bearer {token}"})
    lines = scrape.text.splitlines()
    assert "headgate_redis_up 1.0" in lines
    assert "headgate_node_ready 1.0" in lines
    process.send_signal(signal.SIGTERM)
    assert process.wait(40) == 0
    unhealthy = subprocess.run([sys.executable, *check[1:]], env=healthy, check=False, capture_output=True, timeout=120)
    assert unhealthy.returncode != 0
