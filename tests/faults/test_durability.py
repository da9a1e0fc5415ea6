"""What is confirmed with a durability is on replicas, or on the disk; what is not in time is told, with numbers."""

import asyncio
import random
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager, suppress

import pytest
from redis.crc import key_slot

import headgate
from headgate.limiting import limiter as limiter_module
from headgate.redis.keys import Address, forwarder_id
from headgate_coordinator.links.endpoints import LinkEndpoint
from headgate_coordinator.links.removal import end_link
from headgate_coordinator.node.ends import sender
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from tests.amqp.client import Peer
from tests.faults.deployments import ask, is_master, pair, replicated, watched
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

GUARD = 60.0
pytestmark = [pytest.mark.one_server, pytest.mark.docker]


@contextmanager
def stopped(*servers: RedisServer) -> Iterator[None]:
    """Stop processes as they are; what was sent to them waits."""
    for server in servers:
        server.sigstop()
    try:
        yield
    finally:
        for server in servers:
            server.sigcont()


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[RedisServer, RedisServer]]:
    """A master and its replica."""
    with pair(appendonly="yes") as both:
        yield both


async def received(client: headgate.Client, session: headgate.Session, destination: str) -> list[str]:
    """Take all that is there."""
    consumer = await session.consumer(destination)
    found = list[str]()

    async def nothing_is_left() -> bool:
        while (message := await consumer.receive(timeout=0.2)) is not None:
            found.append(str(message.body))
            await message.accept()
        snapshot = await client.store.snapshot(Address.of(client.namespace, destination))
        return snapshot is not None and snapshot.fields["pending_messages"] == "0"

    await wait_until(nothing_is_left, timeout=GUARD)
    return found


async def test_what_no_replica_has_in_time_is_stored_and_told_with_numbers(
    servers: tuple[RedisServer, RedisServer], namespace: str
) -> None:
    master, replica = servers
    async with headgate.connect(master.url, namespace=namespace) as client, client.session("s") as session:
        producer = await session.producer("orders", durability="replicas:1")
        assert (await producer.send("first")).seq > 0
        with stopped(replica):
            with pytest.raises(headgate.NotDurable, match="acknowledged by 0 of 1 replicas within") as told:
                await producer.send("second", timeout=0.2)
            waiting = asyncio.create_task(producer.send("third", timeout=GUARD))
            await wait_until(lambda: producer._account.is_confirming, timeout=GUARD)
            plain = await session.producer("plain")  # nobody else waits for it
            await plain.send("at once")
        error = told.value
        assert (error.replicas, error.needed, error.destination) == (0, 1, "orders")
        assert error.receipt is not None
        assert error.receipt.seq > 0
        assert (await waiting).seq == error.receipt.seq + 1  # confirmed as soon as the replica is there again
        assert await received(client, session, "orders") == ["first", "second", "third"]


async def test_the_stronger_of_destination_and_producer_holds_and_changes_at_run_time(
    servers: tuple[RedisServer, RedisServer], namespace: str
) -> None:
    master, replica = servers
    async with headgate.connect(master.url, namespace=namespace) as client, client.session("s") as session:
        await client.apply("orders", kind="queue", durability="replicas:1")
        producer = await session.producer("orders", durability="memory")
        await producer.send("0")  # connections are made, and scripts loaded
        with stopped(replica):
            with pytest.raises(headgate.NotDurable):
                await producer.send("1", timeout=0.2)
            waiting = asyncio.create_task(producer.send("2", timeout=GUARD))
            await wait_until(lambda: producer._account.is_confirming, timeout=GUARD)
            await client.apply("orders", durability="default")
            await asyncio.wait_for(waiting, GUARD)
            await producer.send("3")


