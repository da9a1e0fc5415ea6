"""Calls wait in line for a connection as long as the server answers others; told in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import redis.exceptions as rx

from headgate.redis.call_line import CALL_TIMEOUT, LINE_TIMEOUT, LineTimeoutError
from headgate.redis.connection import MAX_CONNECTIONS, ServerConnections
from tests.simulation.loop import BEGINS, VirtualLoop


class Connection:
    """One that was made already."""

    is_connected = True
    headgate_era = 0

    async def connect(self) -> None:
        pass

    async def disconnect(self, *, nowait: bool) -> None:
        pass


async def dial() -> Any:
    return Connection()


Story = Callable[[ServerConnections], Coroutine[Any, Any, None]]


def tell(story: Story, within: float = LINE_TIMEOUT) -> float:
    """Have it happen; returns the seconds that it took."""
    loop = VirtualLoop()
    try:
        loop.run_until_complete(story(ServerConnections(dial, line_timeout=lambda: within)))
        return loop.now - BEGINS
    finally:
        loop.bury()


async def call(lane: ServerConnections, takes: float) -> None:
    async with lane._connection():
        await asyncio.sleep(takes)


async def crowd(lane: ServerConnections, count: int, takes: float) -> list[Exception]:
    """Make so many calls at once; returns the errors."""
    outcomes = await asyncio.gather(*(call(lane, takes) for _ in range(count)), return_exceptions=True)
    return [one for one in outcomes if isinstance(one, Exception)]


def test_a_crowd_of_calls_waits_for_its_turns() -> None:
    """Each takes long, and the last ones waited for four times what a call may take. Mutant: a turn has that time."""

    async def story(lane: ServerConnections) -> None:
        assert not await crowd(lane, 6 * MAX_CONNECTIONS, 0.7 * CALL_TIMEOUT)

    assert tell(story) == pytest.approx(4.2 * CALL_TIMEOUT)


@pytest.mark.parametrize("within", [LINE_TIMEOUT, CALL_TIMEOUT])
def test_where_nobody_is_answered_no_call_waits_longer_than_one_may_take(within: float) -> None:
    """Mutant: nodes, of which none stands in line for longer, say that the server answers."""

    async def story(lane: ServerConnections) -> None:
        errors = await crowd(lane, 3 * MAX_CONNECTIONS, 60)
        assert len(errors) == 3 * MAX_CONNECTIONS
        assert all(isinstance(error, TimeoutError) for error in errors)

    assert tell(story, within) == pytest.approx(CALL_TIMEOUT)


def test_a_server_that_falls_silent_keeps_those_in_line_no_longer() -> None:
    async def story(lane: ServerConnections) -> None:
        answered = asyncio.gather(*(call(lane, 0.5) for _ in range(MAX_CONNECTIONS)))
        silent = [asyncio.ensure_future(call(lane, 60)) for _ in range(6 * MAX_CONNECTIONS)]
        await answered
        done, waiting = await asyncio.wait(silent)
        assert not waiting
        assert all(isinstance(one.exception(), TimeoutError) for one in done)

    assert tell(story) <= 0.5 + 2 * CALL_TIMEOUT + 1e-6


def test_a_turn_that_does_not_come_is_told_from_a_silent_server() -> None:
    async def story(lane: ServerConnections) -> None:
        errors = await crowd(lane, 20 * MAX_CONNECTIONS, 0.9 * CALL_TIMEOUT)
        assert errors
        assert all(isinstance(error, LineTimeoutError) for error in errors)

    assert tell(story) <= LINE_TIMEOUT + 2 * CALL_TIMEOUT


def test_a_node_has_none_in_line_for_longer_than_its_clients_wait() -> None:
    """They make a call anew soon after, and it is not to be made after that one. Mutant: it stands there for 10 s."""

    async def story(lane: ServerConnections) -> None:
        errors = await crowd(lane, 6 * MAX_CONNECTIONS, 0.7 * CALL_TIMEOUT)
        assert len(errors) == 4 * MAX_CONNECTIONS
        assert all(isinstance(error, LineTimeoutError) and error.within == CALL_TIMEOUT for error in errors)

    assert tell(story, CALL_TIMEOUT) <= 1.4 * CALL_TIMEOUT + 1e-6


def test_calls_in_line_are_made_anew_where_another_server_is_in_charge() -> None:
    """Else they wait there, as its connections are at a server that was replaced. Mutant: those in line stay."""

    async def story(lane: ServerConnections) -> None:
        calls = asyncio.ensure_future(crowd(lane, 2 * MAX_CONNECTIONS, 60))
        await asyncio.sleep(0.1)
        await lane.abandon()
        errors = await calls
        assert len(errors) == 2 * MAX_CONNECTIONS
        assert all(isinstance(error, rx.ConnectionError) for error in errors)

    assert tell(story) == pytest.approx(0.1)


def test_a_call_whose_turn_came_has_its_time_from_then_on() -> None:
    """Nobody else is answered meanwhile. Mutant: it is looked after as if it stood in line still."""

    async def story(lane: ServerConnections) -> None:
        before = [asyncio.ensure_future(call(lane, 0.5)) for _ in range(MAX_CONNECTIONS)]
        await asyncio.gather(call(lane, 0.95 * CALL_TIMEOUT), *before)

    tell(story)


def test_a_call_that_is_ended_as_its_turn_comes_does_not_go_on() -> None:
    async def story(lane: ServerConnections) -> None:
        others = [asyncio.ensure_future(call(lane, 1.0)) for _ in range(MAX_CONNECTIONS - 1)]
        async with lane._connection():
            waits = asyncio.ensure_future(call(lane, 1.0))
            await asyncio.sleep(0.1)
        await lane.abandon()
        await asyncio.wait([waits, *others])
        assert isinstance(waits.exception(), rx.ConnectionError)

    tell(story)


def test_a_caller_in_line_that_gives_up_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    async def story(lane: ServerConnections) -> None:
        calls = [asyncio.ensure_future(call(lane, 1.0)) for _ in range(MAX_CONNECTIONS)]
        await asyncio.sleep(0)
        given_up = asyncio.ensure_future(call(lane, 1.0))
        await asyncio.sleep(0.1)
        given_up.cancel()
        await asyncio.wait([given_up, *calls])
        await asyncio.sleep(3 * CALL_TIMEOUT)
        await lane.drop()
        assert not await crowd(lane, MAX_CONNECTIONS, 0.1)
        assert not lane._under_way

    tell(story)
    assert not caplog.records, "nothing looks after it any more"
