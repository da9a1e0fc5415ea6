"""What fails beside masters: a disk, a line, a slot that is left open; and what is changed while they do."""

import asyncio
import shutil
import subprocess
from collections.abc import Iterator

import pytest
from redis.crc import key_slot

import headgate
from headgate.redis.keys import Address
from tests.faults.deployments import ask, at
from tests.faults.traffic import GUARD, Holder, Inside, Sender
from tests.support.cluster import RedisCluster3
from tests.support.faultproxy import FaultProxy
from tests.support.servers import RedisServer
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.one_server, pytest.mark.docker]
NAMES = ("others", "more")


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer.start(port=0, persist=False) as server:
        yield server


async def test_a_redis_that_cannot_write_its_file_refuses_and_goes_on_once_it_can(
    server: RedisServer, cleanup_namespace: str
) -> None:
    """As with a full disk: a snapshot fails, and Redis takes nothing any more until one succeeds."""
    in_the_way = server.directory / "dump.rdb"
    (in_the_way / "it").mkdir(parents=True)
    async with (
        headgate.connect(server.url, namespace=cleanup_namespace) as client,
        client.session() as session,
        Sender(await session.producer("orders")) as sender,
    ):
        await sender.goes_on()
        producer = await session.producer("others")
        await producer.send("before")
        ask(server, "CONFIG", "SET", "save", "3600 1000000")
        ask(server, "BGSAVE")
        wait_for(lambda: ask(server, "INFO", "persistence")["rdb_last_bgsave_status"] == "err", timeout=GUARD)
        with pytest.raises(headgate.CoordinatorUnavailable, match="MISCONF"):
            await client.apply("others", limit="1 MiB")
        shutil.rmtree(in_the_way)
        ask(server, "BGSAVE")
        await sender.goes_on()
        await sender.end()
        assert (await client.recount("orders")).stored[1] - len(sender.sent) in (0, 1), "the last may lack its receipt"
        await client.remove("orders")
        await client.remove("others")


@pytest.mark.usefixtures("patient")  # it is not about how slow a line may be
async def test_a_slow_line_costs_time_and_admits_no_more(server: RedisServer, cleanup_namespace: str) -> None:
    """200 ms each way: what is under way is counted, so the limit holds."""
    async with FaultProxy(server.url) as proxy, headgate.connect(proxy.url, namespace=cleanup_namespace) as client:
        await client.apply("door", kind="gate", limit=4)
        proxy.delay(0.2)
        inside = Inside()
        async with client.session("a", ttl=5.0) as one, client.session("b", ttl=5.0) as other:
            gates = [await one.gate("door"), await other.gate("door")]
            holders = [Holder(gate, inside) for gate in gates for _ in range(4)]
            try:
                await asyncio.gather(*(holder.goes_on(more=3) for holder in holders))
            finally:
                for holder in holders:
                    await holder.end()
                proxy.pass_through()
        assert inside.most <= 4


async def test_a_slot_that_is_left_open_is_told_with_what_ends_it() -> None:
    """Its destinations stand still, the others go on, and all goes on once it is closed."""
    with RedisCluster3.start() as cluster:
        async with headgate.connect(cluster.url) as client, client.session("s") as session:
            producer = await session.producer("orders")
            await producer.send("before")
            slot = _slot(client, "orders")
            source = cluster.nodes[min(2, slot * 3 // 16384)]
            target = next(node for node in cluster.nodes if node is not source)
            ids = {node.url: ask(node, "CLUSTER", "MYID") for node in (source, target)}
            ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source.url])
            ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", ids[target.url])
            with pytest.raises(headgate.CoordinatorUnavailable, match="--cluster fix"):
                await client.apply("orders", limit="1 MiB")
            waiting = asyncio.create_task(producer.send("while it is open", timeout=GUARD))
            others = await session.producer(next(name for name in NAMES if _slot(client, name) != slot))
            await others.send("goes on")
            assert not waiting.done()
            await asyncio.to_thread(_fix, source, target, slot)
            await waiting
            await producer.send("after", timeout=GUARD)


def _slot(client: headgate.Client, name: str) -> int:
    slot: int = key_slot(Address.of(client.namespace, name).key.encode())
    return slot


def _fix(source: RedisServer, target: RedisServer, slot: int) -> None:
    """Do what the error says, where there is a `redis-cli`."""
    if (command := shutil.which("redis-cli")) is None:
        for node in (target, source):
            ask(node, "CLUSTER", "SETSLOT", slot, "STABLE")
        return
    host, port = at(source)
    done = subprocess.run(
        [command, "--cluster", "fix", f"{host}:{port}", "--cluster-yes"],
        capture_output=True,
        timeout=GUARD,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()[-2000:]
