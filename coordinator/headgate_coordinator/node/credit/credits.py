"""The lines of one node, each opened when the first client sends there, and closed some time after the last."""

import asyncio
import contextlib
from typing import Final
from weakref import WeakValueDictionary

from headgate.client import Client
from headgate.errors import HeadgateError
from headgate.redis.keys import Address
from headgate.session.session import Session
from headgate_coordinator.fleet.reply_queues import is_reply_queue
from headgate_coordinator.node.conditions import LinkQueueGone
from headgate_coordinator.node.credit.destination_credit import DestinationCredit
from headgate_coordinator.node.options import NodeOptions

SWEEP: Final = 5.0
"""Seconds between looks for lines that nobody uses."""


class DestinationCredits:
    """`DestinationCredits` holds the accounts of the node's own session, at each destination that clients send to."""

    def __init__(self, client: Client, session: Session, options: NodeOptions) -> None:
        self._client = client
        self._session = session
        self._options = options
        self._lines: dict[str, DestinationCredit] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._stirred: asyncio.Event | None = None

    async def get(self, destination: str, kind: str = "queue") -> DestinationCredit:
        """Return the line to a destination; an unknown one is made, of that kind.

        Raises:
            HeadgateError: nothing can be sent there.
        """
        async with self._lock(destination):
            line = self._lines.get(destination)
            await self._check_link_queue(destination)
            if line is None or line.inflow.is_closed:
                inflow = await self._session.inflow(destination, window=self._options.window, kind=kind)
                line = self._lines[destination] = DestinationCredit(
                    inflow, self._options.credit, self._options.low_credit
                )
                if self._stirred is not None:
                    inflow.steps[self._stirred.set] = None
            return line

    async def _check_link_queue(self, destination: str) -> None:
        """Bring no queue back that was made for one link: nobody would ever receive from it."""
        if is_reply_queue(destination):
            address = Address.of(self._client.namespace, destination.partition("?")[0])
            if await self._client.store.snapshot(address, waiters=0, consumers=1) is None:
                raise LinkQueueGone(f"{destination!r} was made for one link, and was removed with it")

    def _lock(self, destination: str) -> asyncio.Lock:
        return self._locks.setdefault(destination, asyncio.Lock())

    async def sweep(self) -> None:
        """Close the lines that nobody uses, until cancelled."""
        while True:
            await asyncio.sleep(SWEEP)
            for destination, line in tuple(self._lines.items()):
                async with self._lock(destination):
                    if line.idle and self._lines.get(destination) is line:
                        del self._lines[destination]
                        with contextlib.suppress(HeadgateError):
                            await line.inflow.close()

    def confirm(self) -> None:
        """Tell of all that is stored that it is: nobody here will wait for channels any more."""
        for line in self._lines.values():
            line.inflow.confirm()

    def stirred(self) -> asyncio.Event:
        """Return what is set from now on after each step of each line: the node is about to stop."""
        if self._stirred is None:
            self._stirred = asyncio.Event()
            for line in self._lines.values():
                line.inflow.steps[self._stirred.set] = None
        return self._stirred

    async def flush(self) -> None:
        """Wait until nothing is on its way to Redis any more."""
        stirred = self.stirred()
        while any(line.inflow.queued for line in self._lines.values()):
            stirred.clear()
            await stirred.wait()
