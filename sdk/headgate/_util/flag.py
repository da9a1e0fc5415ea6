"""A task can wait for a flag that others set."""

import asyncio


class Flag(asyncio.Event):
    """A flag is an event for one waiting task or a few: their list takes 0.7 KiB less than an empty deque."""

    def __init__(self) -> None:
        super().__init__()
        self._waiters: list[asyncio.Future[bool]] = []  # type: ignore[assignment]  # it is appended to and removed from
