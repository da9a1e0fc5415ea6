"""The stories that tests/sdk tells of a client on Redis, told again of one that comes through a node.

They are the same functions: here, the fixtures `client`, `other` and `scene` lead over AMQP. Where a story has a client
of its own besides, that one sits on Redis directly, and both share the limits. `make test` has a third of them.
"""

import inspect
from types import ModuleType

import pytest

from tests.sdk.consuming import (
    test_browse,
    test_consumer,
    test_dead_letters,
    test_rates_of_delivery,
    test_slow,
    test_waiting_beside,
    test_wildcards,
    test_windows,
)
from tests.sdk.consuming.test_waiting_beside import sessions  # noqa: F401 -- the same
from tests.sdk.credit import test_blocked, test_on_blocked, test_rules
from tests.sdk.credit.test_on_blocked import full  # noqa: F401 -- a fixture of its stories
from tests.sdk.explain import test_explain
from tests.sdk.limiting import test_bands, test_bucket, test_gates, test_limiter
from tests.sdk.namespace import test_pools
from tests.sdk.producing import test_expiry, test_names, test_producer, test_when_full
from tests.support.extent import share_of

pytestmark = pytest.mark.one_server

_OVER_A_NODE = {"client", "other", "scene", "full", "sessions"}
_NOT_HERE = {"server", "cluster", "cluster_url", "monkeypatch"}
"""Stories with these look behind the connection to Redis; so do those of :data:`_SAY`."""
_SAY = ("server.command(", "._wake_ups.")
"""Stories that say this send commands of their own, or have hints for certain, as over a node they never are."""


def _stories(module: ModuleType) -> dict[str, object]:
    name = module.__name__.rpartition("test_")[2]
    return {
        f"test_{name}_{story.removeprefix('test_')}": function
        for story, function in vars(module).items()
        if story.startswith("test_")
        and inspect.isfunction(function)
        and (asks := set(inspect.signature(function).parameters)) & _OVER_A_NODE
        and not asks & _NOT_HERE
        and not any(said in inspect.getsource(function) for said in _SAY)
    }


for _module in (
    test_bands,
    test_blocked,
    test_browse,
    test_bucket,
    test_consumer,
    test_dead_letters,
    test_expiry,
    test_explain,
    test_gates,
    test_limiter,
    test_names,
    test_on_blocked,
    test_pools,
    test_producer,
    test_rates_of_delivery,
    test_rules,
    test_slow,
    test_waiting_beside,
    test_when_full,
    test_wildcards,
    test_windows,
):
    globals().update(share_of(_stories(_module).items(), 8))
