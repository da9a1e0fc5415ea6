"""Destinations that clients name by the thousand are forgotten again."""

import asyncio
import contextlib
import itertools
import random
from types import SimpleNamespace
from typing import Any

import pytest

from headgate._util.tasks import StepCallbacks
from headgate_coordinator.node.credit import credits as module
from headgate_coordinator.node.credit.credits import DestinationCredits
from headgate_coordinator.node.credit.destination_credit import DestinationCredit
from headgate_coordinator.node.credit.link_pace import LinkPace
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
def lines() -> DestinationCredits:
    session: Any = Session()
    client: Any = None
    return DestinationCredits(client, session, NodeOptions())


async def test_a_name_that_nobody_sends_to_any_more_leaves_nothing_behind(
    lines: DestinationCredits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SWEEP", 0.001)
    for number in range(100):
        await lines.get(f"replies.{number}")
    sweep = asyncio.create_task(lines.sweep())
    await wait_until(lambda: not lines._lines)
    sweep.cancel()
    await asyncio.gather(sweep, return_exceptions=True)
    assert not list(lines._locks)


async def test_a_relay_keeps_the_lines_of_the_newest_names_only(lines: DestinationCredits) -> None:
    connection: Any = SimpleNamespace(
        held=0,
        access=None,
        flush_soon=lambda: None,
        node=SimpleNamespace(
            client=SimpleNamespace(parts=SimpleNamespace(tracing=None)),
            lines=lines,
            options=NodeOptions(),
            numbers=itertools.count(),
            creations=SimpleNamespace(by=lambda *_: contextlib.nullcontext()),
        ),
    )
    link: Any = SimpleNamespace(alive=True, credit=100)
    relay = Relay(connection, link)
    for number in range(LINES + 10):
        await relay._open_line(f"replies.{number}")
    assert len(relay._lines) == LINES
    assert [line.idle for line in lines._lines.values()] == [True] * 10 + [False] * LINES


class Sending:
    """A link that sends nothing yet."""

    unconfirmed = 0

    def __init__(self, link: Any) -> None:
        self.link, self.pace = link, LinkPace()

    def look(self) -> None:
        """Take nothing."""


class Full:
    """A destination that has no room until it is told otherwise; whoever looks is counted."""

    is_blocked, is_closed = True, False
    rates = (None, None)
    account = SimpleNamespace(is_confirming=False)

    def __init__(self) -> None:
        self.steps = StepCallbacks()
        self.looks, self.has = 0, 0.0
        self.queued = 1

    def room(self, _: float) -> float | None:
        self.looks += 1
        return self.has or None

    def weigh(self, weight: int) -> None:
        """Take note of nothing."""

    def step(self) -> None:
        for stepped in tuple(self.steps):
            stepped()


async def test_a_full_destination_is_looked_at_when_something_changed_and_at_no_other_time() -> None:
    inflow, given = Full(), list[int]()
    line = DestinationCredit(inflow, 100, 30)  # type: ignore[arg-type]  # as much of it as a line needs
    link: Any = SimpleNamespace(alive=True, credit=0, set_credit=given.append)
    line.join(Sending(link))
    await wait_until(lambda: inflow.looks == 1)
    await asyncio.sleep(0.2)
    assert (inflow.looks, given) == (1, [])
    inflow.step()
    await wait_until(lambda: inflow.looks == 2)
    inflow.has = 10.0
    inflow.step()
    await wait_until(lambda: given == [10])
    assert not inflow.steps, "nobody hears of steps while there is room"


async def test_whoever_waits_for_messages_on_their_way_wakes_when_an_account_made_a_step(
    lines: DestinationCredits,
) -> None:
    inflow = Full()
    lines._lines["orders"] = DestinationCredit(inflow, 100, 30)  # type: ignore[arg-type]
    flushing = asyncio.create_task(lines.flush())
    await wait_until(lambda: bool(inflow.steps))
    inflow.step()
    await wait_until(lambda: bool(inflow.steps))
    assert not flushing.done()
    inflow.queued = 0
    inflow.step()
    await flushing
