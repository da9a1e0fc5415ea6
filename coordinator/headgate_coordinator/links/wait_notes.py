"""Notes of links that wait for room, for the search of deadlocks: their consumers are tied to that wait."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.redis.keys import link_id
from headgate.redis.stores.notes import AnnouncedTies, NoteStore, Tie
from headgate_coordinator.links.job import AnyJob

_log = logging.getLogger("headgate.explain.links")
LOOK_EVERY: Final = 0.3
"""Seconds between looks; a wait seen in two of them is reported."""


class LinkTies:
    """Tells which of the links that a node works on (``jobs`` returns them) wait in line at their targets."""

    def __init__(self, client: Client, jobs: Mapping[str, AnyJob]) -> None:
        self._announced = AnnouncedTies(NoteStore(client.store.server, client.namespace))
        self._jobs = jobs
        self._since: dict[str, tuple[str, float]] = {}

    async def run(self) -> None:
        """Look and tell, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = asyncio.get_running_loop().time()
            try:
                await self._announced.tell(self._look(now), now)
            except HeadgateError as error:
                _log.debug("waits of links could not be reported: %s", error)

    def _look(self, now: float) -> list[Tie]:
        before, self._since, found = self._since, {}, []
        for link, job in self._jobs.items():
            if wait := job.waits:
                known, since = before.get(link, ("", now))
                self._since[link] = (wait, since if known == wait else now)
                if known == wait:
                    waited = int((now - since) * 1000)
                    found.append(Tie(job.link.source, f"{link_id(link)}.1", job.link.target, wait, waited))
        return found
