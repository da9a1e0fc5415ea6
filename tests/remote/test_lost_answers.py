"""P5 over a node on bad lines: answers are lost, before the node or behind it, and nothing is stored twice."""

import inspect
from collections.abc import AsyncIterator

import pytest

import headgate
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from tests.sdk.session import test_lost_replies
from tests.support.faultproxy import FaultProxy

pytestmark = pytest.mark.one_server


@pytest.fixture(params=["between node and Redis", "between client and node"])
async def proxy(request: pytest.FixtureRequest, redis_url: str, node: Node) -> AsyncIterator[FaultProxy]:
    where = redis_url if "Redis" in request.param else f"redis://{node.address}"
    async with FaultProxy(where) as proxy:
        yield proxy


@pytest.fixture
async def shaky(
    request: pytest.FixtureRequest, proxy: FaultProxy, cleanup_namespace: str
) -> AsyncIterator[headgate.Client]:
    """A client of a node, with the proxy on its way."""
    if "client and node" in request.node.name:
        url = proxy.url.replace("redis://", "amqp://").rpartition("/")[0]
        async with headgate.connect(url, namespace=cleanup_namespace) as client:
            yield client
        return
    async with headgate.connect(proxy.url, namespace=cleanup_namespace) as behind:
        node = Node(behind, NodeOptions(port=0), Users.from_redis(behind))
        await node.start()
        async with headgate.connect(f"amqp://{node.address}", namespace=cleanup_namespace) as client:
            yield client
        await node.close()


for _name, _story in vars(test_lost_replies).items():
    if _name.startswith("test_") and {"shaky", "proxy"} <= set(inspect.signature(_story).parameters):
        globals()[_name] = _story
