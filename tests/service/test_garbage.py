"""Full collections of a node leave out what survived a slow one."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from headgate_coordinator.service import garbage
from headgate_coordinator.service.garbage import ShortCollections

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
    before = gc.get_freeze_count()
    kept = [[number] for number in range(MANY)]
    gc.collect()
    assert gc.get_freeze_count() >= before + MANY
    assert len(gc.get_objects()) < MANY
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
