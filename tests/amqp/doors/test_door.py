"""The door of a node: who waits to be taken on, under those who crowd before it."""

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import headgate
from headgate_coordinator.node import door as module
from headgate_coordinator.node.door import TAKEN_ON, Door
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from tests.remote.test_tls import certificate  # noqa: F401 -- a fixture
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
CROWD = 200
NEAR, FAR = "127.0.0.1", "127.0.0.2"


class Guest(asyncio.Protocol):
    """Notes where it comes from, and in which turn of the loop."""

    def __init__(self, seen: list[tuple[str, int]], turn: list[int]) -> None:
        self._seen, self._turn = seen, turn

    def connection_made(self, transport: Any) -> None:
        self._seen.append((transport.get_extra_info("peername")[0], self._turn[0]))


@contextlib.asynccontextmanager
async def door_of(seen: list[tuple[str, int]], turn: list[int]) -> AsyncIterator[tuple[Door, int]]:
    door = Door(lambda: Guest(seen, turn), None, 10)
    try:
        yield door, await door.listen(NEAR, 0)
    finally:
        door.close()


def crowd(stack: contextlib.ExitStack, count: int, port: int, source: str) -> None:
    """Connect while the loop stands still, so that all are there in its next turn."""
    for _ in range(count):
        stack.enter_context(socket.create_connection((NEAR, port), timeout=60, source_address=(source, 0)))


async def test_a_crowd_from_one_network_lets_others_through() -> None:
    """Mutants: first come first served; all that wait are taken on in one turn."""
    seen: list[tuple[str, int]] = []
    turn = [0]
    with contextlib.ExitStack() as stack:
        async with door_of(seen, turn) as (_, port):
            crowd(stack, CROWD, port, NEAR)
            crowd(stack, 1, port, FAR)
            while len(seen) < CROWD + 1:
                turn[0] += 1
                await asyncio.sleep(0)
    assert [source for source, _ in seen].index(FAR) <= 1
    most = max(sum(turn == each for _, turn in seen) for each in range(turn[0] + 1))
    assert most <= TAKEN_ON


async def test_of_too_many_the_oldest_of_the_largest_crowd_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutants: the newest goes; the oldest of all goes."""
    monkeypatch.setattr(module, "WAITING", 20)
    seen: list[tuple[str, int]] = []
    with contextlib.ExitStack() as stack:
        async with door_of(seen, [0]) as (_, port):
            crowd(stack, 5, port, FAR)
            crowd(stack, 100, port, NEAR)
            await wait_until(lambda: len(seen) == 20)
            assert sum(source == FAR for source, _ in seen) == 5


async def test_a_process_without_files_takes_connections_on_when_it_has_some(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[tuple[str, int]] = []
    monkeypatch.setattr(module, "PAUSE", 0.05)
    failures = [OSError(errno.EMFILE, "Too many open files")]
    accept = socket.socket.accept

    def fails_once(listening: socket.socket) -> Any:
        if failures:
            raise failures.pop()
        return accept(listening)

    monkeypatch.setattr(socket.socket, "accept", fails_once)
    with contextlib.ExitStack() as stack:
        async with door_of(seen, [0]) as (_, port):
            crowd(stack, 2, port, NEAR)
            await wait_until(lambda: len(seen) == 2)
    assert "no connections are accepted for 0.05 s" in caplog.text


async def test_tls_that_never_begins_makes_room_for_others(
    redis_url: str,
    cleanup_namespace: str,
    certificate: Path,  # noqa: F811 -- the fixture
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Breaks when only those count whose TLS is up: a stranger holds as many sockets as the process has."""
    monkeypatch.setattr(module, "WAITING", 20)
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
        users = Users.from_redis(behind)
        await users.start()
        options = NodeOptions(port=0, certificate=certificate, key=certificate.with_name("key.pem"), handshake=60)
        node = Node(behind, options, users)
        await node.start()
        with contextlib.ExitStack() as stack:
            crowd(stack, 1, node.port, NEAR)
            silent = stack.enter_context(socket.create_connection((NEAR, node.port), timeout=60))
            silent.setblocking(False)
            for _ in range(10):
                crowd(stack, 10, node.port, NEAR)
                await asyncio.sleep(0.01)
            assert await asyncio.wait_for(asyncio.get_running_loop().sock_recv(silent, 1), 60) == b""
            context = ssl.create_default_context(cafile=str(certificate))
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", node.port, ssl=context, server_hostname="127.0.0.1"
            )
            writer.write(b"AMQP\x03\x01\x00\x00")
            assert await asyncio.wait_for(reader.readexactly(4), 60) == b"AMQP"
            writer.close()
        await node.close()
        await users.close()


async def test_an_empty_host_is_not_every_address(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: a variable that is set to nothing opens the node to all who reach this host."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        with pytest.raises(headgate.InvalidValue, match="host is empty"):
            await Node(client, NodeOptions(host="", port=0), Users.from_redis(client)).start()
