"""Many things are worked on a batch at a time, and a few batches at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


async def in_batches(work: Callable[[Sequence[T]], Awaitable[None]], items: Sequence[T], size: int, once: int) -> None:
    """Do the work for all items, that many in a batch and so many batches at once; the first error ends it."""
    batches = iter([items[at : at + size] for at in range(0, len(items), size)])

    async def worker() -> None:
        for batch in batches:
            await work(batch)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(once):
                group.create_task(worker())
    except BaseExceptionGroup as failed:
        raise failed.exceptions[0] from None
