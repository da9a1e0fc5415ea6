"""Full collections of a node leave out what survived a slow one."""

import asyncio
import gc
import signal
import weakref
from collections.abc import Iterator

import pytest

import headgate
from headgate_coordinator.node.node import Node
from headgate_coordinator.node.options import NodeOptions
from headgate_coordinator.security import Users
from headgate_coordinator.service import garbage
from headgate_coordinator.service.garbage import YOUNG, ShortCollections
from headgate_coordinator.service.run import run

MANY = 10_000


class Ring:
    """Garbage once nobody else refers to it, which only a collection finds."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def collections() -> Iterator[ShortCollections]:
    found = ShortCollections()
    found.start()
    yield found
    found.stop()
    gc.freeze()  # as the other tests have it


def test_what_survives_a_slow_one_is_left_out_of_the_next(
    collections: ShortCollections, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "SLOW", -1.0)
    kept = [[number] for number in range(MANY)]
    gc.collect()
    looked_at = {id(one) for one in gc.get_objects()}
    assert not [one for one in kept if id(one) in looked_at]
    ring = weakref.ref(Ring())
    gc.collect()
    assert ring() is None, "what is new is collected as ever"
    del kept


def test_after_a_quick_one_nothing_is_left_out(collections: ShortCollections, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(garbage, "SLOW", 1e9)
    before = gc.get_freeze_count()
    kept = [[number] for number in range(MANY)]
    gc.collect()
    assert gc.get_freeze_count() <= before
    del kept


def test_what_became_garbage_while_it_was_left_out_is_found_by_a_thorough_one(
    collections: ShortCollections, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: what was left out once is never looked at again."""
    monkeypatch.setattr(garbage, "SLOW", -1.0)
    kept = Ring()
    ring = weakref.ref(kept)
    gc.collect()
    del kept
    gc.collect()
    assert ring() is not None
    monkeypatch.setattr(garbage, "THOROUGH", -1.0)
    before = gc.get_freeze_count()
    gc.collect()
    assert ring() is None
    assert gc.get_freeze_count() >= before / 2, "what is left is left out again"


@pytest.mark.one_server
async def test_a_node_that_serves_leaves_out_what_it_began_with(redis_url: str, cleanup_namespace: str) -> None:
    """Mutant: a node starts without it. A message then takes a quarter more of its processor, see bench/README.md."""
    seen: list[tuple[int, int]] = []
    before, loop = gc.get_threshold(), asyncio.get_running_loop()

    def tell(_: Node) -> None:
        seen.append((gc.get_freeze_count(), gc.get_threshold()[0]))
        loop.call_soon(signal.raise_signal, signal.SIGINT)

    client = headgate.connect(redis_url, namespace=cleanup_namespace)
    gc.unfreeze()
    try:
        await run(client, NodeOptions(host="127.0.0.1", port=0), Users.from_redis, None, tell)
    finally:
        gc.freeze()  # as the other tests have it
    ((frozen, young),) = seen
    assert frozen > MANY
    assert young == YOUNG
    assert gc.get_threshold() == before
