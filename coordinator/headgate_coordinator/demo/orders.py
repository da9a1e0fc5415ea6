"""What the demo tells its processes, over their standard input."""

import asyncio
import os
import sys
from dataclasses import dataclass
from typing import Final

LAST: Final = 20.0
"""Seconds after which a process that was told to stop ends in any case."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What the parent says: to hurry (a consumer no longer takes its time), and to stop."""

    hurry: asyncio.Event
    stop: asyncio.Event

    @classmethod
    def listen(cls) -> "Orders":
        """Return the orders that come on standard input: a byte is to hurry, its end is to stop."""
        orders, loop = cls(asyncio.Event(), asyncio.Event()), asyncio.get_running_loop()

        def heard() -> None:
            if os.read(sys.stdin.fileno(), 1):
                orders.hurry.set()
            else:
                loop.remove_reader(sys.stdin)
                orders.stop.set()
                loop.call_later(LAST, os._exit, 1)

        loop.add_reader(sys.stdin, heard)
        return orders
