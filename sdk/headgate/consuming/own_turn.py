"""A feed of several under one window has its own turn, and holds nobody up where it hangs."""

import asyncio
import random
from collections.abc import Awaitable
from typing import Final

from headgate.core.window import AmongOthers

STOOD: Final = 0.01
"""Seconds by which a timer comes late where the loop itself stood still; then the answer may be here, unread."""


def lot() -> float:
    """Return where in the first turn it begins: of many consumers that begin together, not all do so at one slice."""
    return random.random()  # noqa: S311 -- it decides nothing that is secret


async def patiently(call: Awaitable[None], among: AmongOthers) -> None:
    """Await a call, and tell the others where it is not answered soon, and when it is."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle

    def late() -> None:
        nonlocal timer
        if loop.time() > timer.when() + STOOD:
            timer = loop.call_later(among.patience, late)
        else:
            among.overdue()

    asked_at = loop.time()
    timer = loop.call_later(among.patience, late)
    try:
        await call
    finally:
        timer.cancel()
    among.answered(loop.time() - asked_at)
