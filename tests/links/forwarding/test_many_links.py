"""A policy of many links: a node begins to work on its part of them, and goes on with all else meanwhile."""

import asyncio
from collections import Counter
from unittest.mock import MagicMock

import pytest

import headgate
from headgate.core.links.link import Link
from headgate.core.policy import Policy
from headgate_coordinator.links.supervisor import PAGE, Supervisor

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
