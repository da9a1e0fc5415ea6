"""Keeps a flag that a task waits for."""

import asyncio


class Flag(asyncio.Event):
    """Is an event for one waiting task or a few: their list takes 0.7 KiB less than a deque while it is empty."""

    def __init__(self) -> None:
        super().__init__()
        self._waiters: list[asyncio.Future[bool]] = []  # type: ignore[assignment]  # it is appended to and removed from
