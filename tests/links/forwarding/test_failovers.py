"""The source, or the target, fails over to a replica that is behind, while workers die."""

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

import headgate
from tests.links.chaos import TARGET_LIMIT, Breeder, at_rest, look
from tests.links.worker_process import Plan
from tests.support.faultproxy import FaultProxy
from tests.support.servers import RedisServer, available_servers, newest_server
from tests.support.shared import SharedServers
from tests.support.waiting import wait_for, wait_until

AT_ONCE = {"repl-diskless-sync-delay": "0"}
"""A replica is served when it asks, not when others may have come too."""


@dataclass
class Pair:
    """A server at an address of its own, and a replica that may take its place there."""

    primary: RedisServer
    replica: RedisServer
    proxy: FaultProxy = field(init=False)

    def __post_init__(self) -> None:
        self.proxy = FaultProxy(self.primary.url)

    @property
    def barriers(self) -> int:
        """How often somebody asked how many replicas have what there is."""
        with redis.Redis.from_url(self.primary.url) as primary:
            told: Any = primary.info("commandstats")
        return int(told.get("cmdstat_wait", {"calls": 0})["calls"])

    def part(self) -> None:
        """Have the replica hear nothing any more, once it has all there is."""
        with redis.Redis.from_url(self.primary.url) as primary, redis.Redis.from_url(self.replica.url) as replica:
            primary.set("parted", "1")
            wait_for(lambda: replica.get("parted"))
            replica.replicaof("NO", "ONE")
            for server in (primary, replica):
                server.delete("parted")

    def fail_over(self) -> None:
        """Have it take the primary's place."""
        self.primary.kill9()
        self.proxy._upstream = urlsplit(self.replica.url)
        self.proxy.reset()


@pytest.fixture
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        primary = stack.enter_context(RedisServer.start(port=0, persist=False, config=AT_ONCE))
        yield Pair(primary, stack.enter_context(replica_of(primary)))


def replica_of(server: RedisServer) -> RedisServer:
    at = urlsplit(server.url)
    return RedisServer.start(port=0, persist=False, config={"replicaof": f"{at.hostname} {at.port}", **AT_ONCE})


async def send(client: headgate.Client, numbers: range) -> None:
    async with client.session(ttl=2.0) as session:
        producer = await session.producer("orders")
        for number in numbers:
            await producer.send(f"{number} ".ljust(30, "."), timeout=30)


@dataclass
class Consumer:
    """Takes what comes to the target, while it is let."""

    client: headgate.Client
    got: list[int] = field(default_factory=list)
    reads: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        async with self.client.session(ttl=2.0) as session:
            consumer = await session.consumer("orders", window=2)
            while True:
                await self.reads.wait()
                if message := await consumer.receive(timeout=60):
                    self.got.append(int(str(message.body).split()[0]))
                    await message.accept()

    async def has(self, number: int) -> None:
        await wait_until(lambda: number in self.got, timeout=120, description=f"message {number}")


@pytest.mark.whole
async def test_a_source_that_fails_over_to_a_replica_that_is_behind_doubles_nothing_and_loses_nothing_new(
    pair: Pair, shared_servers: SharedServers, cleanup_namespace: str
) -> None:
    """Mutant: `lib/destination` without new numbers after a failover; then what is sent after it is taken for known."""
    there_url = shared_servers.standalone(available_servers()[0])
    async with (
        pair.proxy,
        headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as here,
        headgate.connect(there_url, namespace=cleanup_namespace) as there,
    ):
        here.parts.registry._ttl_ms = 1000
        await here.apply("orders", kind="queue")
        await there.apply("orders", kind="queue", limit=TARGET_LIMIT)
        consumer = Consumer(there)
        task = asyncio.create_task(consumer.run())

        async def blocked() -> bool:
            return (await look(there))["blocked"] == "1"

        async with Breeder(Plan(pair.proxy.url, there_url, cleanup_namespace, 100, 7)):
            await send(here, range(100))
            await wait_until(blocked, timeout=120, description="the rest of the first hundred is at the source")
            pair.part()
            consumer.reads.set()
            await consumer.has(99)
            await at_rest(here)
            consumer.reads.clear()
            await send(here, range(100, 200))
            await wait_until(blocked, timeout=120, description="the rest of the second hundred is at the primary alone")
            pair.fail_over()
            consumer.reads.set()
            await send(here, range(200, 300))
            await consumer.has(299)
            await at_rest(here)
        await at_rest(there)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert all(one < later for one, later in itertools.pairwise(consumer.got)), "once, and in order"
    lost = set(range(300)) - set(consumer.got)
    assert lost
    assert lost <= set(range(100, 200)), "what the failover lost by itself"


@pytest.mark.longest
async def test_a_target_that_fails_over_to_a_replica_that_is_behind_loses_and_doubles_nothing(
    pair: Pair, shared_servers: SharedServers, cleanup_namespace: str
) -> None:
    """Mutant: a `Forwarder` that takes for secured what is committed (`_secure`)."""
    here_url = shared_servers.standalone(newest_server())
    async with (
        pair.proxy,
        headgate.connect(here_url, namespace=cleanup_namespace) as here,
        headgate.connect(pair.proxy.url, namespace=cleanup_namespace) as there,
    ):
        there.parts.registry._ttl_ms = 1000
        await here.apply("orders", kind="queue")
        await there.apply("orders", kind="queue")

        async def stored() -> int:
            return int((await look(there))["pending_messages"])

        async with Breeder(Plan(here_url, pair.proxy.url, cleanup_namespace, 8, 8, replicas=1)) as breeder:
            await send(here, range(100))
            await at_rest(here)
            pair.part()
            await send(here, range(100, 200))

            async def committed() -> bool:
                return await stored() == 200

            await wait_until(committed, timeout=120)
            await asyncio.wait_for(breeder.lasts.wait(), 30)
            asked = pair.barriers

            async def answered() -> bool:
                return pair.barriers > asked + 1 or (await look(here))["pending_messages"] == "0"

            await wait_until(answered, description="a barrier that was answered")
            assert (await look(here))["pending_messages"] == "100", "no replica has them"
            pair.fail_over()
            assert await stored() == 100
            with replica_of(pair.replica):
                await send(here, range(200, 300))
                await at_rest(here)
                consumer = Consumer(there)
                consumer.reads.set()
                task = asyncio.create_task(consumer.run())
                await consumer.has(299)
                await at_rest(there)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
    assert consumer.got == list(range(300))
