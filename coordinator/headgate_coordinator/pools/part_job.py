"""A pool here may be a part of one at another site: it draws there what it lacks, and gives back the unused.

Nothing but letters of totals goes to the other site, to a key that is for this purpose alone; see docs/pools.md.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

from headgate.client import Client
from headgate.core.names import encode_name
from headgate.errors import AccessDenied, CoordinatorUnavailable, HeadgateError
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
        self._read, self._read_at = "", time.monotonic()
        self._namesake, self._namesake_at = "", -math.inf
        self._epoch = 0
        self._is_cut = False
        self._least = 0
        super().__init__(client, pool)

    async def _round(self) -> bool:
        async with self._noted():
            far = await self._listen()
            server, address = far.store.server, PoolAddress.of(far.namespace, self._there)
            letter = await read_answer(server, address, self._name)
        self._least = letter.least if letter.text else self._least
        fresh = letter if letter.text != self._applied else Letter()
        trouble = self._judge(letter) or (None if self._is_cut else "")
        held = await self._take_in(fresh, trouble, self._idle())
        if held.code == "UNKNOWN":
            return False
        if held.code != "EPOCH":
            self._applied = letter.text
        self._epoch = held.epoch
        self._note(held)
        async with self._noted():
            await self._report(server, address, held)
        return held.lacks > 0 or held.owed > 0 or held.code == "CLOSING"

    async def _take_in(self, letter: Letter, trouble: str | None, idle: int = 0) -> Held:
        pools, of = self.client.parts.pools, f"{self._site}/{encode_name(self._there)}"
        held = await take_in(pools, self.pool, letter, of=of, idle=idle, asked=self._asked, trouble=trouble)
        if held.code == "LEARNING":  # nobody may ask for anything here, and what is not used has to go back
            await pools.rebuild(self.pool, held.epoch)
        return held

    async def _report(self, server: Backend, address: PoolAddress, held: Held) -> None:
        now = time.monotonic()
        if held.report != self._reported or now - self._reported_at >= EVERY:
            await leave_report(server, address, self._name, f"{held.report} at={time.time_ns() // 1_000_000}")
            self._reported, self._reported_at, self._is_cut = held.report, now, False

    @contextlib.asynccontextmanager
    async def _noted(self) -> AsyncIterator[None]:
        """Note in the pool why the other site cannot be asked, for whoever waits."""
        try:
            yield
        except (HeadgateError, OSError) as error:
            self._is_cut, self._read_at = True, time.monotonic()
            with contextlib.suppress(HeadgateError):
                await self._take_in(Letter(), _trouble_of(error))
            raise

    def _judge(self, letter: Letter) -> str:
        """Say why nothing more is to be had, and return the code of that; an empty one where nothing is wrong."""
        code, why = self._trouble(letter)
        self.fail(why)
        return code

    def _trouble(self, letter: Letter) -> tuple[str, str]:
        now, site, name = time.monotonic(), self._site, self._name
        if letter.text != self._read:
            self._read, self._read_at = letter.text, now
        if self._epoch and letter.epoch > self._epoch:
            self._namesake, self._namesake_at = "stale", now
        elif self._epoch and letter.epoch == self._epoch and letter.code == "STALE":  # that was another's report
            self._namesake, self._namesake_at = "twin", now
        if now - self._namesake_at < SILENT and self._namesake == "stale":  # answers to two come by turns
            forget = f"`headgate pool forget-site {self._there} {name} --gone` there"
            why = f"two go by that name, or all was lost here and the clock set back; then {forget}"
            return "stale", f"site {site} has heard of a later pool of {name!r}: {why}"
        if now - self._namesake_at < SILENT:
            return "twin", f"another deployment reports to site {site} as {name!r}: give each a site_name of its own"
        if letter.code == "AHEAD":
            return "ahead", f"site {site} has lost a later pool than the one it has: its clock was set back"
        if now - self._read_at > SILENT:
            named = f"see that some run, and that pool {self._there} there names {name!r} in its sites"
            return "silent", f"no node of site {site} answers: {named}"
        if letter.text and letter.most == 0:
            return "unnamed", f"pool {self._there} at site {site} has no part for {name!r}; name it in its sites"
        return "", ""

    def _note(self, held: Held) -> None:
        now = time.monotonic()
        self._unused = [(at, free) for at, free in self._unused if now - at <= 2 * IDLE]
        free = min(held.free, max(0, held.granted - held.returned - self._least))  # the home would grant that again
        self._unused.append((now, free if held.lacks == 0 else 0))

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


def _trouble_of(error: Exception) -> str:
    if isinstance(error, AccessDenied):
        return "refused"
    if isinstance(error, CoordinatorUnavailable) and error.answered:
        return "failing"
    return "unreachable" if isinstance(error, CoordinatorUnavailable | OSError) else "unset"
