"""A session has room at a store, as credit at any destination, and spends it when it enters a segment."""

import asyncio
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from headgate._util.reconnect import until_answered
from headgate.core.account.calls import Totals
from headgate.core.outbox import Outgoing
from headgate.redis.stores.spools import SpoolStore
from headgate.spool.stores import Spool

if TYPE_CHECKING:
    from headgate.credit.account import CreditAccount

AGAIN: Final = 0.05
"""Seconds until a segment is entered again for which the account had to be healed."""


def _nobody() -> None:
    """Wake nobody: who asked waits for the future alone."""


class SpoolQuota:
    """A spool quota keeps one session's credit at one store.

    Args:
        account: of a store, without messages.
        calls: the scripts of stores.
        spool: the store.
    """

    def __init__(self, account: "CreditAccount", calls: SpoolStore, spool: Spool) -> None:
        self.spool = spool
        self._account = account
        self._calls = calls
        self._loop = asyncio.get_running_loop()
        self._wanted: dict[asyncio.Future[None], tuple[Outgoing, Callable[[], None]]] = {}
        account.steps[self._stepped] = None

    def take(self, size: int) -> bool:
        """Take room for a segment of ``size`` bytes if it is in hand; returns whether it was."""
        return not self.ask(size).cancel()

    def ask(self, size: int, stir: Callable[[], None] = _nobody) -> "asyncio.Future[None]":
        """Return a future that is done once there is room for a segment of ``size`` bytes; cancel it to give up.

        It fails with MessageTooLarge where the store can never hold that. Until it is done, ``stir`` is called
        whenever the store may have answered.
        """
        future: asyncio.Future[None] = self._loop.create_future()
        item = Outgoing(b"", size, math.inf, future)
        self._wanted[future] = item, stir
        self._account.outbox.head()  # lets go of what was given up, so that this one is asked for at once
        future.add_done_callback(lambda given: self._wanted.pop(given, None))
        self._account.submit(item)
        return future

    def refused(self, asked: "asyncio.Future[None]") -> bool:
        """Return whether the store was asked for that, and has no room."""
        wanted = self._wanted.get(asked)
        return wanted is not None and self._account.state.in_line(wanted[0])

    def _stepped(self) -> None:
        for _, stir in tuple(self._wanted.values()):
            stir()

    def put_back(self, size: int) -> None:
        """Put room back that was asked for and is not needed."""
        self._account.credit.put_back(size)
        self._account.freed()

    async def hold(self, segment: str, size: int, sender: str = "") -> None:
        """Spend the room of ``size`` bytes on a segment: from now on the store counts it. Waits while Redis is away.

        ``sender`` is the session that is to publish it, where that is another one.
        """
        line = self._account.credit
        while True:
            inc = line.inc
            totals = Totals(self._account.session, inc, line.epoch)
            address = self._account.address
            ttl_ms = self._account.lease.ttl_ms
            code: str = await until_answered(_nothing)(
                self._calls.hold, address, totals, segment, size, ttl_ms=ttl_ms, sender=sender
            )
            if code == "OK":
                if line.inc == inc:
                    line.publish(size, 1)
                if line.in_hand < size:
                    self._account.seek()  # for the next segment, while this one is written
                return
            if line.inc == inc:
                self._account.credit.put_back(size)
            self._account.seek()
            await asyncio.sleep(AGAIN)
            await self.ask(size)

    @property
    def reason(self) -> str:
        """Why there is no room, as far as that is known."""
        return self._account.explained()

    async def close(self) -> None:
        """Give the rest of the credit back."""
        await self._account.close()


def _nothing(_: BaseException) -> None:
    """Do nothing: senders hear from the account of the destination that they send to."""
