"""What a node tells of links that wait for room, for who looks for deadlocks: their consumers are tied to that wait."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.redis.keys import link_id
from headgate.redis.note_store import NoteStore, Tie, ToldTies
from headgate_coordinator.links.channel_job import ChannelDuty
from headgate_coordinator.links.link_job import Duty

_log = logging.getLogger("headgate.explain.links")
LOOK_EVERY: Final = 0.3
"""Seconds between looks; what waits in two of them is told."""


class LinkTies:
    """Tells which of the links that a node works on wait in line at their targets.

    Args:
        client: connected.
        duties: the links, as they are at each moment.
    """

    def __init__(self, client: Client, duties: Mapping[str, Duty | ChannelDuty]) -> None:
        self._told = ToldTies(NoteStore(client.store.server, client.namespace))
        self._duties = duties
        self._since: dict[str, tuple[str, float]] = {}

    async def run(self) -> None:
        """Look and tell, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY)
            now = asyncio.get_running_loop().time()
            try:
                await self._told.tell(self._look(now), now)
            except HeadgateError as error:
                _log.debug("waits of links could not be told: %s", error)

    def _look(self, now: float) -> list[Tie]:
        before, self._since, found = self._since, {}, []
        for link, duty in self._duties.items():
            if isinstance(duty, ChannelDuty) or duty.link.site is not None:
                continue  # a channel waits for nobody, and who looks sees no other site
            if wait := duty.waits:
                known, since = before.get(link, ("", now))
                self._since[link] = (wait, since if known == wait else now)
                if known == wait:
                    waited = int((now - since) * 1000)
                    found.append(Tie(duty.link.source, f"{link_id(link)}.1", duty.link.target, wait, waited))
        return found
