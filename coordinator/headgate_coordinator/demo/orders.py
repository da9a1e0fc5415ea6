"""Orders of the demo to its processes, over their standard input."""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Final

LAST: Final = 20.0
"""Seconds after which a process that was ordered to stop ends in any case."""
ORPHANED: Final = 0.5
"""The same when the demo itself has gone: nobody reads what such a process would still do."""


@dataclass(frozen=True, slots=True)
class Orders:
    """The parent's orders: to hurry (a consumer no longer takes its time), and to stop."""

    hurry: asyncio.Event
    stop: asyncio.Event

    @classmethod
    def listen(cls) -> "Orders":
        """Return the orders that come on standard input: a byte is to hurry, its end is to stop."""
        orders, loop = cls(asyncio.Event(), asyncio.Event()), asyncio.get_running_loop()
        parent = os.getppid()

        def end_orphaned() -> None:
            if os.getppid() != parent:
                os._exit(1)

        def heard() -> None:
            if os.read(sys.stdin.fileno(), 1):
                orders.hurry.set()
            else:
                loop.remove_reader(sys.stdin)
                orders.stop.set()
                loop.call_later(ORPHANED, end_orphaned)
                loop.call_later(LAST, os._exit, 1)

        loop.add_reader(sys.stdin, heard)
        return orders