async def test_a_settlement_is_confirmed_once_replicas_have_it(
    servers: tuple[RedisServer, RedisServer], namespace: str
) -> None:
    master, replica = servers
    async with headgate.connect(master.url, namespace=namespace) as client, client.session("s") as session:
        producer = await session.producer("orders")
        for number in range(4):
            await producer.send(str(number))
        await client.apply("orders", durability="replicas:1")
        consumer = await session.consumer("orders")
        first, second, third, fourth = [await anext(consumer) for _ in range(4)]
        await first.accept(confirm=True)
        with stopped(replica):
            with pytest.raises(headgate.NotDurable, match="acknowledged by 0 of 1 replicas within 200 ms") as told:
                await second.accept(confirm=True, timeout=0.2)
            assert f"the settlement of message {second.id} of 'orders'" in str(told.value)
            await third.accept()  # nobody waits for it
            with pytest.raises(headgate.NotDurable):
                await consumer.flush(timeout=0.2)
            waiting = asyncio.create_task(fourth.accept(confirm=True, timeout=GUARD))
            await wait_until(lambda: consumer.held_messages == 0, timeout=GUARD)
            assert not waiting.done()
        await waiting
        await consumer.flush(timeout=GUARD)


async def test_a_gate_admits_once_replicas_know_of_the_grant(
    servers: tuple[RedisServer, RedisServer], namespace: str
) -> None:
    master, replica = servers
    async with headgate.connect(master.url, namespace=namespace) as client, client.session("s") as session:
        await client.apply("ports", kind="gate", limit=2, durability="replicas:1")
        gate = await session.gate("ports")
        async with gate.admit(), gate.admit():
            pass
        other = client.session("t")
        with stopped(replica):
            late = await other.gate("ports")
            assert late.try_admit() is None
            with pytest.raises(headgate.CreditTimeout, match="0 of 1 replicas have it"):
                async with late.admit(timeout=2.5):
                    pass
            waiting = asyncio.create_task(admitted(late))
        assert await asyncio.wait_for(waiting, GUARD) == 1
        await other.close()


async def test_whoever_asks_a_durable_gate_again_goes_on(
    servers: tuple[RedisServer, RedisServer], namespace: str
) -> None:
    """Fails where such a call goes in a round with others, which waits for no replica: it is the account's last."""
    async with (
        headgate.connect(servers[0].url, namespace=namespace) as client,
        client.session("s") as session,
        client.session("t", ttl=2 * GUARD) as other,
    ):
        await client.apply("ports", kind="gate", limit=1, durability="replicas:1")
        gate, late = await session.gate("ports"), await other.gate("ports")
        async with gate.admit():
            waiting = asyncio.create_task(admitted(late))

            async def has_asked_again() -> bool:
                waiters = (await client.explain("ports")).waiters
                return bool(waiters) and waiters[0].seconds > 2.5

            await wait_until(has_asked_again, timeout=GUARD)
        assert await asyncio.wait_for(waiting, GUARD) == 1
        assert await admitted(gate) == 1  # what it has in hand comes back


@pytest.mark.parametrize("over_node", [False, True], ids=["redis", "node"])
async def test_a_limiter_admits_once_replicas_know_of_the_hold(
    servers: tuple[RedisServer, RedisServer], namespace: str, monkeypatch: pytest.MonkeyPatch, over_node: bool
) -> None:
    """Also who stands in line meanwhile; keys of a gate take turns in such a limiter too."""
    master, replica = servers
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        client = await enter(headgate.connect(master.url, namespace=namespace))
        await client.apply("llm", kind="limiter", limits={"slots": {"at_once": 400}}, durability="replicas:1")
        of_keys = {"bytes": {"at_once": 20}}
        await client.apply("door", kind="gate", limit=40, key_limits=of_keys, durability="replicas:1")
        if over_node:
            node = Node(client, NodeOptions(port=0), Users.from_redis(client))
            await node.start()
            stack.push_async_callback(node.close)
            client = await enter(headgate.connect(f"amqp://{node.address}", namespace=namespace))
        session = await enter(client.session("s"))
        limiter, door = await session.limiter("llm"), await session.gate("door")

        async def admitted_to(admission: AbstractAsyncContextManager[object]) -> None:
            async with admission:
                pass

        await admitted_to(limiter.admit(slots=300))
        monkeypatch.setattr(limiter_module, "ATTEMPT_WITHIN", 0.3)
        with stopped(replica):
            with pytest.raises(headgate.CreditTimeout, match="not known in time to replicas") as told:
                await limiter.admit(slots=300, timeout=0.3)
            refused = await limiter.attempt(slots=1)
            assert isinstance(refused, headgate.Refused)
            assert (told.value.limit, refused.limit) == ("durability", "durability")
            many = [asyncio.create_task(admitted_to(limiter.admit(slots=150, timeout=GUARD))) for _ in range(20)]
            keyed = asyncio.create_task(admitted_to(door.admit(1, key="a", timeout=GUARD)))
            with pytest.raises(headgate.CreditTimeout):
                await limiter.admit(slots=300, timeout=0.3)
            assert [task for task in (*many, keyed) if task.done()] == []
        async with asyncio.timeout(GUARD):
            await asyncio.gather(*many, keyed)


