"""Queues that a node makes for one link: their names are secret, nobody else makes or lists them, and none stays."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

import headgate
from headgate import AccessDenied, InvalidValue
from headgate.amqp.limits import Limits
from headgate.amqp.link import Link, Terminus
from headgate.amqp.peer import Disconnected
from headgate.amqp.proton import lib
from headgate.core.amqp.message import AmqpMessage, Properties, encode
from headgate.core.names import encode_name
from headgate.errors import HeadgateError
from headgate.redis.keys import Address, index_keys
from headgate.redis.replies import Account
from headgate_coordinator.fleet.registry import NodeRegistry
from headgate_coordinator.fleet.reply_queues import REPLY, reply_queue
from headgate_coordinator.node.node import Node
from headgate_coordinator.security.access import REPLY_QUEUES
from headgate_coordinator.service.sweep import Sweep
from tests.amqp.client import Peer, read
from tests.remote.grants import B, C, M, P
from tests.remote.people import Taken, node_with, peer_as, sdk_as
from tests.sdk.observing import GUARD
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    people = {
        "alice": {"questions": {P}}, "server": {"questions": {C}}, "mallory": {"elsewhere": {B}},
        "wide": {"#": {P, C, B}}, "boss": {"#": {P, C, B, M}},
    }  # fmt: skip
    async with node_with(redis_url, cleanup_namespace, people) as node:
        yield node


async def reply_link(peer: Peer, taken: Taken, name: str = "replies") -> tuple[Link, str]:
    """Attach a link with a queue of its own; returns it, and the queue's name."""
    link = await peer.receiver(None, taken, name=name, dynamic=True)
    await peer.until(lambda: address_of(link), link)
    return link, str(address_of(link))


def address_of(link: Link) -> str | None:
    return Terminus.read(lib.pn_link_remote_source(link.raw)).address if link.alive else None


async def replies_in_redis(node: Node) -> list[str]:
    return [name for name in await node.client.destinations() if name.startswith(REPLY)]


async def test_who_was_told_the_name_answers_and_nobody_else_sees_it(node: Node) -> None:
    """Mutants: who may send there may list it; its name is short."""
    taken = Taken()
    async with peer_as(node, "alice") as alice, peer_as(node, "server") as server:
        _, queue = await reply_link(alice, taken)
        assert len(queue.rpartition("~")[2]) == 32, "128 bits that nobody guesses"
        relay = await server.sender(None)
        wait: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        answer = encode(AmqpMessage(kind="data", body=b"42", properties=Properties(to=queue)))
        server.waits[relay.send(answer)] = wait
        server.flush()
        assert (await asyncio.wait_for(wait, GUARD))[0] == "accepted"
        await wait_until(lambda: [read(raw) for raw in taken.raw] == ["42"])
        direct = await server.sender(queue, "direct")
        assert (await server.send(direct, "43"))[0] == "accepted"
        for name in ("mallory", "wide", "server", "alice"):
            async with sdk_as(node, name) as sdk:
                assert [found for found in await sdk.destinations() if found.startswith(REPLY)] == []
                with pytest.raises(AccessDenied):
                    _ = [seen async for seen in sdk.browse(queue)]
                async with sdk.session("s") as session:
                    with pytest.raises(AccessDenied):
                        await session.consumer(queue)
        async with sdk_as(node, "boss") as boss:
            assert queue in await boss.destinations()


@pytest.mark.parametrize("user", ["mallory", "wide", "boss"])
async def test_nobody_makes_one(node: Node, user: str) -> None:
    """Mutants: `apply` makes it; a link to it makes it."""
    taken = Taken()
    names = [f"{REPLY}{node.id}~{'0' * 32}", f"{REPLY}x", reply_queue("no-such-node")]
    async with sdk_as(node, user) as sdk, sdk.session("s") as session, peer_as(node, user) as peer:
        for name in names:
            address = Address.of(node.client.namespace, name)
            with pytest.raises(HeadgateError):
                await session.producer(name)
            for mode in ("ensure", "recover", "change"):
                with pytest.raises(HeadgateError):
                    await sdk.store.apply(address, {"kind": "queue"}, mode=mode, ttl_ms=1000)
            with pytest.raises(HeadgateError):
                await session.consumer(name)
            mine = Account(f"{user}~s~00000000", 1, 0, want=10, want_m=1)
            assert (await sdk.store.acquire(address, mine, ttl_ms=1000)).code == "UNKNOWN"
            answer = await sdk.store.publish(address, mine, seq=1, bodies=[b"\x91x"], ttl_ms=1000)
            assert answer.code == "UNKNOWN"
            with pytest.raises((AccessDenied, InvalidValue)):
                await sdk.parts.registry.index.announce(address)
            with pytest.raises(Disconnected):
                await peer.sender(name, f"to {name}")
            if user != "boss":
                link = await peer.receiver(name, taken, name=f"from {name}")
                with pytest.raises(Disconnected, match="may not consume"):
                    await peer.until(lambda: False, link)
    assert await replies_in_redis(node) == []


