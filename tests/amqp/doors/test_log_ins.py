"""Log-ins at a node while strangers try passwords, and connections that never say who they are."""

import asyncio
import contextlib
import dataclasses
import time
from collections.abc import AsyncIterator

import pytest

import headgate
from headgate import AccessDenied
from headgate.amqp.sasl import HEADER, SaslClient
from headgate_coordinator.node import connection as module
from headgate_coordinator.node.log_throttle import AT_ONCE
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from headgate_coordinator.security.document import User, parse_grant
from headgate_coordinator.security.store import UserStore
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
FLOOD = 600
SECRET = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$aLJr313a4S4tKM+skUSPwmGcnRd98oRU1CnCPv6T4/Q="
OTHER = "scrypt$16384$8$1$AAAAAAAAAAAAAAAAAAAAAA==$Mzx4KiY24aN3L7uoRQseRlu/FE3nTXb1avd7k1I5q20="
"""Hashes of the passwords `secret` and `other`."""


def said(name: str, password: str) -> bytes:
    """Return what a client says who chooses PLAIN unasked."""
    client = SaslClient(name, password, "node")
    client._choose(("PLAIN",))
    return client.outgoing


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
        people = {"ann": SECRET, "bob": OTHER}
        grants = [parse_grant("produce,consume:#")]
        made = {name: User(password_hash=word, grants=grants) for name, word in people.items()}
        await UserStore(behind.store.server, behind.namespace).change(lambda known: known.update(made))
        users = Users.from_redis(behind)
        await users.start()
        node = Node(behind, NodeOptions(port=0, plain_without_tls=True), users)
        await node.start()
        try:
            yield node
        finally:
            await node.close()
            await users.close()


async def log_in(node: Node, name: str, password: str) -> None:
    url = f"amqp://{name}:{password}@{node.address}"
    async with headgate.connect(url, namespace=node.client.namespace):
        pass


async def flood(node: Node, stack: contextlib.AsyncExitStack, *, stay: bool, user: str | None) -> None:
    """Give wrong passwords, each over a connection of its own, of which half are for no user at all."""
    host, port = node.address.split(":")
    for number in range(FLOOD):
        _, writer = await asyncio.open_connection(host, int(port))
        name = user or f"nobody{number}"
        writer.write(said(name, f"wrong {number}"))
        if stay:
            stack.callback(writer.close)
        else:
            writer.close()


@pytest.mark.parametrize("stay", [True, pytest.param(False, marks=pytest.mark.whole)], ids=["stay", "go"])
@pytest.mark.parametrize("user", ["ann", pytest.param(None, marks=pytest.mark.whole)], ids=["one user", "no user"])
async def test_a_flood_of_wrong_passwords_keeps_nobody_waiting_for_long(
    node: Node, user: str | None, *, stay: bool
) -> None:
    """Breaks when all wait in one line, or checks outlive their connections: the flood would take 15 s of checks.

    Both log in for the first time; `make bench` has the exact figure.
    """
    async with contextlib.AsyncExitStack() as stack:
        began = time.monotonic()
        for number in range(4):
            with pytest.raises(AccessDenied):
                await log_in(node, "bob", f"typing error {number}")
        alone = (time.monotonic() - began) / 4
        await flood(node, stack, stay=stay, user=user)
        for name, password in (("bob", "other"), ("ann", "secret")):
            began = time.monotonic()
            while True:  # the SDK gives a node 1.5 s; on a busy machine that may be too little for one look
                try:
                    await log_in(node, name, password)
                except headgate.CoordinatorUnavailable:
                    assert time.monotonic() - began < 20 * alone + 5
                else:
                    break
            assert time.monotonic() - began < 20 * alone + 5


async def test_checks_end_with_their_connections(node: Node) -> None:
    async with contextlib.AsyncExitStack() as stack:
        await flood(node, stack, stay=False, user="ann")
        await wait_until(lambda: not node.connections, timeout=20)
        await wait_until(lambda: len(node.users._line) == 0)


async def test_checks_end_with_the_handshake(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Breaks when who was hung up on stays in the line: its answer finds a socket that is closed for writing."""
    never = asyncio.Event()

    async def check(_password: str, _known: str) -> bool:
        return await never.wait()

    monkeypatch.setattr(node.users._line, "_check", check)
    monkeypatch.setattr(node, "options", dataclasses.replace(node.options, handshake=1.0))
    host, port = node.address.split(":")
    async with contextlib.AsyncExitStack() as stack:
        with caplog.at_level("ERROR"):
            for number in range(20):
                _, writer = await asyncio.open_connection(host, int(port))
                stack.callback(writer.close)
                writer.write(said("ann", f"wrong {number}"))
            await wait_until(lambda: len(node.users._line) > 0)
            await wait_until(lambda: len(node.users._line) == 0)
    assert not caplog.records


async def test_connections_that_say_nothing_make_room_for_others(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Breaks when the newest is refused: whoever holds all places without a word keeps everybody out."""
    monkeypatch.setattr(module, "SILENT", 20)
    host, port = node.address.split(":")
    async with contextlib.AsyncExitStack() as stack:
        readers = []
        for number in range(100):
            reader, writer = await asyncio.open_connection(host, int(port))
            stack.callback(writer.close)
            writer.write(HEADER[: number % 9])
            readers.append(reader)
        await wait_until(lambda: len(node.connections) <= 20)
        await log_in(node, "ann", "secret")
        assert len(node.silent) <= 20
        with contextlib.suppress(ConnectionError):
            await readers[0].read()


async def test_a_node_at_which_nobody_can_sign_in_says_so(
    redis_url: str, cleanup_namespace: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As it starts, and for clients that it turns away; but not a line for each of thousands."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
        made = {"ann": User(password_hash=SECRET, grants=[])}
        for required in (True, False):
            users = Users.from_redis(behind, required=required)
            await users.start()
            node = Node(behind, NodeOptions(port=0), users)
            with caplog.at_level("WARNING", "headgate.node"):
                await node.start()
                assert "nobody can sign in" in caplog.text, "there are users, and no TLS" if made else "there are none"
                caplog.clear()
                for _ in range(30):
                    with pytest.raises(headgate.HeadgateError):
                        await log_in(node, "ann", "secret")
            assert 5 < caplog.text.count("nobody can sign in") <= 10
            caplog.clear()
            await node.close()
            await users.close()
            await UserStore(behind.store.server, behind.namespace).change(lambda known: known.update(made))


async def test_the_log_has_a_few_of_those_who_are_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Checks cost nothing, and no time passes for the log: a busy machine looks at few passwords."""

    async def check(_password: str, _known: str) -> bool:
        return False

    monkeypatch.setattr(node.users._line_of_wrong, "_check", check)  # of users that do not exist
    monkeypatch.setattr(node.refusals, "_clock", lambda: 0.0)
    async with contextlib.AsyncExitStack() as stack:
        with caplog.at_level("WARNING", "headgate.node"):
            await flood(node, stack, stay=True, user=None)
            await wait_until(lambda: node.counters.rejected["password"] > 20)
        refused = [record for record in caplog.records if "is refused" in record.getMessage()]
        assert len(refused) == AT_ONCE