async def test_over_a_node_what_is_accepted_is_on_replicas(
    servers: tuple[RedisServer, RedisServer], namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMQP clients and the SDK over nodes alike."""
    master, replica = servers
    async with AsyncExitStack() as stack:
        behind = await stack.enter_async_context(headgate.connect(master.url, namespace=namespace))
        node = Node(behind, NodeOptions(port=0), Users.from_redis(behind))
        await node.start()
        stack.push_async_callback(node.close)
        url = f"amqp://{node.address}"
        await behind.apply("orders", kind="queue", durability="replicas:1")
        peer = await Peer.connect(int(node.address.rpartition(":")[2]))
        stack.push_async_callback(peer.close)
        link = await peer.sender("orders")
        assert (await peer.send(link, "0"))[0] == "accepted"
        client = await stack.enter_async_context(headgate.connect(url, namespace=namespace))
        session = await stack.enter_async_context(client.session("s"))
        producer = await session.producer("payments", durability="replicas:1")
        await producer.send("1")
        gate = await session.gate("ports", durability="replicas:1")
        async with gate.admit():
            pass
        with stopped(replica):
            with pytest.raises(headgate.NotDurable, match="0 of 1 replicas"):
                await producer.send("2", timeout=0.3)
            with monkeypatch.context() as patched:
                patched.setattr(sender, "SAFE_WITHIN", 0.1)
                outcome, why = await peer.send(link, "1")
            waits = await peer.put(link, "2")
            line = await node.lines.get("orders", "queue")
            await wait_until(lambda: line.inflow.account.is_confirming, timeout=GUARD)
            assert (outcome, waits.done()) == ("rejected", False)
            assert "stored, not yet replicated: acknowledged by 0 of 1 replicas" in why
        assert (await waits)[0] == "accepted"
        assert await received(client, session, "payments") == ["1", "2"]


async def test_a_link_ends_once_every_replica_of_its_target_knows_what_it_committed(
    servers: tuple[RedisServer, RedisServer], namespace: str
) -> None:
    """Mutant: an `end_link` that does not wait."""
    master, replica = servers
    async with headgate.connect(master.url, namespace=namespace) as client:
        for name in ("here", "there"):
            await client.apply(name, kind="queue")
        source, target = (LinkEndpoint(client, Address.of(namespace, name)) for name in ("here", "there"))
        link = forwarder_id(namespace, "here>there")
        with stopped(replica), pytest.raises(headgate.CoordinatorUnavailable, match="0 of 1 replicas of the target"):
            await end_link(link, source, target, fence=2, ttl_ms=10_000)

        async def ended() -> bool:
            with suppress(headgate.CoordinatorUnavailable):
                await end_link(link, source, target, fence=3, ttl_ms=10_000)
                return True
            return False

        await wait_until(ended, timeout=GUARD)


async def admitted(gate: headgate.Gate) -> int:
    async with gate.admit(timeout=GUARD) as permit:
        return permit.size


async def test_a_disk_is_waited_for_where_redis_can_say_so(
    servers: tuple[RedisServer, RedisServer], namespace: str
) -> None:
    master, _ = servers
    async with headgate.connect(master.url, namespace=namespace) as client, client.session("s") as session:
        if client.store.server.version < (7, 2):
            with pytest.raises(headgate.PolicyError, match=r"Redis 7\.2 or newer, and this one is"):
                await session.producer("orders", durability="fsync")
            with pytest.raises(headgate.PolicyError, match=r"Redis 7\.2 or newer, and this one is"):
                await client.apply("orders", kind="queue", durability="fsync")
            return
        producer = await session.producer("orders", durability="fsync replicas:1")
        assert (await producer.send("1", timeout=GUARD)).seq > 0
        ask(master, "CONFIG", "SET", "appendonly", "no")
        try:
            with pytest.raises(headgate.NotDurable, match="appendonly is disabled"):
                await producer.send("2", timeout=GUARD)
        finally:
            ask(master, "CONFIG", "SET", "appendonly", "yes")


@pytest.mark.longest
@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 6))])
async def test_a_lossy_failover_loses_nothing_that_replicas_had_acknowledged(seed: int, namespace: str) -> None:
    """The replicas stand still and the master is killed; with an odd seed they are cut off before, and are behind."""
    with watched(replicas=2) as deployment:
        master = deployment.master
        replicas = [server for server in deployment.servers if server is not master]
        await _lossy(deployment.url, namespace, seed, master, replicas, lambda: deployment.master in replicas)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(1, 6))
async def test_a_lossy_failover_of_a_cluster_loses_nothing_that_replicas_had_acknowledged(
    seed: int, namespace: str
) -> None:
    """As above, with a master that takes nothing without its replica (`min-replicas`)."""
    with replicated(min_replicas_to_write="1", min_replicas_max_lag="3") as deployment:
        slot: int = key_slot(Address.of(namespace, "orders").key.encode())
        master, replica = deployment.pair_of(slot)
        await _lossy(deployment.url, namespace, seed, master, [replica], lambda: is_master(replica))


async def _lossy(
    url: str, namespace: str, seed: int, master: RedisServer, replicas: list[RedisServer], serves: Callable[[], bool]
) -> None:
    choose = random.Random(seed)
    acknowledged: list[str] = []
    async with (
        headgate.connect(url, namespace=namespace) as client,
        client.session("s", ttl=3 if seed == 1 else 10) as session,
    ):
        producer = await session.producer("orders", durability="replicas:1")

        async def send(number: str, timeout: float) -> None:
            with suppress(headgate.NotDurable, headgate.CoordinatorUnavailable, headgate.CreditTimeout):
                await producer.send(number, timeout=timeout)
                acknowledged.append(number)

        for number in range(choose.randrange(20, 60)):
            await send(f"a{number}", GUARD)
        before = len(acknowledged)
        with stopped(*replicas):
            if seed % 2:
                ask(master, "CLIENT", "KILL", "TYPE", "replica")
            await send("b0", 0.05)
            sends = {f"c{number}": await producer.post(f"c{number}", timeout=GUARD) for number in range(20)}
            with suppress(AssertionError):  # a master that takes nothing without its replicas leaves some in line
                await wait_until(
                    lambda: len(producer._account.outbox) == 0, timeout=2.5, description="all is at the master"
                )
            assert len(acknowledged) == before
            master.kill9()
        await wait_until(serves, timeout=GUARD)
        for replica in replicas:  # one that serves has no replica of its own now, and would take nothing
            ask(replica, "CONFIG", "SET", "min-replicas-to-write", 0)
        for name, told in sends.items():
            with suppress(headgate.NotDurable, headgate.CoordinatorUnavailable, headgate.CreditTimeout, TimeoutError):
                await asyncio.wait_for(told, GUARD if len(replicas) > 1 else 0.1)
                acknowledged.append(name)
        if len(replicas) > 1:  # else nobody is left to acknowledge it
            await send("last", GUARD)
            assert "last" in acknowledged
        found = await received(client, session, "orders")
    assert set(acknowledged) <= set(found)
    assert len(found) == len(set(found))
    if seed % 2 and len(replicas) > 1:  # without a replica the master may have refused it, so it went to the next one
        assert "b0" not in found, "there was something to lose"