async def test_one_holds_as_much_as_one_message_may_have_and_a_connection_has_some(
    redis_url: str, cleanup_namespace: str
) -> None:
    """Mutants: no limit; a connection has any number of them."""
    limits = Limits(message=100_000, sessions=200)
    async with node_with(redis_url, cleanup_namespace, {"mallory": {"elsewhere": {B}}}, limits=limits) as node:
        peer = await Peer.connect(node.port, "mallory", limits, "mallory")
        link, queue = await reply_link(peer, Taken())
        link.set_credit(0)
        explained = await node.client.store.snapshot(Address.of(node.client.namespace, queue))
        assert explained is not None
        assert explained.fields["limit_bytes"] == "100000"
        for number in range(REPLY_QUEUES - 1):
            await reply_link(peer, Taken(), f"more {number}")
        with pytest.raises(Disconnected, match="resource-limit"):
            await reply_link(peer, Taken(), "one too many")
        link.close()
        peer.flush()

        async def another() -> bool:
            try:
                await reply_link(peer, Taken(), "in its place")
            except Disconnected:
                return False
            return True

        await wait_until(another, timeout=GUARD)
        await peer.close()


async def test_none_stays_of_clients_that_hang_up_while_it_is_made(node: Node) -> None:
    """Mutant: what was not open yet is not removed."""
    for number in range(30):
        peer = await Peer.connect(node.port, f"gone-{number}", user="mallory")
        for name in range(4):
            await peer.receiver(None, Taken(), name=f"r{name}", dynamic=True)
            own = peer.engine.attach(peer.engine.session(), f"s{name}", receives=False)
            own.accept(Terminus(), Terminus(dynamic=True))
            peer.flush()
        if number % 3 == 1:
            await asyncio.sleep(0)
        elif number % 3 == 2:
            await wait_until(lambda: bool(node.reply_queues()))
        peer.abort()
    await wait_until(lambda: not node.reply_queues() and not node.connections, timeout=GUARD)

    async def none() -> bool:
        return not await replies_in_redis(node)

    await wait_until(none, timeout=GUARD)


async def test_what_is_left_of_a_living_node_is_swept_and_what_is_open_is_not(node: Node) -> None:
    """Mutant: only those of nodes that died are swept."""
    registry = NodeRegistry(node.client)
    sweep = Sweep(node.client, registry, node.id, node.reply_queues)
    async with peer_as(node, "alice") as alice:
        _, queue = await reply_link(alice, Taken())
        left = reply_queue(node.id)
        await node.client.apply(left, kind="queue")
        for _ in range(3):
            await sweep.round()
        assert await replies_in_redis(node) == [queue]
        await node.client.remove(left)


async def test_who_goes_on_sending_to_one_that_is_gone_does_not_bring_it_back(node: Node) -> None:
    """Over lines that are open. Mutant: a node makes what its line needs."""
    async with peer_as(node, "alice") as alice, peer_as(node, "mallory") as mallory:
        link, queue = await reply_link(alice, Taken())
        sender, relay = await mallory.sender(queue, "direct"), await mallory.sender(None, "relay")
        waits = []

        def post() -> None:
            for over in (sender, relay):
                if over.credit > 0:
                    wait: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
                    body = AmqpMessage(kind="data", body=b"x" * 1000, properties=Properties(to=queue))
                    mallory.waits[over.send(encode(body))] = wait
                    waits.append(wait)
            mallory.flush()

        post()
        assert [outcome for outcome, _ in await asyncio.wait_for(asyncio.gather(*waits), GUARD)] == ["accepted"] * 2
        link.close()
        alice.flush()

        async def gone() -> bool:
            return not await replies_in_redis(node)

        await wait_until(gone, timeout=GUARD)
        waits.clear()
        for _ in range(20):
            post()
            await asyncio.sleep(0.02)
        done, _ = await asyncio.wait(waits, timeout=GUARD)
        assert {wait.result()[0] for wait in done if not wait.exception()} <= {"rejected", "released"}
        assert await replies_in_redis(node) == []


async def test_no_user_without_rights_enters_one_in_the_index(node: Node) -> None:
    """Mutant: a node enters what a paused consumer is asked for."""
    topics = index_keys(node.client.namespace)[2]
    async with sdk_as(node, "mallory") as mallory:
        address = Address.of(node.client.namespace, f"{REPLY}x")
        with pytest.raises(AccessDenied):
            await mallory.store.attach(
                address, "wildcard~0123456789abcdef", number=1, subscription="s", durable=True, window="paused",
                ttl_ms=1000,
            )  # fmt: skip
    assert await node.client.store.server.command(topics, "SCARD", topics) == 0


async def test_a_message_to_one_that_is_gone_is_refused_by_the_gateway_too(node: Node) -> None:
    async with peer_as(node, "alice") as alice, sdk_as(node, "server") as server, server.session("s") as session:
        link, queue = await reply_link(alice, Taken())
        producer = await session.producer(queue)
        await producer.send("in time")
        link.close()
        alice.flush()

        async def gone() -> bool:
            return not await replies_in_redis(node)

        await wait_until(gone, timeout=GUARD)
        with pytest.raises(headgate.HeadgateError):
            await producer.send("too late", timeout=1)
        assert await replies_in_redis(node) == []
        assert encode_name(queue) not in str(await server.destinations())
