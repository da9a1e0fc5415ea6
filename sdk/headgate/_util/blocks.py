"""A waiting task is asked here for the blocks that it is inside of, so that entering one costs nothing."""

import gc
from asyncio import Task
from collections.abc import Iterator
from types import AsyncGeneratorType, CoroutineType, GeneratorType, MethodType
from typing import Any, Final

MOST: Final = 64
"""Frames that are looked at; whoever is deeper in calls has blocks that are not found."""
_FRAMES: Final = (CoroutineType, GeneratorType, AsyncGeneratorType)


def entered(task: Task[Any], kind: type | tuple[type, ...]) -> Iterator[Any]:
    """Yield the context managers of a kind whose ``async with`` blocks a suspended task is inside of.

    Its frames keep how each block is to be left. Blocks of functions that it awaits are found too, and those inside
    ``contextlib.asynccontextmanager``.
    """
    left: list[Any] = [task.get_coro()]
    seen: set[int] = set()
    while left and len(seen) < MOST:
        frame = left.pop()
        if id(frame) in seen:
            continue
        seen.add(id(frame))
        for one in gc.get_referents(frame):
            if isinstance(one, _FRAMES):
                left.append(one)
            owner = one.__self__ if isinstance(one, MethodType) else one
            if isinstance(owner, kind):
                yield owner
            elif isinstance(one, MethodType) and isinstance(inner := getattr(owner, "gen", None), _FRAMES):
                left.append(inner)
