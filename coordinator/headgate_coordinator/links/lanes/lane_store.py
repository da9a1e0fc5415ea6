"""A lane of a link brings to one slice of its target what belongs there; a lane store is both ends of it."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from headgate.core.durability import Durability, WriteProgress
from headgate.core.links.calls import Committed, Opened, Put, Read, Skip
from headgate.redis.keys import Address
from headgate.redis.stores.links import LinkStore, Spreading
from headgate_coordinator.links.lanes.splitter import Splitter
from headgate_coordinator.links.lanes.target_spread import TargetSpread

REFUSED: Final = frozenset({"FENCED", "UNKNOWN", "KIND", "STALE", "BODY", "FULL"})
"""Codes of answers that say nothing of what is there."""


class LaneStore(LinkStore):
    """A lane store reads what the splitter has for one lane, and writes to the slice of that lane.

    A grant to a lane that had nothing, as one that waits has, counts only once it has looked whether the target is
    still spread so: that changes when nobody has credit.

    Args:
        at: the slice.
        number: of it.
        splitter: has what was read at the source.
        spread: says how the target is spread.
        lets_go: called when the source may let go of more.
        lacks: called when the slice has no room for what comes next.
    """

    def __init__(
        self,
        store: LinkStore,
        at: Address,
        number: int,
        splitter: Splitter,
        spread: TargetSpread,
        lets_go: Callable[[], None],
        lacks: Callable[[Address], Awaitable[None]],
    ) -> None:
        super().__init__(store.server)
        self._at, self._number, self._splitter, self._spread = at, number, splitter, spread
        self._lets_go, self._lacks = lets_go, lacks
        self._known = Committed("OK")
        self._heard_at = 0.0
        """When the last call was made that was answered: what it left in hand is held for a TTL from then on."""
        self._is_sure = False
        """Whether what is in hand came before the last look at how the target is spread."""

    async def open(self, source: Address, link: str, *, fence: int, window: str, copies: bool = False) -> Opened:
        """Return where the splitter begins: the source is open."""
        del source, link, fence, window, copies
        return Opened("OK", self._splitter.born, self._splitter.lanes[self._number].safe)

    async def read(
        self, source: Address, link: str, *, fence: int, born: int, mark: int, after: int, messages: int, size: int
    ) -> Read:
        """Note that all of the lane up to ``mark`` is safe, and return what comes after ``after``."""
        del source, link, fence, born
        if self._splitter.make_safe(self._number, mark):
            self._lets_go()
        return Read("OK", mark, self._splitter.of_lane(self._number, after, messages, size))

    async def fair_by(self, target: Address) -> str:
        """Return nothing: keys take no turns in a queue with slices."""
        del target
        return ""

    async def commit(
        self, target: Address, link: str, entries: Sequence[Put | Skip] = (), *, fence: int, born: int, **more: Any
    ) -> Committed:
        """Put entries into the slice once, and say up to which number the lane's own are there."""
        puts = [entry for entry in entries if isinstance(entry, Put)]
        skipped = {entry.seq for entry in entries if isinstance(entry, Skip)}
        if puts and not self._is_sure:
            if not await self._spread.is_in_force():
                return self._answer(Committed("STOPPED", self._known.mark, beyond=self._known.beyond), ())
            self._is_sure = True
        began = asyncio.get_running_loop().time()
        self._is_sure, before = False, self._is_sure  # where no answer comes
        more |= {"prev": self._known.mark, "lost": True, "spread": self._splitter.spreading}
        answer = await super().commit(target, link, puts, fence=fence, born=born, **more)
        if answer.code in REFUSED:
            self._known = Committed("OK") if answer.code == "UNKNOWN" else self._known
            return answer
        now, had = asyncio.get_running_loop().time(), self._known
        is_kept = bool(puts) and had.held > 0 and had.held_m > 0 and now - self._heard_at < more["ttl_ms"] / 1000
        self._is_sure = before and is_kept and answer.code != "NOCREDIT"
        self._known, self._heard_at = answer, began
        if answer.code == "STOPPED":
            await self._spread.stopped(self._at)
        elif answer.place:
            await self._lacks(self._at)
        self._lets_go()  # what it holds now, or does not, says how much may be read
        return self._answer(answer, skipped)

    async def barrier(
        self, target: Address, link: str, *, fence: int, born: int, prev: int, ttl_ms: int, durability: Durability,
        timeout_ms: int, weight: int = 1, spread: Spreading = None,
    ) -> tuple[Committed, WriteProgress]:  # fmt: skip
        """Wait until all that the slice has is as safe as that; answer as :meth:`commit`."""
        del prev, spread
        answer, held = await super().barrier(
            target, link, fence=fence, born=born, prev=0, ttl_ms=ttl_ms, durability=durability, timeout_ms=timeout_ms,
            weight=weight, spread=self._splitter.spreading,
        )  # fmt: skip
        return answer if answer.code in REFUSED else self._answer(answer, ()), held

    def _answer(self, answer: Committed, skipped: Collection[int]) -> Committed:
        mark = self._splitter.heard(self._number, answer, skipped)
        return Committed(answer.code, mark, answer.held, answer.held_m, answer.place, answer.blocked, answer.again_ms)
