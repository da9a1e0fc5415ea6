"""A check finds whether Redis deletes keys when its memory is full: counters and messages then go unnoticed."""

import asyncio
from typing import Final

from headgate import Client
from headgate.errors import HeadgateError

HARMLESS: Final = "noeviction"
PATIENCE: Final = 0.5
"""Seconds: who asks has other things to say."""


async def eviction(client: Client) -> str:
    """Return the `maxmemory-policy` of a master that deletes keys; empty where none does, or that cannot be asked."""
    try:
        async with asyncio.timeout(PATIENCE):
            answers = await client.store.server.everywhere("INFO", "memory")
    except (HeadgateError, TimeoutError):
        return ""
    return next((found for found in map(_policy, answers) if found != HARMLESS), "")


def _policy(answer: object) -> str:
    text = answer.decode(errors="replace") if isinstance(answer, bytes) else str(answer)
    lines = (line.partition(":") for line in text.splitlines())
    return next((value.strip() for name, _, value in lines if name == "maxmemory_policy"), HARMLESS)
