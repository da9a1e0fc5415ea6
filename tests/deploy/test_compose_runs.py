"""compose.yaml as Docker runs it: two nodes that share what their clients send, over restarts of all parts.

`make test-docker` runs it where there are Docker, `docker compose`, and two images: `headgate`, built of
deploy/Dockerfile, or what HEADGATE_IMAGE names, and `redis:8`, or what HEADGATE_IMAGE_REDIS_8 names. Nothing is
built or pulled.
"""

import json
import os
import resource
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

import headgate
from headgate.amqp.link import Link
from headgate.amqp.peer import Disconnected
from tests.amqp.client import Peer, read
from tests.deploy.files import DEPLOY, ports
from tests.support import images
from tests.support.ports import own_port
from tests.support.waiting import wait_for, wait_until

GUARD: Final = 120.0
NODES: Final = ("node-1", "node-2")
IMAGE: Final = os.environ.get("HEADGATE_IMAGE", "headgate")
pytestmark = [pytest.mark.docker, pytest.mark.timeout(900)]


@dataclass
class Site:
    """What compose.yaml makes, on ports of its own; Prometheus and Grafana are left out."""

    command: list[str]
    amqp: dict[str, int]
    admin: dict[str, int]

    def compose(self, *arguments: str) -> str:
        """Run `docker compose`, and return what it prints."""
        done = subprocess.run([*self.command, *arguments], check=False, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def state(self, service: str) -> Any:
        """Return what `docker compose ps` tells of a service."""
        return json.loads(self.compose("ps", "--all", "--format", "json", service))

    def serves(self) -> bool:
        return all(self.state(name)["Health"] == "healthy" for name in ("redis", *NODES)) and all(
            self.get(name, "ready").status_code == 200 for name in NODES
        )

    def get(self, node: str, path: str, **more: Any) -> httpx.Response:
        return httpx.get(f"http://127.0.0.1:{self.admin[node]}/{path}", timeout=30, **more)


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    if "docker" not in request.config.option.markexpr:
        pytest.skip("make test-docker runs it")
    if why := images.docker_is_missing():
        pytest.skip(why)
    if subprocess.run(["docker", "compose", "version"], check=False, capture_output=True).returncode:
        pytest.skip("docker has no compose")
    server = images.place("redis:8")
    for image in (IMAGE, server):
        if not images.is_here(image):
            pytest.skip(f"docker has no image {image}")
    amqp, admin = ({name: own_port() for name in NODES} for _ in range(2))
    inside = ports()
    other = {
        name: f"""
  {name}:
    image: {IMAGE}
    environment: {{HEADGATE_PUBLIC: "localhost:{amqp[name]}"}}
    ulimits: {{nofile: {resource.getrlimit(resource.RLIMIT_NOFILE)[1]}}}
    ports: !override ["127.0.0.1:{amqp[name]}:{inside[0]}", "127.0.0.1:{admin[name]}:{inside[1]}"]"""
        for name in NODES
    }
    changes = tmp_path / "changes.yaml"
    changes.write_text(
        f"services:\n  first-run: {{image: {IMAGE}}}\n  redis: {{image: {server}}}{''.join(other.values())}\n"
    )
    project = f"headgate-test-{uuid.uuid4().hex[:8]}"
    command = ["docker", "compose", "-p", project, "-f", str(DEPLOY / "compose.yaml"), "-f", str(changes)]
    site = Site(command, amqp, admin)
    try:
        site.compose("up", "--detach", "--no-build", "--pull", "never", *NODES)
        wait_for(site.serves, timeout=GUARD, description="both nodes serve")
        yield site
    finally:
        print(site.compose("logs", "--no-color", "--tail", "50"))  # pytest shows it where the test fails
        site.compose("down", "--volumes", "--timeout", "40")


async def connected(port: int) -> Peer:
    """Connect, as soon as the node lets us."""

    async def peer() -> Peer | None:
        try:
            return await Peer.connect(port)
        except Disconnected:
            return None

    found: Peer | None = await wait_until(peer, timeout=GUARD, description="a node that is connected to")
    assert found
    return found


async def test_two_nodes_and_redis_share_what_clients_send_and_keep_it(site: Site) -> None:
    assert site.state("first-run")["ExitCode"] == 0
    one, other = (site.amqp[name] for name in NODES)

    sender = await connected(one)
    link = await sender.sender("orders")
    for number in range(20):
        assert await sender.send(link, str(number)) == ("accepted", "")
    await sender.close()

    got: list[str] = []

    def take(link: Link, message: bytes, delivery: Any) -> None:
        got.append(read(message))
        link.settle(delivery)

    receiver = await connected(other)
    await receiver.receiver("orders", take, credit=10)
    await wait_until(lambda: len(got) == 10, timeout=GUARD, description="what was sent at the other node")
    await receiver.close()
    assert got == [str(number) for number in range(10)]

    token = site.compose("exec", "-T", "node-1", "cat", "/run/headgate/admin_token")
    assert site.get("node-1", "metrics").status_code == 401
    scrape = site.get("node-1", "metrics", headers={"Authorization": f"Bearer {token}"})
    assert "headgate_redis_up 1.0" in scrape.text
    assert "orders" in site.compose("exec", "-T", "node-1", "headgate", "status")
    user = site.compose("exec", "-T", "node-1", "id", "-u")
    assert user.strip() == "10001"

    site.compose("kill", "redis")
    site.compose("start", "redis")
    site.compose("stop", "node-1")
    assert site.state("node-1")["ExitCode"] == 0, "it ended by itself, before it was killed"
    wait_for(lambda: site.state("redis")["Health"] == "healthy", timeout=GUARD, description="Redis is back")
    async with headgate.connect(f"amqp://localhost:{other}") as client, client.session("s") as session:
        consumer = await session.consumer("orders")
        for number in range(10, 20):
            message = await consumer.receive(timeout=GUARD)
            assert message is not None
            assert message.body in (str(number), str(number).encode())
            await message.accept(confirm=True)

    site.compose("up", "--detach", "--no-build", "--pull", "never", *NODES)
    wait_for(site.serves, timeout=GUARD, description="both nodes serve again")
    sender = await connected(one)
    assert await sender.send(await sender.sender("orders"), "after") == ("accepted", "")
    await sender.close()
