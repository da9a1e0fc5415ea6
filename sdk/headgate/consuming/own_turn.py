"""A feed of a slice has its own turn beside the others, where keys take turns over slices."""

import asyncio
import random
from collections.abc import Awaitable
from typing import Final, TypeVar

from headgate.core.window import AmongOthers

PATIENCE: Final = 0.05
"""Seconds for which others leave room for what a call may bring."""
T = TypeVar("T")


def lot() -> float:
    """Return where in the first turn it begins: of many consumers that begin together, not all do so at one slice."""
    return random.random()  # noqa: S311 -- it decides nothing that is secret


async def patiently(call: Awaitable[T], among: AmongOthers) -> T:
    """Await a call, and say so where it is not answered soon."""
    if not among.is_waited_for:
        return await call
    overdue = asyncio.get_running_loop().call_later(PATIENCE, among.overdue)
    try:
        return await call
    finally:
        overdue.cancel()
