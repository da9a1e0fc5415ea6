"""Nodes that die, freeze and go, with load on them: nothing that was acknowledged is lost, and no limit is passed."""

import asyncio
import contextlib
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Self

import pytest

import headgate
from headgate.redis.keys import Address
from tests.amqp.client import Peer
from tests.amqp.loads import Direct, Receiving, Roaming, Sending, doubled, in_order
from tests.amqp.node_processes import NodeProcess, nodes
from tests.sdk.observing import counts, look
from tests.sdk.observing import field as look_field
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server

TTL = 2
LIMIT = 4000
BACK = 15.0
"""Seconds within which a client is back, on a busy machine; the figure to be reached on a quiet one is 2."""
OPTIONS = ("--ttl", TTL, "--drain", 5)


@pytest.fixture
def two(redis_url: str, cleanup_namespace: str) -> Iterator[list[NodeProcess]]:
    with nodes(redis_url, cleanup_namespace, 2, *OPTIONS) as started:
        yield started


@pytest.fixture
def three(redis_url: str, cleanup_namespace: str) -> Iterator[list[NodeProcess]]:
    with nodes(redis_url, cleanup_namespace, 3, *OPTIONS) as started:
        yield started


@pytest.fixture
async def client(redis_url: str, cleanup_namespace: str) -> AsyncIterator[headgate.Client]:
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        yield client


