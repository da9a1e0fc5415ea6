"""The recipes of docs/limits.md print the same over nodes, on the Redis of unit tests, and in threads."""

import contextlib
import io
from collections.abc import AsyncIterator
from typing import Any

import pytest

import headgate
import headgate.sync
import headgate.testing
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from tests.docs.test_readme import assert_shown, programs, typed
from tests.docs.threaded import ASYNCIO, threaded

PAGE = "docs/limits.md"


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[str]:
    """The address of a node in this process, for everybody."""
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as behind:
        node = Node(behind, NodeOptions(port=0), Users.from_redis(behind))
        await node.start()
        try:
            yield f"amqp://{node.address}"
        finally:
            await node.close()


async def _run(names: dict[str, Any]) -> None:
    for line, source, shown in programs(PAGE):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            for code in typed(source, f"{PAGE}, from line {line}"):
                if (result := eval(code, names)) is not None:
                    await result
        assert_shown(output.getvalue(), shown)


async def test_over_a_node(node: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.displayhook", lambda _: None)
    over = headgate.connect(node, namespace=cleanup_namespace)
    monkeypatch.setattr(headgate, "connect", lambda **_: over)
    await _run({"__name__": "guide"})


async def test_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.displayhook", lambda _: None)
    monkeypatch.setattr(headgate, "connect", headgate.testing.client)
    await _run({"__name__": "guide"})


def test_in_threads(redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = headgate.sync.connect(redis_url, namespace=cleanup_namespace)
    monkeypatch.setattr(headgate, "connect", lambda **_: client)
    names: dict[str, Any] = {"__name__": "guide", "asyncio": ASYNCIO}
    for line, source, shown in programs(PAGE):
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(threaded(source, f"{PAGE}, from line {line}"), names)
        assert_shown(output.getvalue(), shown)
