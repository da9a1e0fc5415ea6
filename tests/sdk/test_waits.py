"""Waits are heard of by listeners, and only those that ended."""

import contextlib
from collections.abc import Coroutine, Iterator
from types import coroutine
from typing import Any

from headgate.waits import Wait, Waits


@coroutine
def _for_ever() -> Iterator[None]:
    yield


async def _waits(waits: Waits) -> None:
    with waits.timed("credit", "orders"):
        await _for_ever()


def test_a_wait_that_is_thrown_away_with_its_loop_is_told_to_nobody() -> None:
    heard: list[Wait] = []
    waits = Waits()
    waits.listeners.append(heard.append)
    thrown_away, ended = _waits(waits), _waits(waits)
    for one in (thrown_away, ended):
        _begin(one)
    thrown_away.close()
    assert heard == []
    with contextlib.suppress(StopIteration):
        ended.send(None)
    assert [(wait.destination, wait.outcome) for wait in heard] == [("orders", "admitted")]


def _begin(one: Coroutine[Any, Any, None]) -> None:
    one.send(None)
