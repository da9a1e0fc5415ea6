"""The slots of a cluster: which nodes are asked for them."""

import gc
from typing import Any

import pytest
from redis.asyncio.cluster import ClusterNode

from headgate.redis.failover import open_map, read_map
from headgate.redis.url import parse_url


@pytest.mark.filterwarnings("error")
async def test_where_no_node_of_the_map_answers_those_of_the_url_are_asked_and_closed(cluster_url: str) -> None:
    """Mutant: redis-py is given them to ask, and leaves the connection open."""
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
