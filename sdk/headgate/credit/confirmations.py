"""Receipts may have to wait: a message to a topic of a channel is confirmed once the channel has sent it.

The message is stored already, and so nothing here ever fails: a receipt whose time is over is given all the same, and
so is one whose channel is gone. Hints tell how far the channel is; each second a look heals one that was lost.
"""

import asyncio
import heapq
import itertools
import math
from collections import deque
from collections.abc import Mapping
from typing import Final

from headgate._util.tasks import stop
from headgate.core.account.waiters import EXPLAIN_AFTER
from headgate.core.outbox import Outgoing
from headgate.credit.observer import Observer
from headgate.errors import HeadgateError
from headgate.explain.model import Explanation
from headgate.message import Receipt

LOOK_EVERY: Final = 1.0
"""Seconds between looks how far the channel is."""


class Confirmations:
    """An account keeps its receipts that wait for a channel here, in the order of their numbers.

    Args:
        observer: what is known of the destination.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self.link = ""
        """The link that receipts wait for; empty where they wait for none."""
        self._released = self._newest = 0
        self._held: deque[tuple[Receipt, Outgoing, float]] = deque()
        self._deadlines: list[tuple[float, int, Receipt, Outgoing]] = []
        self._order = itertools.count()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._loop = asyncio.get_running_loop()

    @property
    def waits(self) -> bool:
        """Whether any receipt waits."""
        return bool(self._held)

    @property
    def reason(self) -> str:
        """Why they wait, as last seen; empty when none does."""
        why = self._why() if self._held else None
        return why.reason if why else "waits for its channel" if self._held else ""

    def adopt(self, fields: Mapping[str, str]) -> None:
        """Take in the destination's settings: which link receipts wait for, if any."""
        link = fields.get("confirm", "").partition(" ")[0]
        if link != self.link:
            self.link, self._released = link, 0
            self.let_go()

    def stored(self, receipt: Receipt, item: Outgoing) -> None:
        """Give who sent a message its receipt, now or once the channel has sent it."""
        if receipt.seq <= self._newest:  # the topic was removed and made anew
            self._released = 0
        self._newest = receipt.seq
        if not self.link or self._closed or receipt.seq <= self._released:
            _give(receipt, item)
            return
        now = self._loop.time()
        self._held.append((receipt, item, now))
        if item.deadline < math.inf:
            heapq.heappush(self._deadlines, (item.deadline, next(self._order), receipt, item))
            if self._deadlines[0][3] is item:
                self._wake.set()
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch(), name="headgate confirmations")

    def hear(self, words: list[str]) -> None:
        """Take a hint: ``released <link> <number>``."""
        if words[1] == self.link:
            self.released(int(words[2]))

    def released(self, seq: int) -> None:
        """Note that the channel has sent all up to a number."""
        self._released = max(self._released, seq)
        while self._held and self._held[0][0].seq <= self._released:
            receipt, item, _ = self._held.popleft()
            _give(receipt, item)

    def let_go(self) -> None:
        """Give all receipts: nobody is to wait any more."""
        held, self._held = self._held, deque()
        for receipt, item, _ in held:
            _give(receipt, item)

    async def close(self) -> None:
        """Give all receipts, and those to come at once."""
        self._closed = True
        self.let_go()
        self._observer.confirmations.look(self._loop.time(), None, self._why)
        await stop(self._task)

    def _why(self) -> Explanation | None:
        return self._observer.why(1, paid=True)

    async def _watch(self) -> None:
        look_at = self._loop.time() + EXPLAIN_AFTER  # perhaps there is nothing to wait for
        while self._held:
            self._wake.clear()
            until = min(look_at, self._deadlines[0][0] if self._deadlines else look_at)
            timer = self._loop.call_at(until, self._wake.set)
            await self._wake.wait()
            timer.cancel()
            now = self._loop.time()
            while self._deadlines and (self._deadlines[0][0] <= now or self._deadlines[0][3].done.done()):
                _, _, receipt, item = heapq.heappop(self._deadlines)
                _give(receipt, item)
            while self._held and self._held[0][1].done.done():
                self._held.popleft()
            if now >= look_at and self._held:
                look_at = now + LOOK_EVERY
                await self._look()
            since = self._held[0][2] if self._held else None
            self._observer.confirmations.look(self._loop.time(), since, self._why)
        self._deadlines.clear()

    async def _look(self) -> None:
        link, newest = self.link, self._held[-1][0].seq
        try:
            released = await self._observer.released(link)
        except HeadgateError:
            return  # Redis does not answer now
        if link == self.link:
            self.released(newest if released is None else released)


def _give(receipt: Receipt, item: Outgoing) -> None:
    if not item.done.done():
        item.done.set_result(receipt)
