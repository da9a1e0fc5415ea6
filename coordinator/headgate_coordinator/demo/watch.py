"""The demo's parent watches the queue while it runs."""

import asyncio
import time
from dataclasses import dataclass, field
from typing import Final

from headgate import Client
from headgate.redis.keys import Address
from headgate.redis.replies import Recount, record

EVERY: Final = 0.05
"""Seconds between two looks."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample shows the queue at one instant.

    Attributes:
        holds: bytes of credit in hand, by session.
        waits: seconds since it began to wait, by waiting session.
        unsettled: messages received and not settled, by session.
        waits_begun: how often a producer has begun to wait so far.
    """

    pending: int = 0
    pending_messages: int = 0
    leased: int = 0
    peak: int = 0
    blocked: int = 0
    waits_begun: int = 0
    holds: dict[str, int] = field(default_factory=dict)
    waits: dict[str, float] = field(default_factory=dict)
    unsettled: dict[str, int] = field(default_factory=dict)


class Watch:
    """Looks at one queue again and again, and keeps the most it saw.

    Attributes:
        now: the last sample.
        peak: the most that was pending and leased together in any sample; ``blocked``: the most that waited.
        looks: how many samples were taken.
    """

    def __init__(self, client: Client, address: Address) -> None:
        self.now = Sample()
        self.peak = 0
        self.blocked = 0
        self.looks = 0
        self._store = client.store
        self._address = address
        self._sessions = f"{address.key}:sessions".encode()

    async def look(self) -> Sample:
        """Take a sample."""
        snapshot = await self._store.snapshot(self._address)
        if snapshot is None:
            return self.now
        flat = await self._store.server.command(self._sessions, "HGETALL", self._sessions)
        sessions = {flat[i].decode(): record(flat[i + 1]) for i in range(0, len(flat), 2)}
        fields = snapshot.fields
        unsettled: dict[str, int] = {}
        for consumer, values in snapshot.consumers.items():
            session = consumer.rpartition(".")[0]
            unsettled[session] = unsettled.get(session, 0) + int(values["delivered"]) - int(values["settled"])
        self.now = Sample(
            pending=int(fields["pending_bytes"]),
            pending_messages=int(fields["pending_messages"]),
            leased=int(fields["leased_bytes"]),
            peak=int(fields["peak_bytes"]),
            blocked=int(fields["blocked"]),
            waits_begun=int(fields["tickets"]),
            holds={sid: held(values) for sid, values in sessions.items()},
            waits={
                sid: max(0.0, (snapshot.now_ms - int(values["since"])) / 1000)
                for sid, values in snapshot.waiters
                if values
            },
            unsettled=unsettled,
        )
        self.looks += 1
        self.peak = max(self.peak, self.now.pending + self.now.leased)
        self.blocked = max(self.blocked, self.now.blocked)
        return self.now

    async def count(self, patience: float) -> Recount:
        """Count in the end; what a process had no time to give back comes back once its lease is over."""
        deadline = time.monotonic() + patience
        while any((count := await self._store.recount(self._address)).counted) and time.monotonic() < deadline:
            await asyncio.sleep(EVERY)
            await self._store.reap(self._address)  # nobody else is there to ask for it
        return count

    async def reclaim_of(self, session: str, *, since: float, patience: float) -> tuple[float | None, int]:
        """Wait until a dead session is gone.

        Args:
            session: its id.
            since: when it died, on the monotonic clock.
            patience: seconds to wait at most.

        Returns:
            Seconds from its death until it was gone, None if it is still there; and the most credit it held meanwhile:
            one that waited in line when it died may well be served after its death.
        """
        most = 0
        while time.monotonic() - since < patience:
            text = await self._store.server.command(self._sessions, "HGET", self._sessions, session)
            if text is None:
                return time.monotonic() - since, most
            most = max(most, held(record(text)))
            await asyncio.sleep(EVERY / 5)
        return None, most


def held(session: dict[str, str]) -> int:
    """Return the bytes of credit that a session's record says it holds."""
    return int(session["granted"]) - int(session["used"]) - int(session["returned"])
