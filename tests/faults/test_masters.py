"""Clients follow the server in charge, through failovers of a master that lives, hangs or dies; all defaults."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, suppress
from typing import Any, Self

import pytest
import redis
from redis.crc import key_slot

import headgate
from headgate._util.reconnect import until_answered
from headgate.redis.keys import Address
from tests.faults.deployments import Replicated, Watched, at, is_linked, is_master, watched
from tests.faults.traffic import Holder, Inside
from tests.links.forwarding.test_failovers import AT_ONCE, Pair, replica_of
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

GUARD = 60.0
"""Seconds after which a test gives up; what is measured is in `bench`."""
pytestmark = [pytest.mark.one_server, pytest.mark.docker]


class Sender:
    """Sends numbered messages one after another, and remembers which have their receipt."""

    def __init__(self, producer: headgate.Producer) -> None:
        self._producer = producer
        self.sent: list[int] = []
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        number = 0
        while True:
            number += 1
            with suppress(headgate.CreditTimeout, headgate.CoordinatorUnavailable):
                await self._producer.send(str(number), timeout=1.0)
                self.sent.append(number)
            await asyncio.sleep(0.005)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def goes_on(self) -> None:
        """Wait until a message that is sent from now on has its receipt."""
        count = len(self.sent)
        await wait_until(lambda: len(self.sent) > count + 1, timeout=GUARD, description="sends go on")


@pytest.fixture
def sentinels() -> Iterator[Watched]:
    with watched() as deployment:
        yield deployment


async def seen_by(client: headgate.Client) -> int:
    """Return the port of the server that answers a client."""
    told = await client.store.server.everywhere("CONFIG", "GET", "port")
    return int(told[0][1])


async def test_clients_leave_a_living_master_at_once_when_the_sentinels_do(sentinels: Watched) -> None:
    """It takes them eleven seconds to demote it; whoever stayed would lose what was acknowledged there."""
    async with headgate.connect(sentinels.url) as client, client.session("s") as session, AsyncExitStack() as stack:
        sender = await stack.enter_async_context(Sender(await session.producer("orders")))
        await sender.goes_on()
        before = sentinels.master
        sentinels.fail_over()
        await wait_until(lambda: sentinels.master is not before, timeout=GUARD)

        async def moved() -> bool:
            with suppress(headgate.CoordinatorUnavailable):  # it is on its way
                return await seen_by(client) != at(before)[1]
            return False

        await wait_until(moved, timeout=GUARD, description="the client is at the new master")
        assert is_master(before), "it was not yet demoted, so nothing but the Sentinels told the client"
        await sender.goes_on()


async def test_a_master_that_hung_and_wakes_is_not_believed(sentinels: Watched) -> None:
    """Idle connections of busier times lead to it, and it answers again, as a master, until it is demoted."""
    async with headgate.connect(sentinels.url) as client, client.session("s") as session, AsyncExitStack() as stack:
        many = until_answered(lambda _: None)  # a busy machine is slow
        await asyncio.gather(*(many(client.destinations) for _ in range(20)))  # as many connections
        wake_ups, heard = client.store.server.wake_ups(), asyncio.Event()
        stack.push_async_callback(wake_ups.close)
        await wake_ups.subscribe(("hints",), lambda words: heard.set())
        sender = await stack.enter_async_context(Sender(await session.producer("orders")))
        await sender.goes_on()
        before = sentinels.master
        before.sigstop()
        try:
            await wait_until(lambda: sentinels.master is not before, timeout=GUARD)
            await sender.goes_on()
            heard.clear()
            with redis.Redis.from_url(sentinels.master.url) as master:
                await wait_until(lambda: master.publish("hints", "word") and heard.is_set(), timeout=GUARD)
        finally:
            before.sigcont()
        assert await seen_by(client) != at(before)[1]
        await sender.goes_on()
        assert await seen_by(client) != at(before)[1]


async def test_a_replica_is_never_taken_for_the_master(sentinels: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks a Sentinel that is behind gets the address of what is a replica by now."""
    replica = next(server for server in sentinels.servers if server is not sentinels.master)
    async with headgate.connect(sentinels.url) as client:
        server: Any = client.store.server

        async def behind() -> tuple[str, int]:
            return at(replica)

        monkeypatch.setattr(server._masters_of, "find", behind)
        await server._lanes["only"].drop()
        with pytest.raises(headgate.CoordinatorUnavailable, match="replica"):
            await client.policy()
        monkeypatch.undo()
        await wait_until(client.policy, timeout=GUARD)


async def test_a_cluster_leaves_a_master_that_hangs(cluster: Replicated) -> None:
    async with headgate.connect(cluster.url) as client, client.session("s") as session, AsyncExitStack() as stack:
        await client.apply("orders")
        orders = Address.of(client.namespace, "orders")
        master, replica = cluster.pair_of(key_slot(orders.key.encode()))
        sender = await stack.enter_async_context(Sender(await session.producer("orders")))
        await sender.goes_on()
        master.sigstop()
        try:
            with pytest.raises(headgate.CoordinatorUnavailable, match=f":{at(master)[1]} of "):  # it says which one
                await client.store.snapshot(orders)
            await wait_until(lambda: is_master(replica), timeout=GUARD, description="the replica is promoted")
            await sender.goes_on()  # while the master hangs: nothing else would end the wait
        finally:
            master.sigcont()
        await sender.goes_on()


async def test_a_cluster_is_reached_by_any_of_its_nodes(cluster: Replicated) -> None:
    cluster.masters[0].kill9()
    async with headgate.connect(cluster.url) as client:
        assert client.store.server.session_prefix == ""  # it is connected

        async def served() -> bool:
            with suppress(headgate.CoordinatorUnavailable):
                return await client.destinations() == []
            return False

        await wait_until(served, timeout=GUARD, description="the replica of the one that was killed serves")


async def test_who_held_nothing_at_a_failover_is_admitted_with_what_others_give_back() -> None:
    """The longest lease lasts longer than the test waits: only permits that were claimed can be what it gets."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        primary = stack.enter_context(RedisServer.start(port=0, persist=False, config=AT_ONCE))
        pair = Pair(primary, stack.enter_context(replica_of(primary)))
        await wait_until(lambda: is_linked(pair.replica), timeout=GUARD)
        await enter(pair.proxy)
        clients = [await enter(headgate.connect(pair.proxy.url)) for _ in range(2)]
        await clients[0].apply("door", kind="gate", limit=4)
        gates = [await (await enter(client.session(ttl=10 * GUARD))).gate("door") for client in clients]
        inside = Inside()
        holders = [await enter(Holder(gates[0], inside)) for _ in range(4)]
        await asyncio.gather(*(holder.goes_on() for holder in holders))
        pair.part()
        pair.fail_over()
        others = [await enter(Holder(gates[1], inside)) for _ in range(4)]
        await asyncio.gather(*(holder.goes_on() for holder in (*holders, *others)))
        assert inside.most <= 4
