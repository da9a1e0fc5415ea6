"""A policy of many links: a node begins to work on its part of them, and goes on with all else meanwhile."""

import asyncio
from collections import Counter
from typing import Any
from unittest.mock import MagicMock

import pytest

import headgate
from headgate.core.links.link import Link
from headgate.core.policy import Policy
from headgate_coordinator.fleet.leases import PAGE
from headgate_coordinator.links import link_job
from headgate_coordinator.links.supervisor import BEGINNING, Supervisor
from tests.support.waiting import wait_until

pytestmark = pytest.mark.one_server
LINKS = 2 * PAGE + 1


async def test_many_links_begin_in_several_turns_of_the_loop(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutant: all of them begin in one turn."""
    turn, began = 0, list[int]()

    async def count() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def begin(link: Link, fence: int) -> MagicMock:
        began.append(turn)
        return MagicMock(link=link, fence=fence, later=0)

    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        links = [Link(f"b{n}", f"a{n}", f"c{n}", origin="x:1") for n in range(LINKS)]
        await client.apply_policy(Policy(0, (), (), "x", links=links))
        supervisor = Supervisor(client, "node~1", ttl=60)
        monkeypatch.setattr(supervisor, "_begin", begin)
        counting = asyncio.create_task(count())
        await supervisor.round()
        counting.cancel()
    assert len(began) == LINKS
    assert max(Counter(began).values()) == PAGE


async def test_of_many_links_few_make_their_ends_at_a_time(
    redis_url: str, cleanup_namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breaks where all do: then the answers to all of them are one turn of the loop, of seconds with thousands."""
    now = most = made = 0
    make = link_job._end

    async def end(*args: Any, **named: Any) -> Any:
        nonlocal now, most, made
        now, made = now + 1, made + 1
        most = max(most, now)
        try:
            return await make(*args, **named)
        finally:
            now -= 1

    monkeypatch.setattr(link_job, "_end", end)
    async with headgate.connect(redis_url, namespace=cleanup_namespace) as client:
        links = [Link(f"b{n}", f"a{n}", f"c{n}", origin="x:1") for n in range(5 * BEGINNING)]
        await client.apply_policy(Policy(0, (), (), "x", links=links))
        supervisor = Supervisor(client, "node~1", ttl=60)
        await supervisor.start()
        await wait_until(lambda: made == 2 * len(links))
        await wait_until(lambda: all(facts.trouble is None for facts in supervisor.facts()))
        await supervisor.close()
    assert most == BEGINNING
