"""Destinations that clients name by the thousand are forgotten again."""

import asyncio
import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest

from headgate_coordinator.node.credit import credits as module
from headgate_coordinator.node.credit.credits import Lines
from headgate_coordinator.node.ends.relay import LINES, Relay
from headgate_coordinator.node.options import NodeOptions
from tests.amqp.connecting import Stored
from tests.support.waiting import wait_until


class Session:
    """A session whose producers cost nothing."""

    async def inflow(self, *_: Any, **__: Any) -> Stored:
        ground: Any = SimpleNamespace(dice=random.Random(1))
        return Stored(ground)


@pytest.fixture
def lines() -> Lines:
    session: Any = Session()
    client: Any = None
    return Lines(client, session, NodeOptions())


async def test_a_name_that_nobody_sends_to_any_more_leaves_nothing_behind(
    lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP", 0.001)
    for number in range(100):
        await lines.get(f"replies.{number}")
    sweep = asyncio.create_task(lines.sweep())
    await wait_until(lambda: not lines._lines)
    sweep.cancel()
    await asyncio.gather(sweep, return_exceptions=True)
    assert not list(lines._locks)


async def test_a_relay_keeps_the_lines_of_the_newest_names_only(lines: Lines) -> None:
    connection: Any = SimpleNamespace(
        held=0,
        flush_soon=lambda: None,
        node=SimpleNamespace(lines=lines, options=NodeOptions(), numbers=itertools.count()),
    )
    link: Any = SimpleNamespace(alive=True, credit=100)
    relay = Relay(connection, link)
    for number in range(LINES + 10):
        await relay._open_line(f"replies.{number}")
    assert len(relay._lines) == LINES
    assert [line.idle for line in lines._lines.values()] == [True] * 10 + [False] * LINES
