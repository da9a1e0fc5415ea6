"""Ending a background task within a bound."""

import asyncio
from typing import Any, Final

PATIENCE: Final = 0.1
TRIES: Final = 3


async def stop(task: "asyncio.Task[Any] | None") -> None:
    """Cancel a task and wait for its end, a third of a second at the most.

    A library may swallow a cancellation that arrives just as its own wait ends; so it is asked again, and then left.
    """
    for _ in range(TRIES):
        if task is None or task.done():
            return
        task.cancel()
        await asyncio.wait([task], timeout=PATIENCE)