@dataclass
class Load:
    """Clients of nodes and of Redis on two destinations: ``orders`` has one consumer, ``jobs`` has many."""

    client: headgate.Client
    nodes: Sequence[NodeProcess]
    pace: float = 0.01
    senders: list[Sending] = field(default_factory=list)
    receivers: list[Receiving] = field(default_factory=list)
    directs: list[Direct] = field(default_factory=list)
    keeper: Direct = field(init=False)

    async def __aenter__(self) -> Self:
        for address in ("orders", "jobs"):
            await self.client.apply(address, kind="queue", limit=LIMIT)
        for number in range(4):
            self.senders.append(Sending(self.nodes, f"s{number}", ("orders", "jobs")[number % 2], number // 2))
        for number in range(2):
            self.receivers.append(Receiving(self.nodes, f"r{number}", "jobs", number))
            self.directs.append(Direct(self.client, f"d{number}", ("orders", "jobs")[number]))
        self.keeper = Direct(self.client, "keeper", "orders")
        self.helper = Direct(self.client, "helper", "jobs")
        self._sending = [asyncio.create_task(sender.run(self.pace)) for sender in self.senders]
        self._sending += [asyncio.create_task(direct.send(self.pace)) for direct in self.directs]
        self._receiving = [asyncio.create_task(receiver.run()) for receiver in self.receivers]
        self._receiving += [asyncio.create_task(direct.receive()) for direct in (self.keeper, self.helper)]
        self._sampling = asyncio.create_task(self._sample())
        self.samples = 0
        await self.moves()
        return self

    async def _sample(self) -> None:
        """P1, all the time."""
        while True:
            for address in ("orders", "jobs"):
                with contextlib.suppress(headgate.CoordinatorUnavailable):
                    fields = (await look(self.client, address)).fields
                    assert int(fields["pending_bytes"]) + int(fields["leased_bytes"]) <= LIMIT, fields
                    self.samples += 1
            await asyncio.sleep(0.03)

    async def moves(self, more: int = 30) -> None:
        """Wait until each sender has more accepted."""
        ends: list[Sending | Direct] = [*self.senders, *self.directs]
        before = [len(end.accepted) for end in ends]
        tasks = [*self._sending, *self._receiving, self._sampling]

        def all_did() -> bool:
            for task in tasks:
                if task.done():
                    task.result()
            return all(len(end.accepted) >= had + more for end, had in zip(ends, before, strict=True))

        await wait_until(all_did, timeout=240, description="more accepted from everybody")

    async def __aexit__(self, *error: object) -> None:
        tasks = [*self._sending, *self._receiving, self._sampling]
        if error[0] is None:
            await self._finish()
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=20)
        assert not pending, [task.get_stack() for task in pending]
        if error[0] is None:
            await self._look_back()

    async def _finish(self) -> None:
        ends: list[Sending | Direct] = [*self.senders, *self.directs]
        for end in ends:
            end.stop.set()
        async with asyncio.timeout(60):
            await asyncio.gather(*self._sending)
        orders, jobs = self._promised()
        await wait_until(lambda: orders <= set(self.keeper.got), timeout=120, description="all orders")
        await wait_until(lambda: jobs <= set(self._jobs_got()), timeout=120, description="all jobs")
        for address in ("orders", "jobs"):  # what is doubled may still be there when all that was promised has come
            await wait_until(partial(self._consumed, address), timeout=TTL + 30, description="an empty queue")

    def _promised(self) -> tuple[set[str], set[str]]:
        orders = {*self.senders[0].accepted, *self.senders[2].accepted, *self.directs[0].accepted}
        jobs = {*self.senders[1].accepted, *self.senders[3].accepted, *self.directs[1].accepted}
        return orders, jobs

    def _jobs_got(self) -> list[str]:
        return [*self.helper.got, *(body for receiver in self.receivers for body in receiver.got)]

    async def _look_back(self) -> None:
        assert self.samples
        assert in_order(self.keeper.got), "order of each producer"
        doubtful = set().union(*(sender.doubtful for sender in self.senders))
        assert doubled(self.keeper.got) <= doubtful
        for address in ("orders", "jobs"):
            assert await look_field(self.client, address, "peak_bytes") <= LIMIT
            await wait_until(partial(self._empty, address), timeout=TTL + 15, description="counters at 0")

    async def _consumed(self, address: str) -> bool:
        await self.client.store.reap(Address.of(self.client.namespace, address))
        return await look_field(self.client, address, "pending_messages") == 0

    async def _empty(self, address: str) -> bool:
        await self.client.store.reap(Address.of(self.client.namespace, address))
        return await counts(self.client, address) == (0, 0)

    @property
    def roaming(self) -> list[Roaming]:
        return [*self.senders, *self.receivers]

    def ways_back(self) -> list[float]:
        return sorted(way for roaming in self.roaming for way in roaming.ways_back)


async def killed(load: Load, node: NodeProcess) -> None:
    node.kill9()
    await load.moves()
    node.start()
    await load.moves()


async def frozen(load: Load, node: NodeProcess) -> None:
    """Longer than its TTL: what it held is others' when it wakes."""
    node.signal(signal.SIGSTOP)
    frozen_at = time.monotonic()
    await load.moves()
    await wait_until(lambda: time.monotonic() > frozen_at + TTL + 1)
    node.signal(signal.SIGCONT)
    await load.moves()


async def drained(load: Load, node: NodeProcess) -> None:
    node.signal(signal.SIGTERM)
    await asyncio.to_thread(node.ended, timeout=5 + 1 + 5 + 10)
    node.start()
    await load.moves()


HARMS: dict[str, Callable[[Load, NodeProcess], Awaitable[None]]] = {
    "killed": killed,
    "frozen": frozen,
    "drained": drained,
}


@pytest.mark.parametrize(
    "harm", ["killed", *(pytest.param(one, marks=pytest.mark.whole) for one in ("frozen", "drained"))]
)
async def test_with_a_node_harmed_nothing_acknowledged_is_lost(
    client: headgate.Client, two: list[NodeProcess], harm: str, record_property: Callable[[str, object], None]
) -> None:
    async with Load(client, two) as load:
        await HARMS[harm](load, two[0])
    ways = load.ways_back()
    assert ways
    record_property("seconds_back", ways)
    print(f"{harm}: back after {ways[len(ways) // 2]:.2f} s, at most {ways[-1]:.2f} s")
    assert ways[-1] < BACK
    if harm == "drained":
        said = [condition for roaming in load.roaming for condition, _ in roaming.farewells]
        assert "amqp:connection:forced" in said


@pytest.mark.whole
async def test_all_of_three_nodes_are_restarted_one_after_the_other(
    client: headgate.Client, three: list[NodeProcess]
) -> None:
    async with Load(client, three) as load:
        for node in three:
            await drained(load, node)
    doubtful = set().union(*(sender.doubtful for sender in load.senders))
    print(f"rolling restart: {len(doubtful)} doubtful, back after at most {load.ways_back()[-1]:.2f} s")


async def test_the_credit_of_a_killed_node_is_back_within_its_ttl(
    client: headgate.Client, two: list[NodeProcess]
) -> None:
    await client.apply("orders", kind="queue", limit=LIMIT)
    peer = await Peer.connect(two[0].port)
    link = await peer.sender("orders")
    assert await peer.send(link, "hello") == ("accepted", "")
    assert await look_field(client, "orders", "leased_bytes") > 0
    two[0].kill9()
    began = time.monotonic()

    async def none_leased() -> bool:
        await client.store.reap(Address.of(client.namespace, "orders"))
        return await look_field(client, "orders", "leased_bytes") == 0

    await wait_until(none_leased, timeout=TTL + 1 + 3)
    print(f"credit is back after {time.monotonic() - began:.2f} s of a TTL of {TTL} s")
    peer.abort()


@pytest.mark.whole
async def test_what_the_clients_of_a_killed_node_held_goes_to_others(
    client: headgate.Client, two: list[NodeProcess]
) -> None:
    held: list[bytes] = []
    peer = await Peer.connect(two[0].port)
    sender = await peer.sender("orders")
    await peer.receiver("orders", lambda _, message, __: held.append(message))
    for number in range(20):
        assert await peer.send(sender, f"a/{number}") == ("accepted", "")
    await wait_until(lambda: len(held) == 20)
    two[0].kill9()
    other = Receiving(two[1:], "other", "orders")
    receiving = asyncio.create_task(other.run())
    await wait_until(lambda: len(set(other.got)) == 20, timeout=TTL + 10)
    receiving.cancel()
    await asyncio.gather(receiving, return_exceptions=True)
    await peer.close()
    await wait_until(lambda: _nothing(client), timeout=TTL + 10)


async def _nothing(client: headgate.Client) -> bool:
    return (await counts(client, "orders"))[0] == 0


async def test_a_drained_node_ends_within_its_bound_though_a_client_never_settles(
    client: headgate.Client, two: list[NodeProcess]
) -> None:
    held: list[bytes] = []
    peer = await Peer.connect(two[0].port)
    sender = await peer.sender("orders")
    await peer.receiver("orders", lambda _, message, __: held.append(message))
    await peer.send(sender, "a/0")
    await wait_until(lambda: held)
    two[0].signal(signal.SIGTERM)
    assert await asyncio.to_thread(two[0].ended, timeout=5 + 1 + 5 + 10) == 0
    assert [condition for condition, _ in peer.over] == ["amqp:connection:forced"]
    async with client.session("s") as session:
        message = await (await session.consumer("orders")).receive(timeout=10)
        assert message is not None
        await message.accept(confirm=True)
        assert message.delivery_count == 0, "given back untried"
    await peer.close()


async def test_a_drained_node_ends_as_soon_as_the_last_is_stored_and_settled(
    redis_url: str, client: headgate.Client
) -> None:
    with nodes(redis_url, client.namespace, 1, "--drain", 300) as (node,):
        held: list[Any] = []
        peer = await Peer.connect(node.port)
        sender = await peer.sender("orders")
        receiver = await peer.receiver("orders", lambda _, __, delivery: held.append(delivery))
        assert await peer.send(sender, "a/0") == ("accepted", "")
        await client.apply("tight", limit="100")
        tight = await peer.sender("tight", name="tight")
        assert await peer.send(tight, "a" * 50) == ("accepted", "")
        waits = await peer.put(tight, "b" * 50)
        await wait_until(lambda: held)
        node.signal(signal.SIGTERM)
        await wait_until(lambda: sender.credit == 0)
        await asyncio.sleep(0.3)  # what is under way is waited for by now
        async with client.session("s") as session:
            consumer = await session.consumer("tight")
            message = await consumer.receive(timeout=60)
            assert message is not None
            await message.accept(confirm=True)
            assert await waits == ("accepted", "")
        assert not peer.over, "it holds a message still"
        receiver.settle(held[0], "accepted")
        peer.flush_soon()
        assert await asyncio.to_thread(node.ended, timeout=60) == 0
        await peer.close()


@pytest.mark.parametrize("outage", [pytest.param("frozen", marks=pytest.mark.whole), "restarted"])
async def test_clients_do_not_notice_that_redis_was_away(outage: str) -> None:
    with RedisServer.start() as server, nodes(server.url, "outage", 2, *OPTIONS) as two:
        async with headgate.connect(server.url, namespace="outage") as client, Load(client, two) as load:
            if outage == "frozen":
                server.sigstop()
                at = time.monotonic()
                await wait_until(lambda: time.monotonic() > at + 3)
                server.sigcont()
            else:
                await asyncio.to_thread(server.restart)
            await load.moves()


async def test_a_node_ends_when_told_though_redis_is_away() -> None:
    with RedisServer.start() as server, nodes(server.url, "outage", 1, *OPTIONS) as one:
        peer = await Peer.connect(one[0].port)
        link = await peer.sender("orders")
        await peer.receiver("orders", lambda link, _, delivery: link.settle(delivery))
        assert await peer.send(link, "a/0") == ("accepted", "")
        server.kill9()
        one[0].signal(signal.SIGTERM)
        await asyncio.to_thread(one[0].ended, timeout=5 + 1 + 5 + 15)
        await peer.close()


@pytest.mark.soak
@pytest.mark.timeout(1200)
async def test_three_nodes_are_harmed_in_turn_for_minutes(client: headgate.Client, three: list[NodeProcess]) -> None:
    async with Load(client, three, pace=0.0) as load:
        began, turn = time.monotonic(), 0
        while time.monotonic() < began + 300:
            name = list(HARMS)[turn % 3]
            print(f"{time.monotonic() - began:.0f} s: node {turn % 2 + turn % 3 % 2} is {name}", flush=True)
            await HARMS[name](load, three[(turn * 2) % 3])
            turn += 1
    print(f"back after at most {load.ways_back()[-1]:.2f} s; {sum(len(s.accepted) for s in load.senders)} accepted")
