"""What a client may have a node hold, by what its user may do: one that may nothing holds next to nothing."""

import asyncio
import tracemalloc
from collections.abc import AsyncIterator
from typing import Any

import pytest

import headgate
from headgate import AccessDenied, MessageFormatError
from headgate.amqp.calls import MAX_WORDS, message, pack, read_calls
from headgate.amqp.link import Terminus
from headgate.core.amqp.msgpack_form import MAX_PARTS
from headgate.policy import loads
from headgate.redis.keys import policy_key
from headgate_coordinator.node.connection_share import NOTHING, READS, SENDS
from headgate_coordinator.node.gateway.gateway import Gateway
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from tests.remote.grants import B, C, P, users
from tests.remote.test_gateway_rights import as_user, backend

pytestmark = [pytest.mark.one_server, pytest.mark.usefixtures("patient")]
HEAD = b"\0\x53\x75\xb0\0\0\0\0"
BOMBS = {
    "empty arrays": b"\xdd" + (24 << 20).to_bytes(4) + b"\x90" * (24 << 20),
    "arrays of empty arrays": b"\xdc\x03\xe8" + (b"\xdc\x03\xe8" + (b"\xdc\x03\xe8" + b"\x90" * 1000) * 1000) * 24,
    "depth": b"\x91" * 100_000,
    "depth, with lengths that are not there": b"\xdc\x04\x00" * 21_000,
    "lengths that are not there": b"\xdd\xff\xff\xff\xff",
    "a map": b"\xdf\x00\x10\x00\x00" + b"\xc0" * (2 << 20),
    "maps": b"\x93" + b"\x81\x01" * 1000,
    "extensions": b"\xdc\x04\x00" + b"\xd4\x05\x01" * 1024,
    "numbers": (b"\xdc\x04\x00" + b"\xcb\x40\x00\x00\x00\x00\x00\x00\x01" * 1024).join(
        [b"\xdc\x03\xe8"] + [b""] * 1000
    ),
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS)
def test_what_calls_become_in_memory_is_bounded_whatever_is_sent(bomb: bytes) -> None:
    """A call of 24 MiB took two GiB, and eleven seconds."""
    raw = HEAD + bomb
    tracemalloc.start()
    try:
        with pytest.raises(MessageFormatError):
            read_calls(raw)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


def test_honest_calls_are_well_below_the_bounds() -> None:
    body = [None, *range(40), *[b"x" * 1000] * 256]
    whole = message([pack((number, "call", "publish", b"hg:{shop/orders}", body)) for number in range(256)])
    assert len(read_calls(whole)) == 256
    assert 2 * len(body) < MAX_WORDS
    assert 256 * (len(body) + 6) < MAX_PARTS


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    people = users(nobody={}, reader={"news": {C, B}}, sender={"orders": {P}})
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
        node = Node(behind, NodeOptions(port=0, plain_without_tls=True), people)
        await node.start()
        try:
            yield node
        finally:
            await node.close()


@pytest.mark.parametrize(("name", "standing"), [("nobody", NOTHING), ("reader", READS), ("sender", SENDS)])
async def test_calls_are_as_long_as_the_user_has_use_for(node: Node, name: str, standing: object) -> None:
    async with as_user(node, name) as client:
        (connection,) = node.connections
        assert connection.standing is standing
        size = connection.standing.calls
        assert backend(client)._link._calls.peer_max_message == size  # type: ignore[union-attr]
        if size < 16 << 20:
            (gateway,) = (end for end in connection.ends.values() if isinstance(end, Gateway))
            assert gateway.link.max_message == size, "more than that is not even kept"
            assert connection.engine._kept.limits.unfinished == connection.standing.message
        key = policy_key(node.client.namespace).encode()
        for _ in range(5):
            await asyncio.gather(*(client.store.server.command(key, "HGET", key, "version") for _ in range(100)))


async def test_without_grants_there_are_no_links_but_to_hear_so(node: Node) -> None:
    async with as_user(node, "nobody") as client:
        with pytest.raises(AccessDenied):
            await client.apply("orders", limit=10)
        (connection,) = node.connections
        assert connection.engine.limits.links == NOTHING.links
        refused = Refusals()
        for source, target in (
            (Terminus("a"), Terminus()),
            (Terminus(dynamic=True), Terminus()),
            (Terminus(), Terminus()),
        ):
            for receives in (True, False):
                link = refused.link(source, target, receives=receives)
                connection.attached(link)
        assert refused.conditions == {"amqp:unauthorized-access"}


class Refusals:
    """Links that note how they are refused."""

    def __init__(self) -> None:
        self.conditions: set[str] = set()

    def link(self, source: Terminus, target: Terminus, *, receives: bool) -> Any:
        def refuse(condition: str, _: str) -> None:
            self.conditions.add(condition)

        return type(
            "Refused",
            (),
            {"name": "x", "source": source, "target": target, "receives": receives, "refuse": staticmethod(refuse)},
        )()


async def test_without_grants_nobody_reads_the_policy_and_with_one_it_is_followed(node: Node) -> None:
    """Breaks when its frame is for all: the names of the document and of the site."""
    await node.client.apply_policy(loads('[[destination]]\nmatch = "orders"\nlimit = 1000\n', "secret.toml"))
    key = policy_key(node.client.namespace).encode()
    async with as_user(node, "nobody") as client:
        for words in (("HGET", key, "document"), ("HMGET", key, "version", "document")):
            with pytest.raises(AccessDenied, match="reading the policy needs some grant"):
                await client.store.server.command(key, *words)
        with pytest.raises(AccessDenied):
            await client.policy()
        people: Any = node.users
        people.may("nobody", {"orders": {P}})
        assert b"secret.toml" in await client.store.server.command(key, "HGET", key, "document")
        async with client.session() as session:
            await (await session.producer("orders")).send(b"x", timeout=60)
        assert (await client.explain("orders")).fields["limit_bytes"] == "1000"


async def test_who_is_granted_something_has_room_for_it_at_once(node: Node) -> None:
    """Breaks when what a connection may take is settled once."""
    async with as_user(node, "nobody") as client:
        with pytest.raises(AccessDenied):
            await client.apply("orders", limit=10)
        people: Any = node.users
        people.may("nobody", {"#": {P, C, B}})
        async with client.session() as session:
            producer = await session.producer("orders")
            await producer.send(b"x" * (4 << 20), timeout=20)
            consumer = await session.consumer("orders")
            got = await consumer.receive(timeout=20)
            assert got is not None
            assert len(got.body) == 4 << 20
            await got.accept()
