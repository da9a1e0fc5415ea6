"""The slots of a cluster: which nodes are asked for them."""

import gc
from typing import Any

import pytest
from redis.asyncio.cluster import ClusterNode
from redis.crc import key_slot

from headgate.redis.failover import open_map, read_map
from headgate.redis.server import Server
from headgate.redis.url import parse_url


@pytest.mark.filterwarnings("error")
async def test_where_no_node_of_the_map_answers_those_of_the_url_are_asked_and_closed(cluster_url: str) -> None:
    """Mutant: redis-py is given them to ask, and leaves the connection open."""
    gc.freeze()  # to look through all that the tests have would take half a second
    url = parse_url(cluster_url)
    cluster = await open_map(url)
    manager: Any = cluster.nodes_manager
    before = dict(manager.startup_nodes)
    manager.startup_nodes = {"127.0.0.1:1": ClusterNode("127.0.0.1", 1)}
    await read_map(cluster, url.hosts, None)
    assert set(manager.startup_nodes) == set(before)
    for node in before.values():
        await node.disconnect()
    await manager.aclose()
    await manager.aclose("startup_nodes")
    del cluster, manager, before, node
    gc.collect()


async def test_reads_of_many_keys_follow_each_slot_that_has_moved(cluster_url: str) -> None:
    """Mutant: the answers that say where slots are now are what is returned, for as long as nobody calls a script."""
    keys = [f"{{slots/{number}}}".encode() for number in range(12)]
    server = Server(parse_url(cluster_url))
    await server.open()
    try:
        manager: Any = server._cluster.nodes_manager  # type: ignore[union-attr]  # it is a cluster
        masters = server._cluster.get_primaries()  # type: ignore[union-attr]
        for key in keys:
            slot = key_slot(key)
            there = manager.slots_cache[slot][0]
            manager.slots_cache[slot] = [next(node for node in masters if node.name != there.name)]
        assert await server.burst([(key, ("EXISTS", key)) for key in keys]) == [0] * len(keys)
    finally:
        await server.close()
