"""The registry of nodes as nodes use it."""

import asyncio
from dataclasses import replace

import pytest

import headgate
from headgate.redis.stores.nodes import NodeStore
from headgate_coordinator.fleet.node_facts import BridgeFacts, Counters, NodeFacts
from headgate_coordinator.fleet.registry import NodeRegistry
from tests.admin.standin import StandIn, link
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until


async def test_a_node_says_how_it_is(client: headgate.Client) -> None:
    node, registry = StandIn(connections=2, links=(link(1), link(2))), NodeRegistry(client)
    await registry.beat(node.facts(), 10.0)
    node.counters = Counters({"from client": 300, "to client": 100}, {}, {})
    await registry.beat(node.facts(), 12.0)
    (entry,) = await NodeRegistry(client).list()
    assert (entry.id, entry.address, entry.admin) == (node.id, node.address, node.admin)
    assert (entry.connections, entry.links, entry.messages_per_second) == (2, 2, 200.0)
    assert entry.started == node.started
    assert entry.silent >= 0
    await registry.leave(node.id)
    assert await registry.list() == []


async def test_a_node_says_how_fast_its_links_forward(client: headgate.Client) -> None:
    """Mutant: the rate is of all that was ever forwarded."""
    node, registry = StandIn(), NodeRegistry(client)
    for now, count in ((10.0, 100), (12.0, 300)):
        node.bridges = (
            BridgeFacts("a>b", "a", "b", works=True, messages=count),
            BridgeFacts("c>d", "c", "d", works=True, messages=7),
        )
        await registry.beat(node.facts(), now)
    (entry,) = await registry.list()
    assert entry.rates == {"a>b": 100.0}, "those that moved"
    await registry.leave(node.id)


async def test_nodes_are_by_id_and_those_of_another_namespace_are_not_there(
    client: headgate.Client, url: str, namespace: str
) -> None:
    registry = NodeRegistry(client)
    for name in ("n2", "n1"):
        await registry.beat(replace(StandIn().facts(), id=name), 1.0)
    assert [entry.id for entry in await registry.list()] == ["n1", "n2"]
    async with headgate.connect(url, namespace=f"{namespace}-b") as other:
        assert await NodeRegistry(other).list() == []


async def test_it_is_kept_there_through_an_outage_of_redis(namespace: str) -> None:
    with RedisServer.start() as server:
        async with headgate.connect(server.url, namespace=namespace) as client:
            registry = NodeRegistry(client)
            keeping = asyncio.create_task(registry.keep(StandIn()))

            async def there() -> bool:
                try:
                    return [entry.id for entry in await registry.list()] == ["node~1"]
                except headgate.CoordinatorUnavailable:
                    return False

            await wait_until(there)
            server.restart(empty=True)
            await wait_until(there)
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)


async def test_an_outage_is_logged_as_it_begins_and_as_it_ends(
    client: headgate.Client, caplog: pytest.LogCaptureFixture
) -> None:
    """Mutants: nothing is logged; a line for each beat; the next outage is not told of."""
    fates = iter(["ok", "away", "away", "ok", "away", "ok"])

    class Registry(NodeRegistry):
        async def beat(self, facts: NodeFacts, now: float) -> list[int]:
            if next(fates, "ok") == "away":
                raise headgate.CoordinatorUnavailable("Redis does not answer")
            return []

    keeping = asyncio.create_task(Registry(client, beat=0.001).keep(StandIn()))
    with caplog.at_level("WARNING", "headgate"):
        await wait_until(lambda: len(caplog.messages) == 4)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    lost, again = (
        "no heartbeat of the node comes through: Redis",
        "heartbeats of the node come through again, after 0 s",
    )
    assert [text[: len(lost)] for text in caplog.messages] == [lost, again[: len(lost)]] * 2


async def test_one_that_missed_three_beats_is_gone(client: headgate.Client) -> None:
    registry = NodeRegistry(client, beat=0.05)
    await registry.beat(StandIn().facts(), 1.0)

    async def gone() -> bool:
        return await registry.list() == []

    await wait_until(gone)


async def test_what_a_newer_node_says_more_is_left_out(client: headgate.Client) -> None:
    registry = NodeRegistry(client)
    await registry.beat(StandIn().facts(), 1.0)
    store = NodeStore(client.store.server, client.namespace, 3000)
    (beat,) = await store.there()
    await store.beat(beat.node, beat.entry.replace("{", '{"colour":"red",', 1))
    assert (await registry.list())[0].id == "node~1"
