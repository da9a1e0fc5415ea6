"""The demo does a `kill -9`: its victim has credit in hand when it dies, and the credit comes back."""

import asyncio
import signal
import time
from dataclasses import dataclass
from typing import Final

from headgate import Client
from headgate_coordinator.demo import QUEUE, TTL
from headgate_coordinator.demo.processes import Actor
from headgate_coordinator.demo.verdict import GRACE
from headgate_coordinator.demo.watch import EVERY, Watch

PATIENCE: Final = 90.0
"""Seconds for anything that is expected to happen soon, on a machine that has much else to do."""


@dataclass
class Killing:
    """A killing holds the facts that are known of it so far.

    Attributes:
        victim: who is killed.
        died_at: when, on the monotonic clock.
        held: bytes of credit that it held when it was dead.
        reclaimed: seconds from the kill until its session was gone; None if that was not seen.
        leased_without_it: whether a recount then found leased to be what the other sessions hold.
    """

    victim: Actor
    died_at: float = 0.0
    held: int = 0
    reclaimed: float | None = None
    leased_without_it: bool = False

    async def kill(self, watch: Watch) -> None:
        """Kill the victim while it has credit in hand."""
        await self._catch_with_credit(watch)
        self.died_at = time.monotonic()
        await self.victim.kill()
        self.victim.record.update()

    async def see_it_back(self, watch: Watch, client: Client) -> None:
        """Wait until its credit is back."""
        session, patience = self.victim.record.session, TTL + GRACE + PATIENCE
        self.reclaimed, self.held = await watch.reclaim_of(session, since=self.died_at, patience=patience)
        self.leased_without_it = (await client.recount(QUEUE)).equal

    async def _catch_with_credit(self, watch: Watch) -> None:
        """Freeze the victim at an instant when it holds credit: where room is scarce it has some only now and then."""
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and not self.victim.broken:
            if await self._holds(watch):
                self.victim.send(signal.SIGSTOP)
                # Twice: what it had sent just before may reach Redis after our first look, but not after our second.
                if await self._holds(watch) and await self._holds(watch):
                    return
                self.victim.send(signal.SIGCONT)
            await asyncio.sleep(EVERY / 10)

    async def _holds(self, watch: Watch) -> bool:
        return (await watch.look()).holds.get(self.victim.record.session, 0) > 0
