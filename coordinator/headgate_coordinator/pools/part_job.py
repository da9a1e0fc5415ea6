"""A pool here may be a part of one at another site: it draws there what it lacks, and gives back the unused.

Nothing but letters of totals goes to the other site, to a key that is for this purpose alone; see docs/pools.md.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from typing import Final

from headgate.client import Client
from headgate.core.names import encode_name
from headgate.errors import HeadgateError
from headgate.namespace.pool_sites import take_in
from headgate.redis.backend import Backend
from headgate.redis.keys import PoolAddress
from headgate.redis.stores.pool_sites import SILENT, Held, Letter
from headgate_coordinator.pools.job import EVERY, PoolJob
from headgate_coordinator.pools.letters import leave_report, read_answer

IDLE: Final = 2.0
"""Seconds after which what no member has goes back."""


class PoolPartJob(PoolJob):
    """A part's job does the work on one such pool.

    Args:
        client: of this site.
        pool: here.
        name: of this site, as the other calls it.
        site: the other's.
        there: name of the pool at the other.
        connect: returns the client of the other site.
    """

    def __init__(
        self, client: Client, pool: PoolAddress, *, name: str, site: str, there: str,
        connect: Callable[[], Awaitable[Client]],
    ) -> None:  # fmt: skip
        self._name, self._site, self._there = name, site, there
        self._connect = connect
        self._far: Client | None = None
        self._channels: tuple[str, ...] = ()
        self._applied = ""
        self._reported, self._reported_at = "", -EVERY
        self._asked = set[str]()
        self._unused: list[tuple[float, int]] = []
        self._began = time.monotonic()
        super().__init__(client, pool)

    async def _round(self) -> bool:
        far = await self._listen()
        server, address = far.store.server, PoolAddress.of(far.namespace, self._there)
        letter = await read_answer(server, address, self._name)
        fresh = letter if letter.text != self._applied else Letter()
        held = await take_in(
            self.client.parts.pools, self.pool, fresh, of=f"{self._site}/{encode_name(self._there)}",
            idle=self._idle(), asked=self._asked,
        )  # fmt: skip
        if held.code == "UNKNOWN":
            return False
        if held.code != "EPOCH":
            self._applied = letter.text
        if held.code == "LEARNING":  # nobody may ask for anything here, and what is not used has to go back
            await self.client.parts.pools.rebuild(self.pool, held.epoch)
        self._note(held)
        await self._report(server, address, held)
        self._judge(letter)
        return held.lacks > 0 or held.owed > 0 or held.code == "CLOSING"

    async def _report(self, server: Backend, address: PoolAddress, held: Held) -> None:
        now = time.monotonic()
        if held.report != self._reported or now - self._reported_at >= EVERY:
            await leave_report(server, address, self._name, f"{held.report} at={time.time_ns() // 1_000_000}")
            self._reported, self._reported_at = held.report, now

    def _judge(self, letter: Letter) -> None:
        if letter.code == "STALE":
            self.fail(
                f"site {self._site} has heard of a later pool of {self._name!r}: two go by that name, or all was lost "
                f"here and the clock set back; then `headgate pool forget-site {self._there} {self._name} --gone` there"
            )
        elif letter.code == "AHEAD":
            self.fail(f"site {self._site} has lost a later pool than the one it has: its clock was set back")
        elif not letter.text and time.monotonic() - self._began > SILENT:
            self.fail(f"no node of site {self._site} has answered yet")
        elif letter.text and letter.most == 0:
            self.fail(f"pool {self._there} at site {self._site} has no part for {self._name!r}; name it in its sites")
        else:
            self.fail("")

    def _note(self, held: Held) -> None:
        now = time.monotonic()
        self._unused = [(at, free) for at, free in self._unused if now - at <= 2 * IDLE]
        self._unused.append((now, held.free if held.lacks == 0 else 0))

    def _idle(self) -> int:
        """Return the bytes that nobody had for some time; more than one look has to say so."""
        now = time.monotonic()
        looks = [free for at, free in self._unused if now - at <= IDLE + EVERY]
        if not self._unused or now - self._unused[0][0] < IDLE or len(looks) < 2:
            return 0
        if least := min(looks):
            self._unused.clear()
        return least

    async def _listen(self) -> Client:
        far = await self._connect()
        if far is not self._far:
            await self._leave()
            address = PoolAddress.of(far.namespace, self._there)
            self._channels = (address.site_key(self._name).decode(),)
            await far.parts.wake_ups.subscribe(self._channels, self._hear_far)
            self._far = far
        return far

    def _hear_far(self, words: list[str]) -> None:
        if words[:1] == ["answer"]:
            self._heard.set()

    async def _leave(self) -> None:
        if self._far is not None:
            with contextlib.suppress(HeadgateError, TimeoutError):
                async with asyncio.timeout(EVERY):
                    await self._far.parts.wake_ups.unsubscribe(self._channels, self._hear_far)
        self._far = None
