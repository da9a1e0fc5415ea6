"""Stories of an SDK, told of one that comes to a node with users, as one who may all at every destination.

Nobody here manages the namespace: sessions are the user's own, and settings, topics, pools and dead letters go the ways
that a node keeps for users. `make test` has a third of them.
"""

import inspect
from collections.abc import AsyncIterator
from types import CodeType, ModuleType

import pytest

import headgate
from headgate_coordinator.node.node import Node
from tests.remote.grants import B, C, M, P
from tests.remote.people import node_with, sdk_as
from tests.sdk.consuming import test_consumer, test_dead_letters, test_slow, test_wildcards, test_windows
from tests.sdk.credit import test_on_blocked
from tests.sdk.credit.test_on_blocked import full  # noqa: F401 -- a fixture of its stories
from tests.sdk.limiting import test_bucket, test_gates
from tests.sdk.producing import test_expiry, test_producer
from tests.support.extent import share_of

pytestmark = pytest.mark.one_server
_OVER_A_NODE = {"client", "other"}
_NOT_HERE = {"server", "cluster", "cluster_url", "monkeypatch", "scene"}
_BEHIND = {"command", "apply_policy", "store", "set_pool", "session_id", "pools"}
"""Stories with these look behind the SDK, or do what needs who manages the namespace."""
_OTHERS_SESSIONS = {
    "test_the_slots_that_redis_gives_two_clients_keep_the_rate_in_every_window",
    "test_a_subscription_whose_consumer_never_comes_goes_with_its_lease",
}
"""Stories that act for sessions of their own making."""


@pytest.fixture
async def node(redis_url: str, cleanup_namespace: str) -> AsyncIterator[Node]:
    people = {"app": {">": {P, C, B, M}}, "worker": {">": {P, C, B, M}}}
    async with node_with(redis_url, cleanup_namespace, people) as node:
        yield node


@pytest.fixture
async def client(node: Node) -> AsyncIterator[headgate.Client]:
    async with sdk_as(node, "app") as client:
        yield client


@pytest.fixture
async def other(node: Node) -> AsyncIterator[headgate.Client]:
    """Another user."""
    async with sdk_as(node, "worker") as client:
        yield client


def named(code: CodeType) -> set[str]:
    """Return what a function names, with those inside it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return {*code.co_names, *code.co_varnames, *code.co_cellvars, *code.co_freevars}.union(*map(named, inner))


def _stories(module: ModuleType) -> dict[str, object]:
    name = module.__name__.rpartition("test_")[2]
    return {
        f"test_{name}_{story.removeprefix('test_')}": function
        for story, function in vars(module).items()
        if story.startswith("test_")
        and story not in _OTHERS_SESSIONS
        and inspect.isfunction(function)
        and (asks := set(inspect.signature(function).parameters)) & _OVER_A_NODE
        and not asks & _NOT_HERE
        and not named(function.__code__) & _BEHIND
    }


for _module in (
    test_bucket,
    test_consumer,
    test_dead_letters,
    test_expiry,
    test_gates,
    test_on_blocked,
    test_producer,
    test_slow,
    test_wildcards,
    test_windows,
):
    globals().update(share_of(_stories(_module).items(), 8))
