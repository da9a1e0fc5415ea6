"""Notes are kept of links that wait for room, for the search of deadlocks: their consumers are tied to that wait."""

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Final

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.redis.keys import link_id
from headgate.redis.stores.notes import TELL_EVERY, AnnouncedTies, NoteStore, Tie
from headgate_coordinator.links.job import AnyJob

_log = logging.getLogger("headgate.explain.links")
TELL_AFTER: Final = 0.3
"""Seconds of waiting after which a wait is reported."""


class LinkTies:
    """`LinkTies` tells which of the links that a node works on (``jobs`` returns them) wait in line at their targets.

    Attributes:
        changed: set when a link begins or ceases to wait.
    """

    def __init__(self, client: Client, jobs: Mapping[str, AnyJob]) -> None:
        self.changed = asyncio.Event()
        self._announced = AnnouncedTies(NoteStore(client.store.server, client.namespace))
        self._jobs = jobs
        self._since: dict[str, tuple[str, float]] = {}

    async def run(self) -> None:
        """Look and tell while a link waits, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self.changed.clear()
            now = loop.time()
            try:
                await self._announced.tell(self._look(now), now)
            except HeadgateError as error:
                _log.debug("waits of links could not be reported: %s", error)
            # Those that wait already are reported again, while they do.
            young = (since + TELL_AFTER for _, since in self._since.values())
            until = min((when if when > now else now + TELL_EVERY for when in young), default=None)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self.changed.wait()

    def _look(self, now: float) -> list[Tie]:
        before, self._since, ties = self._since, {}, []
        for link, job in self._jobs.items():
            if wait := job.waits:
                known, since = before.get(link, ("", now))
                since = since if known == wait else now
                self._since[link] = (wait, since)
                if now - since >= TELL_AFTER:
                    waited = int((now - since) * 1000)
                    ties.append(Tie(job.link.source, f"{link_id(link)}.1", job.link.target, wait, waited))
        return ties
