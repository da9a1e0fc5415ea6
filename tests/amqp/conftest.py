"""Nodes on a Redis of the tests, and clients that are not ours."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from tests.amqp.nodes import NodeProcess
from tests.amqp.rhea_client import Rhea
from tests.sdk.conftest import client, other

__all__ = ["client", "other"]

StartNode = Callable[..., NodeProcess]


@pytest.fixture
def start_node(redis_url: str, cleanup_namespace: str, tmp_path: Path) -> Iterator[StartNode]:
    """Starts nodes of the test's namespace, with options of the command; they are stopped after the test."""
    nodes: list[NodeProcess] = []

    def start(*options: str) -> NodeProcess:
        nodes.append(NodeProcess(redis_url, cleanup_namespace, tmp_path / f"node{len(nodes)}.log", *options))
        return nodes[-1].ready()

    yield start
    failures = []
    for node in nodes:
        try:
            node.stop()
        except pytest.fail.Exception as failure:
            failures.append(str(failure))
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


@pytest.fixture
def node(start_node: StartNode) -> NodeProcess:
    return start_node()


@pytest.fixture
async def rhea() -> AsyncIterator[Rhea]:
    async with await Rhea.start() as rhea:
        yield rhea


@pytest.fixture
async def rhea_there(node: NodeProcess, rhea: Rhea) -> Rhea:
    """rhea, connected to the node as `c`."""
    await rhea.connect("c", node.port)
    return rhea
